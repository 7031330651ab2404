"""How far behind a place in a partition is: in messages, bytes and time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from penstock.clock import NANOSECONDS
from penstock.errors import DataError, OutOfRange
from penstock.log.folder import file_bytes
from penstock.log.log import Log
from penstock.log.segments import Bounds


class Lag(NamedTuple):
    """What is stored and was not read, or not committed. False when there is nothing."""

    messages: int
    #: As stored. Exact to the frame: of one that was read in part all of it counts.
    bytes: int
    #: The age of the first of them, by the time it was written; 0.0 when there are none.
    seconds: float

    def __bool__(self) -> bool:
        return self.messages > 0

    @staticmethod
    def total(parts: Iterable[Lag]) -> Lag:
        """Of several partitions: messages and bytes together, and the oldest."""
        every = list(parts)
        return Lag(
            sum(each.messages for each in every),
            sum(each.bytes for each in every),
            max((each.seconds for each in every), default=0.0),
        )


def lag_behind(log: Log, offset: int, now_ns: int) -> Lag:
    """From `offset` to the end of a partition; what retention took does not count."""
    bounds = log.bounds()
    first = max(offset, bounds.start)
    if first >= bounds.end:
        return Lag(0, 0, 0.0)
    return Lag(bounds.end - first, _bytes_behind(log, first, bounds), _age(log, first, now_ns))


def _bytes_behind(log: Log, offset: int, bounds: Bounds) -> int:
    bases = [base for base in log.segments.bases() if base <= bounds.segment]
    at = max(bisect_right(bases, offset) - 1, 0)
    total = 0
    for base in bases[at:]:
        try:
            total += _segment_bytes(log, base, offset, bounds)
        except (FileNotFoundError, DataError):
            continue  # vacuumed away meanwhile, or damaged: reading tells
    return total


def _segment_bytes(log: Log, base: int, offset: int, bounds: Bounds) -> int:
    """How much of a segment lies behind an offset."""
    if base == bounds.segment:
        begin = log.segments.active(base).locate(offset, bounds.byte)[1] if offset > base else 0
        return max(0, bounds.byte - begin)
    if offset <= base:
        return file_bytes(log.folder, base)
    index = log.segments.sealed(base).index
    number = index.find(offset)
    return max(0, index.data_bytes - (index.bytes[number] if number >= 0 else 0))


def _age(log: Log, offset: int, now_ns: int) -> float:
    try:
        rows = log.cursor(offset).read(1, 1)
    except (DataError, OutOfRange):
        return 0.0
    if not rows:
        return 0.0
    return max(0, now_ns - rows[0].messages()[0].written_at) / NANOSECONDS
