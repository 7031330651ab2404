"""A topic in numbers, counted from offsets and file sizes."""

from __future__ import annotations

from typing import NamedTuple

from penstock.errors import OffsetTrimmed
from penstock.log.folder import file_bytes
from penstock.log.log import Log
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


class TopicStats(NamedTuple):
    """A topic in numbers; counted from offsets, without reading messages."""

    topic: str
    messages: int
    bytes: int
    partitions: tuple[PartitionStats, ...]


def topic_stats(partitions: OpenTopic) -> TopicStats:
    """Messages, bytes and times of each partition, without reading the messages."""
    rows = tuple(_partition_stats(log) for log in partitions.logs())
    return TopicStats(partitions.name, sum(r.messages for r in rows), sum(r.bytes for r in rows), rows)


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
    return PartitionStats(
        log.partition, bounds.start, bounds.end, bounds.end - bounds.start, total, len(bases), oldest, newest
    )
