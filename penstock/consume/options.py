"""What a reader can be asked for, checked once for every way to open one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from penstock.consume.policy import Retry, checked_policy
from penstock.consume.source import Floor
from penstock.errors import InvalidOption, WrongType
from penstock.options import Duration, Place, consumer_name, nanoseconds, one_of, seconds, spot, wait_seconds
from penstock.topic.partitions import Partitions

#: A moment (datetime, ISO text, nanoseconds since 1970) or an age ("2h" ago).
Moment = datetime | str | int
#: How readers of one consumer share: partition by partition, or message by message.
Kind = Literal["stream", "queue"]


@dataclass(frozen=True)
class ReaderOptions:
    """A reader's options, understood."""

    consumer: str | None
    start: Place
    partitions: frozenset[int] | None
    follow: bool
    skip_gaps: bool
    create: bool
    read_from_ns: int | None
    max_lag_s: float | None
    #: How long a partition that goes to another member waits for what was delivered to be committed.
    handover_s: float
    #: Whether readers take single messages of the same partition (`penstock.consume.queue`).
    is_queue: bool = False
    #: How long a queue's reader has a message before it is anybody's again.
    lease_s: float = 30.0
    #: When a message that failed is tried again.
    retry: Retry = field(default_factory=Retry)
    #: By topic: what makes a value of its bytes, where the topic was opened with a type.
    decoders: Mapping[str, Callable[[bytes], Any]] = field(default_factory=dict)

    def floor(self, asked_ns: int | None) -> Floor:
        """What is too old for this reader; `asked_ns` is what its consumer asked for."""
        moments = [each for each in (self.read_from_ns, asked_ns) if each is not None]
        return Floor(max(moments, default=None), self.max_lag_s)


def reader_options(
    topics: Sequence[Partitions], *, consumer: str | None, start: Place, partitions: Sequence[int] | None,
    follow: bool, on_gap: Literal["raise", "skip"], create: bool, read_from: Moment | None,
    max_lag: Duration | None, handover: Duration, retry: Retry | None, kind: Kind, lease: Duration,
    decoders: Mapping[str, Callable[[bytes], Any]],
) -> ReaderOptions:  # fmt: skip
    """Check what a user asked for; raises `InvalidOption` and `WrongType`."""
    one_of("on_gap", on_gap, ("raise", "skip"))
    one_of("kind", kind, ("stream", "queue"))
    if kind == "queue" and (consumer is None or partitions is not None):
        raise InvalidOption(
            "a queue is a consumer's, over all partitions", hint="give consumer, no partitions"
        )
    if kind == "queue" and (read_from is not None or max_lag is not None):
        raise InvalidOption("a queue passes nothing over", hint="leave read_from and max_lag out")
    if consumer is not None:
        consumer_name(consumer)
    for topic in topics:
        topic.refresh()
        _check_chosen(topic, partitions)
    return ReaderOptions(
        consumer=consumer,
        start=start,
        partitions=None if partitions is None else frozenset(partitions),
        follow=follow,
        skip_gaps=on_gap == "skip",
        create=create,
        read_from_ns=None if read_from is None else moment("read_from", read_from, topics[0].clock.now_ns()),
        max_lag_s=None if max_lag is None else seconds("max_lag", max_lag),
        handover_s=seconds("handover", handover),
        is_queue=kind == "queue",
        lease_s=wait_seconds("lease", lease),
        retry=Retry() if retry is None else checked_policy(retry),
        decoders=decoders,
    )


def moment(name: str, value: Moment, now_ns: int) -> int:
    """A moment in nanoseconds since 1970, from a datetime, text or an age."""
    if not isinstance(value, str):
        return nanoseconds(name, value)
    found = spot(value, 0, now_ns)
    if found.kind != "time":
        raise InvalidOption(f"{name}={value!r} is not a moment", hint='use an age like "2h", or an ISO time')
    return found.value


def _check_chosen(topic: Partitions, numbers: Any) -> None:
    if numbers is None:
        return
    if not isinstance(numbers, Collection) or isinstance(numbers, str):
        raise WrongType(f"partitions is a list of numbers, not {type(numbers).__name__}")
    if not numbers:
        raise InvalidOption("partitions is empty", hint="leave it out to read all of them")
    for number in numbers:
        topic.check(number)
