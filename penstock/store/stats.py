"""A topic in numbers, counted from offsets and file sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from penstock.errors import OffsetTrimmed
from penstock.log.folder import file_bytes
from penstock.log.log import Log
from penstock.partition_tree import RowState
from penstock.topic.open_topic import OpenTopic


class PartitionStats(NamedTuple):
    """One partition in numbers."""

    partition: int
    start: int
    end: int
    messages: int
    bytes: int
    segments: int
    #: When the oldest and the newest message were written, in nanoseconds; None when empty.
    oldest: int | None
    newest: int | None
    #: For how many seconds a quota (`write_quota`) held writers back since the machine was started, in all.
    waited: float = 0.0


class TopicStats(NamedTuple):
    """A topic in numbers; counted from offsets, without reading messages."""

    topic: str
    messages: int
    bytes: int
    partitions: tuple[PartitionStats, ...]


def topic_stats(topic: OpenTopic) -> TopicStats:
    """Messages, bytes and times of each partition, without reading the messages."""
    rows = tuple(_partition_stats(log) for log in topic.logs())
    return TopicStats(topic.name, sum(r.messages for r in rows), sum(r.bytes for r in rows), rows)


def written_at(log: Log, offset: int) -> int | None:
    """When the first message from `offset` on was written; None when there is none."""
    rows = log.cursor(offset).read(1, 1)
    return rows[0].messages()[0].written_at if rows else None


def _partition_stats(log: Log) -> PartitionStats:
    if log.folder.is_unused():  # its first segment is made by who writes, with a sync
        return PartitionStats(log.partition, 0, 0, 0, 0, 0, None, None)
    bounds = log.bounds()
    bases = log.segments.bases()
    total = sum(bounds.byte if base == bounds.segment else file_bytes(log.folder, base) for base in bases)
    try:
        oldest = written_at(log, bounds.start) if bounds.end > bounds.start else None
        newest = written_at(log, bounds.end - 1) if bounds.end > bounds.start else None
    except OffsetTrimmed:  # retention moved on meanwhile
        return _partition_stats(log)
    meter = log.appender.meter
    return PartitionStats(
        log.partition, bounds.start, bounds.end, bounds.end - bounds.start, total, len(bases), oldest, newest,
        0.0 if meter is None else meter.waited(),
    )  # fmt: skip


class PartitionInfo(NamedTuple):
    """One partition that can be read; no message is looked at to fill it in."""

    partition: int
    #: "active": it can be written to; "inactive": it was split, and is only read.
    state: RowState
    #: The partitions it took its range from, and those that took theirs from it.
    parents: tuple[int, ...]
    children: tuple[int, ...]
    #: Keys with hashes from `low` up to, and without, `high` are its own.
    low: int
    high: int
    #: A consumer reads it once it is done with each of these partitions up to this offset.
    gates: Mapping[int, int]
    start: int
    end: int
    messages: int
    bytes: int
    #: Bytes a second over the last stabilization window; None where nobody measures.
    write_rate: float | None
    #: When the oldest and the newest message were written, in nanoseconds; None when empty.
    oldest: int | None
    newest: int | None


def partition_list(topic: OpenTopic) -> list[PartitionInfo]:
    """The partitions of a topic that can be read, by number."""
    topic.refresh()
    tree = topic.tree
    found = []
    for stats in topic_stats(topic).partitions:
        row = tree.row(stats.partition)
        found.append(
            PartitionInfo(
                row.partition, row.state, row.parents, row.children, row.low, row.high,
                tree.gates(row.partition), stats.start, stats.end, stats.messages, stats.bytes,
                _write_rate(topic.log(row.partition)), stats.oldest, stats.newest,
            )
        )  # fmt: skip
    return found


def _write_rate(log: Log) -> float | None:
    return None if log.appender.meter is None else log.appender.meter.write_rate()
