"""What a reader can be asked for, checked once for every way to open one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Literal

from penstock.consume.partition import Floor
from penstock.errors import InvalidOption, WrongType
from penstock.parse import (
    WAIT_MAX_S,
    Duration,
    consumer_name,
    nanoseconds,
    one_of,
    seconds,
    wait_seconds,
    whole,
)
from penstock.place import Place, spot
from penstock.topic.open_topic import OpenTopic

ATTEMPTS_MAX = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Retry:
    """How often a message is tried, and how long it waits in between."""

    #: The wait after the first failure.
    first: Duration = "1s"
    #: Each further wait is so many times longer; 1 keeps them equal.
    factor: float = 2.0
    #: No wait is longer than this, but for the chance in it.
    limit: Duration = "1h"
    #: So many attempts in all, the first one included; then the message is a dead letter.
    attempts: int = 8
    #: Each wait is longer by a random share up to this, so that what failed together does not come together.
    jitter: float = 0.1
    #: The waits after the first failure, the second and so on, instead of `first`, `factor` and `limit`;
    #: the last one is that of all further ones. They are waited for exactly, without jitter.
    delays: tuple[Duration, ...] = ()

    def __post_init__(self) -> None:
        self._check_delays()
        first, limit, _ = self._seconds
        if not 0.001 <= first <= WAIT_MAX_S:
            raise InvalidOption(f"first={self.first!r} is no wait", hint="from 1 ms to a year")
        if not first <= limit <= WAIT_MAX_S:
            raise InvalidOption(f"limit={self.limit!r} is out of range", hint="from `first` to a year")
        if not 1 <= _number("factor", self.factor) <= 1000:
            raise InvalidOption(f"factor={self.factor!r} is out of range", hint="from 1 to 1000")
        if not 0 <= _number("jitter", self.jitter) <= 1:
            raise InvalidOption(f"jitter={self.jitter!r} is out of range", hint="a share from 0 to 1")
        whole("attempts", self.attempts, 1, ATTEMPTS_MAX)

    @property
    def is_exact(self) -> bool:
        """Whether all messages that fail for the nth time wait equally long."""
        return bool(self.delays) or not self.jitter

    @property
    def least_s(self) -> float:
        """The shortest wait."""
        first, _, delays = self._seconds
        return min(delays, default=first)

    def wait_s(self, attempt: int, chance: float = 0.0) -> float | None:
        """How long to wait after this attempt failed; None when it was the last one.

        `chance`, from 0 to 1, is how much of the jitter to add.
        """
        if attempt >= self.attempts:
            return None
        return self.back_off_s(attempt, chance)

    def back_off_s(self, attempt: int, chance: float = 0.0) -> float:
        """The wait after an attempt, whether or not it was the last."""
        first, limit, delays = self._seconds
        if delays:
            return delays[min(max(attempt, 1), len(delays)) - 1]
        try:
            wait = min(first * self.factor ** (attempt - 1), limit)
        except OverflowError:
            wait = limit
        return wait * (1.0 + self.jitter * chance)

    @cached_property
    def _seconds(self) -> tuple[float, float, tuple[float, ...]]:
        """`first`, `limit` and `delays` in seconds: understood once, used after every failure."""
        delays = tuple(seconds("delays", each) for each in self.delays)
        return seconds("first", self.first), seconds("limit", self.limit), delays

    def _check_delays(self) -> None:
        if isinstance(self.delays, (str, bytes)) or not isinstance(self.delays, Sequence):
            raise WrongType(
                f"delays is a list of waits, not {type(self.delays).__name__}", hint='("30s", "1m", "90s")'
            )
        object.__setattr__(self, "delays", tuple(self.delays))
        for each in self.delays:
            if not 0.001 <= seconds("delays", each) <= WAIT_MAX_S:
                raise InvalidOption(f"{each!r} in delays is no wait", hint="from 1 ms to a year")


def checked_policy(policy: object) -> Retry:
    """Return the policy; raise `WrongType` if it is not a `Retry`."""
    if not isinstance(policy, Retry):
        raise WrongType(f"retry is a Retry, not {type(policy).__name__}", hint="penstock.Retry(attempts=3)")
    return policy


def _number(name: str, value: object) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise WrongType(f"{name} is a number, not {type(value).__name__}")
    return float(value)


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
    #: Whether readers take single messages of the same partition (`QueueReader`).
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
    topics: Sequence[OpenTopic], *, consumer: str | None, start: Place, partitions: Sequence[int] | None,
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


def _check_chosen(topic: OpenTopic, numbers: Any) -> None:
    if numbers is None:
        return
    if not isinstance(numbers, Collection) or isinstance(numbers, str):
        raise WrongType(f"partitions is a list of numbers, not {type(numbers).__name__}")
    if not numbers:
        raise InvalidOption("partitions is empty", hint="leave it out to read all of them")
    for number in numbers:
        topic.check(number)
