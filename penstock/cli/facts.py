"""Topics and consumers as the command line shows them: gathered once, printed as table or as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from penstock import Topic
from penstock.cli import units
from penstock.cli.output import Column
from penstock.clock import Clock
from penstock.errors import DataError, OutOfRange
from penstock.store.topic import ConsumerStats, TopicStats


@dataclass(frozen=True)
class PartitionFacts:
    """One partition: offsets from `start` up to `end`."""

    partition: int
    start: int
    end: int
    messages: int
    bytes: int
    segments: int
    oldest: str | None
    oldest_ns: int | None
    newest: str | None
    newest_ns: int | None


@dataclass(frozen=True)
class TopicFacts:
    """A topic in numbers; `problem` says why there are none."""

    topic: str
    partitions: int
    messages: int | None
    bytes: int | None
    oldest: str | None
    oldest_ns: int | None
    newest: str | None
    newest_ns: int | None
    consumers: int
    options: dict[str, Any]
    problem: str | None = None


@dataclass(frozen=True)
class ConsumerPartition:
    """Where a consumer stands in one partition."""

    partition: int
    position: int | None
    start: int
    end: int
    lag: int


@dataclass(frozen=True)
class ConsumerFacts:
    """A consumer of a topic: how far behind it is, and when it last committed or was moved."""

    topic: str
    consumer: str
    important: bool
    lag: int
    updated: str | None
    updated_ns: int | None
    partitions: list[ConsumerPartition]


def topic_facts(topic: Topic) -> TopicFacts:
    """The topic's numbers; damage that hides them becomes `problem`."""
    consumers = len(topic.consumers())
    try:
        stats = topic.stats()
    except (DataError, OutOfRange) as error:
        return _facts(topic, None, consumers, str(error.args[0]))
    return _facts(topic, stats, consumers, None)


def _facts(topic: Topic, stats: TopicStats | None, consumers: int, problem: str | None) -> TopicFacts:
    parts = stats.partitions if stats is not None else ()
    oldest = min((p.oldest for p in parts if p.oldest is not None), default=None)
    newest = max((p.newest for p in parts if p.newest is not None), default=None)
    return TopicFacts(
        topic=topic.name,
        partitions=topic.options.partitions,
        messages=None if stats is None else stats.messages,
        bytes=None if stats is None else stats.bytes,
        oldest=units.iso(oldest),
        oldest_ns=oldest,
        newest=units.iso(newest),
        newest_ns=newest,
        consumers=consumers,
        options=asdict(topic.options),
        problem=problem,
    )


def partition_facts(stats: TopicStats) -> list[PartitionFacts]:
    return [
        PartitionFacts(
            p.partition, p.start, p.end, p.messages, p.bytes, p.segments,
            units.iso(p.oldest), p.oldest, units.iso(p.newest), p.newest,
        )
        for p in stats.partitions
    ]  # fmt: skip


def consumer_facts(topic: Topic) -> list[ConsumerFacts]:
    """All consumers of a topic, by name."""
    bounds = {number: (start, end) for number, start, end in topic.scan().ranges}
    return [_consumer(topic.name, stats, bounds) for stats in topic.consumers()]


def _consumer(topic: str, stats: ConsumerStats, bounds: Mapping[int, tuple[int, int]]) -> ConsumerFacts:
    rows = []
    for number, (start, end) in bounds.items():
        position = stats.positions.get(number)
        lag = max(0, end - max(start if position is None else position, start))
        rows.append(ConsumerPartition(number, position, start, end, lag))
    return ConsumerFacts(
        topic, stats.consumer, stats.important, sum(row.lag for row in rows), units.iso(stats.updated),
        stats.updated, rows,
    )  # fmt: skip


def topic_columns() -> tuple[Column[TopicFacts], ...]:
    now = Clock.now_ns()
    return (
        ("topic", lambda t: t.topic, False),
        ("partitions", lambda t: units.count(t.partitions), True),
        ("messages", lambda t: "?" if t.messages is None else units.count(t.messages), True),
        ("bytes", lambda t: "?" if t.bytes is None else units.size(t.bytes), True),
        ("oldest", lambda t: units.age(t.oldest_ns, now), True),
        ("newest", lambda t: units.age(t.newest_ns, now), True),
        ("retention", lambda t: retention(t.options), False),
        ("sync", lambda t: str(t.options["sync"]), False),
        ("consumers", lambda t: units.count(t.consumers), True),
    )


def consumer_columns() -> tuple[Column[ConsumerFacts], ...]:
    now = Clock.now_ns()
    return (
        ("consumer", lambda c: c.consumer, False),
        ("topic", lambda c: c.topic, False),
        ("lag", lambda c: units.count(c.lag), True),
        ("last commit", lambda c: units.age(c.updated_ns, now), True),
        ("important", lambda c: "yes" if c.important else "", False),
    )


def retention(options: Mapping[str, Any]) -> str:
    """What a topic keeps, in words."""
    kept = [units.duration(options["retention_s"], none="")] if options["retention_s"] is not None else []
    kept += [units.size(options["max_bytes"])] if options["max_bytes"] is not None else []
    return ", ".join(kept) or "for ever"
