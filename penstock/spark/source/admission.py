"""How far a micro-batch may go: plain functions, no Spark and no files.

Everything here is about positions: for each partition of each topic the next offset to read. A partition
that is not among them has not been read yet and begins at 0.

Parents come before children: a partition that came of a split, or was added later, opens in the batch after
the one that drained its parents up to the gate, which is where they ended then. So no batch holds messages of
both sides of a gate, and a key that moved keeps its order, also where an operator keeps state by key.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from penstock.lake.cut import NOTHING, Held, first_offset, shared

#: Topic and partition.
Part = tuple[str, int]
Positions = Mapping[Part, int]
#: For a partition added later: which of its topic's partitions must have been read how far.
Gates = Mapping[Part, Mapping[int, int]]
#: What an archive has of each partition.
Holdings = Mapping[Part, Held]

_Thing = TypeVar("_Thing", bound=Hashable)


class Extent(NamedTuple):
    """What can be read of a partition: offsets from `start` up to `end`."""

    start: int
    end: int


class Loss(NamedTuple):
    """Offsets that retention took before they were read."""

    topic: str
    partition: int
    first: int
    stop: int

    def __str__(self) -> str:
        return f"{self.topic!r} partition {self.partition}, offsets {self.first} to {self.stop - 1}"


class Reading(NamedTuple):
    """A range of one partition."""

    part: Part
    start: int
    stop: int


def is_open(part: Part, begin: Positions, gates: Gates) -> bool:
    """Whether all parents of a partition, and theirs, were drained up to the gates before this batch."""
    left, seen = [part], {part}
    while left:
        for number, gate in gates.get(left.pop(), {}).items():
            parent = part[0], number
            if begin.get(parent, 0) < gate:
                return False
            if parent not in seen:
                seen.add(parent)
                left.append(parent)
    return True


def available(begin: Positions, extents: Mapping[Part, Extent], gates: Gates) -> list[Reading]:
    """What could be read next of each open partition, where there is something.

    A position beyond the end, which an unsynced topic may have after a power cut, just waits.
    """
    readings = [
        Reading(part, max(begin.get(part, 0), extent.start), extent.end)
        for part, extent in sorted(extents.items())
        if is_open(part, begin, gates)
    ]
    return [each for each in readings if each.stop > begin.get(each.part, 0)]


def losses(begin: Positions, extents: Mapping[Part, Extent], archived: Holdings) -> list[Loss]:
    """What retention took from under the positions, and is in no archive either."""
    return [
        Loss(*part, *span)
        for part, extent in sorted(extents.items())
        for span in shared(begin.get(part, 0), extent.start, archived.get(part, NOTHING), extent.start).lost
    ]


def joined(extents: Mapping[Part, Extent], archived: Holdings) -> dict[Part, Extent]:
    """The extents of logs and archive as one."""
    return {
        part: Extent(first_offset(archived.get(part, NOTHING), extent.start), extent.end)
        for part, extent in extents.items()
    }


def limited_rows(readings: Sequence[Reading], limit: int | None, turn: int) -> list[Reading]:
    """Cut readings to at most `limit` messages in all, each partition its share."""
    if limit is None:
        return list(readings)
    given = shares(limit, {each.part: each.stop - each.start for each in readings}, turn)
    return [each._replace(stop=each.start + given[each.part]) for each in readings]


def limited_bytes(
    readings: Sequence[Reading],
    limit: int | None,
    turn: int,
    weigh: Callable[[Reading], int],
    reach: Callable[[Reading, int], int],
) -> list[Reading]:
    """Cut readings to about `limit` bytes in all; one message at least, or nothing would ever move.

    `weigh` says how many bytes a range is, `reach` how far one comes in it with so many.
    """
    if limit is None:
        return list(readings)
    given = shares(limit, {each.part: max(weigh(each), 1) for each in readings}, turn)
    return [
        each._replace(stop=reach(each, given[each.part]) if given[each.part] else each.start)
        for each in readings
    ]


def shares(limit: int, sizes: Mapping[_Thing, int], turn: int) -> dict[_Thing, int]:
    """Divide `limit` in proportion to `sizes`; nobody gets more than their size, all of it is used.

    Everyone gets one first, so that a small one is not starved by a large one that keeps growing. Where
    `limit` does not suffice for that, `turn` says who comes first; it should change with every call.
    """
    if sum(sizes.values()) <= limit:
        return dict(sizes)
    order = _rotated([thing for thing, size in sizes.items() if size], turn)
    given = dict.fromkeys(sizes, 0) | dict.fromkeys(order[:limit], 1)
    left = limit - min(limit, len(order))
    wanted = {thing: sizes[thing] - 1 for thing in order}
    total = sum(wanted.values())
    if left:
        for thing, size in wanted.items():
            given[thing] += left * size // total
    rest = limit - sum(given.values())
    for thing in order:
        if rest and given[thing] < sizes[thing]:
            given[thing] += 1
            rest -= 1
    return given


def moved(begin: Positions, readings: Iterable[Reading]) -> dict[Part, int]:
    """Positions behind these ranges; those that read nothing stay, and new ones stay out."""
    return {**begin, **{each.part: each.stop for each in readings if each.stop > begin.get(each.part, 0)}}


def between(begin: Positions, end: Positions) -> list[Reading]:
    """What a batch from `begin` to `end` reads."""
    return [
        Reading(part, begin.get(part, 0), stop)
        for part, stop in sorted(end.items())
        if stop > begin.get(part, 0)
    ]


def capped(extents: Mapping[Part, Extent], target: Positions) -> dict[Part, Extent]:
    """The extents as if nothing had come since `target` was taken, and no partition either."""
    return {
        part: Extent(extent.start, max(min(extent.end, target[part]), extent.start))
        for part, extent in extents.items()
        if part in target
    }


def _rotated(things: Sequence[_Thing], turn: int) -> list[_Thing]:
    first = turn % len(things) if things else 0
    return [*things[first:], *things[:first]]
