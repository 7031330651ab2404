"""Consumers of a topic as `Topic` shows and changes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from penstock.consume import membership
from penstock.consume.lag import Lag, lag_behind
from penstock.consume.membership import MemberStats
from penstock.consume.options import Moment, moment
from penstock.consume.read_quota import forget_quota
from penstock.consume.removed_parents import pass_removed
from penstock.errors import InvalidOption, UnknownConsumer
from penstock.parse import Duration, Size, consumer_name, seconds, size, whole
from penstock.place import Place
from penstock.state.consumers import ConsumerOptions, ConsumerRecord
from penstock.topic.delayed import forget_consumer
from penstock.topic.open_topic import OpenTopic


class ConsumerStats(NamedTuple):
    """A consumer of a topic: where it stands, how far behind, and who reads for it now."""

    consumer: str
    important: bool
    positions: dict[int, int]
    #: Messages stored that it has not committed.
    lag: int
    #: When it last committed or was moved, in nanoseconds; None when it has no position yet.
    updated: int | None = None
    #: Bytes it has not committed, as they are stored (to the frame), and the age of the first in seconds.
    lag_bytes: int = 0
    lag_seconds: float = 0.0
    availability_period_s: float | None = None
    read_from_ns: int | None = None
    members: tuple[MemberStats, ...] = ()
    #: How many bytes a second its readers get, and at once; None is no limit.
    read_speed: int | None = None
    read_burst: int | None = None


def options_from(before: ConsumerOptions, now_ns: int, changes: dict[str, Any]) -> ConsumerOptions:
    """Options as a user spells them, each checked; what is not named stays."""
    fields: dict[str, Any] = asdict(before)
    for name, value in changes.items():
        if name == "important":
            fields["important"] = value
        elif name == "availability_period":
            fields["availability_period_s"] = _seconds(name, value)
        elif name == "read_from":
            fields["read_from_ns"] = None if value is None else moment(name, value, now_ns)
        elif name in ("read_speed", "read_burst"):
            fields[name] = None if value is None else size(name, value)
        else:
            raise InvalidOption(
                f"unknown consumer option {name!r}",
                hint="options: important, availability_period, read_from, read_speed, read_burst",
            )
    return ConsumerOptions(**fields)


def add(
    topic: OpenTopic, name: str, *, important: bool, availability_period: Duration | None, start: Place,
    read_from: Moment | None, read_speed: Size | None, read_burst: Size | None,
) -> None:  # fmt: skip
    """Create a consumer of a topic; its positions begin at `start`."""
    now = topic.clock.now_ns()
    wanted = {
        "important": important, "availability_period": availability_period, "read_from": read_from,
        "read_speed": read_speed, "read_burst": read_burst,
    }  # fmt: skip
    options = options_from(ConsumerOptions(), now, wanted)
    _refuse_both(topic, consumer_name(name), options)
    places = topic.begin_all(start, now)
    topic.consumers.add(consumer_name(name), topic.record.id, options, places, now)


def alter(topic: OpenTopic, name: str, changes: dict[str, Any]) -> None:
    """Change options of a consumer."""
    before = topic.consumers.options(consumer_name(name), topic.record.id)
    after = options_from(before, topic.clock.now_ns(), changes)
    _refuse_both(topic, name, after)
    topic.consumers.alter(name, topic.record.id, after)


def refuse_key_retention(topic: OpenTopic) -> None:
    """Raise when a consumer keeps messages that `key_retention` would end."""
    for record in topic.consumers.of_topic(topic.record.id):
        if record.options.keeps:
            raise _both(topic, record.name, record.options)


def _refuse_both(topic: OpenTopic, name: str, options: ConsumerOptions) -> None:
    topic.refresh()
    if options.keeps and topic.options.key_retention:
        raise _both(topic, name, options)


def _both(topic: OpenTopic, name: str, options: ConsumerOptions) -> InvalidOption:
    kept = "important=True" if options.important else "availability_period"
    return InvalidOption(
        f"topic {topic.name!r} cannot have key_retention and consumer {name!r} with {kept}: a message whose "
        "key's time is over is shown to nobody, also not to a consumer that has still to read it",
        hint="use retention for the whole topic, or a consumer without it",
    )


def seek(topic: OpenTopic, name: str, place: Place) -> dict[int, int]:
    """Move a consumer, or create it there; return where it stands in each partition."""
    now = topic.clock.now_ns()
    consumer_name(name)
    if not topic.consumers.exists(name, topic.record.id):
        places = topic.begin_all(place, now)
        topic.consumers.add(name, topic.record.id, ConsumerOptions(), places, now)
        return places
    numbers = place if isinstance(place, Mapping) else topic.numbers()
    places = {number: topic.begin(number, place, now) for number in numbers}
    topic.consumers.seek(name, topic.record.id, places, now)
    if not isinstance(place, Mapping):
        pass_removed(topic, name)
    membership.tell(topic, name)
    return places


def kick(topic: OpenTopic, name: str, pid: int | None) -> list[int]:
    """Make readers of a consumer leave, or only those of process `pid`; return the processes."""
    if not topic.consumers.exists(consumer_name(name), topic.record.id):
        raise UnknownConsumer(f"no consumer {name!r} of {topic.name!r}")
    if pid is not None:
        whole("pid", pid, 1, 2**31)
    return membership.kick(topic, name, pid)


def drop(topic: OpenTopic, name: str) -> None:
    """Delete a consumer, its membership and what waits for it."""
    topic.consumers.drop(consumer_name(name), topic.record.id)
    membership.remove(topic, name)
    forget_quota(topic, name)
    forget_consumer(topic, name)


def stats(topic: OpenTopic) -> list[ConsumerStats]:
    """All consumers of a topic, by name."""
    return [_stats(topic, record) for record in topic.consumers.of_topic(topic.record.id)]


def _stats(topic: OpenTopic, record: ConsumerRecord) -> ConsumerStats:
    stored = topic.consumers.positions(topic.record.id, record.name)
    positions = {p.partition: p.position for p in stored if p.partition in topic.numbers()}
    now = topic.clock.now_ns()
    lag = Lag.total(lag_behind(log, positions.get(log.partition, 0), now) for log in topic.logs())
    return ConsumerStats(
        consumer=record.name,
        important=record.options.important,
        positions=positions,
        lag=lag.messages,
        updated=max((p.updated for p in stored), default=None),
        lag_bytes=lag.bytes,
        lag_seconds=lag.seconds,
        availability_period_s=record.options.availability_period_s,
        read_from_ns=record.options.read_from_ns,
        members=tuple(membership.members(topic, record.name)),
        read_speed=record.options.read_speed,
        read_burst=record.options.read_burst,
    )


def _seconds(name: str, value: Duration | None) -> float | None:
    return None if value is None else seconds(name, value)
