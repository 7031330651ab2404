"""Offsets without a message: past the end of a partition, or no longer there."""

from __future__ import annotations

from penstock.errors import OffsetAhead, OffsetTrimmed, TopicReplaced
from penstock.log.log import Log
from penstock.parse import whole


def refuse_ahead(topic: str, log: Log, offset: int) -> None:
    """Raise `OffsetAhead` for an offset past the end; a reader there would wait without knowing why."""
    end = log.stored().end
    if offset > end:
        raise _ahead(topic, log, offset, end)


def _ahead(topic: str, log: Log, offset: int, end: int) -> OffsetAhead:
    return OffsetAhead(
        f"offset {offset} of {topic!r} partition {log.partition} is beyond the end ({end})",
        partition=log.partition, offset=offset, end=end,
    )  # fmt: skip


def nothing_at(topic: str, log: Log, offset: int) -> OffsetTrimmed:
    """Return the error for an offset without a message; raise here if it lies past the end."""
    whole("offset", offset, 0, 2**63 - 1)
    bounds = log.bounds()
    if bounds.dropped:
        raise TopicReplaced(f"topic {topic!r} was dropped", hint="open it anew by its name")
    if offset >= bounds.end:
        raise _ahead(topic, log, offset, bounds.end)
    rows = log.cursor(max(offset, bounds.start)).read(1, 1)
    return OffsetTrimmed(
        f"offset {offset} of {topic!r} partition {log.partition} holds no message",
        partition=log.partition, offset=offset, first=rows[0].first if rows else bounds.end,
    )  # fmt: skip
