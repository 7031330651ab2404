"""Topics and consumers as the command line shows them: gathered once, printed as table or as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from penstock import Topic
from penstock.cli import output
from penstock.cli.output import Column
from penstock.clock import NANOSECONDS, Clock
from penstock.consume.membership import MemberStats
from penstock.errors import DataError, OutOfRange
from penstock.partition_tree import HASHES
from penstock.store.consumers import ConsumerStats
from penstock.store.stats import TopicStats


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
    #: "active", or "inactive": split, and only read.
    state: str
    #: Those it took its range of hashes from, and those that took theirs from it.
    parents: list[int]
    children: list[int]
    low: int
    high: int
    #: Consumers read it when they are done with these partitions up to these offsets.
    gates: dict[int, int]
    write_rate: float | None


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
    #: The process that reads it now; null when nobody does, or it is not known.
    pid: int | None


@dataclass(frozen=True)
class MemberFacts:
    """A process that reads for a consumer."""

    pid: int | None
    host: str
    partitions: list[int]
    joined: str | None
    joined_ns: int
    stopped: bool
    kicked: bool
    fixed: bool


@dataclass(frozen=True)
class ConsumerFacts:
    """A consumer of a topic: how far behind it is, who reads, and when it last committed or was moved."""

    topic: str
    consumer: str
    important: bool
    lag: int
    lag_bytes: int
    lag_s: float
    updated: str | None
    updated_ns: int | None
    availability_period_s: float | None
    read_from: str | None
    read_from_ns: int | None
    read_speed: int | None
    read_burst: int | None
    members: list[MemberFacts]
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
        partitions=len(topic.open_topic.active()),
        messages=None if stats is None else stats.messages,
        bytes=None if stats is None else stats.bytes,
        oldest=output.iso(oldest),
        oldest_ns=oldest,
        newest=output.iso(newest),
        newest_ns=newest,
        consumers=consumers,
        options=asdict(topic.options),
        problem=problem,
    )


def partition_facts(topic: Topic) -> list[PartitionFacts]:
    """Return what `penstock topic show` says of each partition."""
    segments = {p.partition: p.segments for p in topic.stats().partitions}
    return [
        PartitionFacts(
            p.partition, p.start, p.end, p.messages, p.bytes, segments.get(p.partition, 0),
            output.iso(p.oldest), p.oldest, output.iso(p.newest), p.newest,
            p.state, list(p.parents), list(p.children), p.low, p.high, dict(p.gates), p.write_rate,
        )
        for p in topic.partitions()
    ]  # fmt: skip


def tree_lines(partitions: Sequence[PartitionFacts]) -> Iterator[str]:
    """The partitions drawn as a tree, each below the one it came from, with its share of the hashes."""
    there = {each.partition: each for each in partitions}

    def drawn(each: PartitionFacts, before: str, branch: str, below: str) -> Iterator[str]:
        share = f"{100 * (each.high - each.low) / HASHES:.3g} %"
        yield f"{before}{branch}{each.partition}  {share}, {each.state}"
        children = [there[number] for number in each.children if number in there]
        for place, child in enumerate(children):
            is_last = place == len(children) - 1
            yield from drawn(child, before + below, "└─ " if is_last else "├─ ", "   " if is_last else "│  ")

    for each in partitions:
        if not any(parent in there for parent in each.parents):
            yield from drawn(each, "", "", "")


def consumer_facts(topic: Topic) -> list[ConsumerFacts]:
    """All consumers of a topic, by name."""
    bounds = {number: (start, end) for number, start, end in topic.scan().ranges}
    return [_consumer(topic.name, stats, bounds) for stats in topic.consumers()]


def _consumer(topic: str, stats: ConsumerStats, bounds: Mapping[int, tuple[int, int]]) -> ConsumerFacts:
    readers = {number: member.pid for member in stats.members for number in member.partitions}
    rows = []
    for number, (start, end) in bounds.items():
        position = stats.positions.get(number)
        lag = max(0, end - max(start if position is None else position, start))
        rows.append(ConsumerPartition(number, position, start, end, lag, readers.get(number)))
    return ConsumerFacts(
        topic=topic,
        consumer=stats.consumer,
        important=stats.important,
        lag=sum(row.lag for row in rows),
        lag_bytes=stats.lag_bytes,
        lag_s=round(stats.lag_seconds, 3),
        updated=output.iso(stats.updated),
        updated_ns=stats.updated,
        availability_period_s=stats.availability_period_s,
        read_from=output.iso(stats.read_from_ns),
        read_from_ns=stats.read_from_ns,
        read_speed=stats.read_speed,
        read_burst=stats.read_burst,
        members=[_member(member) for member in stats.members],
        partitions=rows,
    )


def _member(member: MemberStats) -> MemberFacts:
    return MemberFacts(
        member.pid, member.host, list(member.partitions), output.iso(member.joined), member.joined,
        member.stopped, member.kicked, member.fixed,
    )  # fmt: skip


def topic_columns() -> tuple[Column[TopicFacts], ...]:
    """Return the columns of a table of topics."""
    now = Clock.now_ns()
    return (
        ("topic", lambda t: t.topic, False),
        ("partitions", lambda t: output.count(t.partitions), True),
        ("messages", lambda t: "?" if t.messages is None else output.count(t.messages), True),
        ("bytes", lambda t: "?" if t.bytes is None else output.size(t.bytes), True),
        ("oldest", lambda t: output.age(t.oldest_ns, now), True),
        ("newest", lambda t: output.age(t.newest_ns, now), True),
        ("retention", lambda t: retention(t.options), False),
        ("sync", lambda t: str(t.options["sync"]), False),
        ("consumers", lambda t: output.count(t.consumers), True),
    )


def consumer_columns() -> tuple[Column[ConsumerFacts], ...]:
    """Return the columns of a table of consumers."""
    now = Clock.now_ns()
    return (
        ("consumer", lambda c: c.consumer, False),
        ("topic", lambda c: c.topic, False),
        ("lag", lambda c: output.count(c.lag), True),
        ("bytes", lambda c: output.size(c.lag_bytes), True),
        ("behind", lambda c: output.age(now - round(c.lag_s * NANOSECONDS), now) if c.lag else "-", True),
        ("members", lambda c: output.count(len(c.members)), True),
        ("last commit", lambda c: output.age(c.updated_ns, now), True),
        ("important", lambda c: "yes" if c.important else "", False),
    )


def retention(options: Mapping[str, Any]) -> str:
    """What a topic keeps, in words."""
    kept = [output.duration(options["retention_s"], none="")] if options["retention_s"] is not None else []
    kept += [output.size(options["max_bytes"])] if options["max_bytes"] is not None else []
    return ", ".join(kept) or "for ever"
