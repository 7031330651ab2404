"""How a topic is divided among Spark's tasks: plain functions, no Spark and no files.

    partition 0   [──── segment 0 ────][──── segment 812 ────][── segment 1630 (active) ──
    range              └start                                              └stop
    slices             └──── task ─────┘└─────── task ────────┘└── task ───┘

A slice is a range of offsets and the segments it lies in; it is all that an executor is told. Cuts may
fall anywhere: wherever they do, the slices together hold each offset of the range once, in order.

What the log has no longer may lie in the files of an archive: then there are slices of those, too, divided
in the same way. No slice is of both.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heapreplace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from penstock.lake.cut import Stretch
from penstock.parse import KIB, MIB

if TYPE_CHECKING:
    from penstock.lake.storage import Storage
    from penstock.spark.source.body_places import BodyPlaces


#: A task costs tens of milliseconds whatever it reads, so it should have this much to do …
TASK_BYTES_LEAST = 64 * MIB
#: … and no more than this, or one straggler holds up the query.
TASK_BYTES_MOST = 256 * MIB
#: Between the two, this many tasks keep a machine's cores busy …
_TASKS_WANTED = 32
#: … or, where it is known how many those are, so many each.
_TASKS_A_CORE = 3
#: With more slices than this, small ones share a task.
_TASKS_MOST = 64
#: What opening the files of a slice costs, as bytes that could be read instead.
_SLICE_BYTES = 256 * KIB


class SegmentRange(NamedTuple):
    """A segment as the driver saw it."""

    #: First offset; names the file.
    base: int
    #: The offset behind its last.
    stop: int
    #: Up to here the file held frames.
    bytes: int


class Slice(NamedTuple):
    """Offsets `start` to `stop` of one partition, and where they lie: all that a task is told."""

    store: str
    folder: str
    topic: str
    topic_id: int
    partition: int
    start: int
    stop: int
    pieces: tuple[SegmentRange | Stretch, ...]
    #: What retention removed for good meanwhile is skipped; else it is an error.
    may_skip: bool = False
    #: Where the files of an archive lie.
    table: Storage | None = None
    #: Of a slice of the log: the same offsets in the archive, as far as it has them, without gaps. They are
    #: used when retention removes segments before they are read.
    spare: tuple[Stretch, ...] = ()
    #: Where values lie that are too large for the log.
    bodies: BodyPlaces | None = None


_Piece = TypeVar("_Piece", bound=SegmentRange | Stretch)


class _Run(NamedTuple):
    """Offsets within one piece, and how many bytes they are likely to be."""

    piece: SegmentRange | Stretch
    start: int
    stop: int
    bytes: int


def divided(wholes: Sequence[Slice], least: int = 0, cores: int = 0) -> list[Slice]:
    """Divide whole partitions into tasks of a good size, in order: `least` of them if there is enough.

    `cores` is how many tasks can run at the same time; 0 when that is not known.
    """
    runs = [list(_runs(whole)) for whole in wholes]
    target = task_bytes(sum(run.bytes for each in runs for run in each), cores)
    slices = [
        part(whole, packed[0].start, packed[-1].stop)
        for whole, each in zip(wholes, runs, strict=True)
        for packed in _packed(each, target)
    ]
    return _multiplied(slices, least)


def bundled(slices: Sequence[Slice], least: int = 0) -> list[tuple[Slice, ...]]:
    """Small slices put together, in order, so that there are not many more tasks than keep a cluster busy.

    A task costs Spark tens of milliseconds: a topic of a thousand partitions with little in each would
    take longer to start than to read.
    """
    most = max(least, _TASKS_MOST)
    if len(slices) <= most:
        return [(each,) for each in slices]
    weights = [sum(run.bytes for run in _runs(each)) + _SLICE_BYTES for each in slices]
    share = sum(weights) / most
    found: list[tuple[Slice, ...]] = []
    waiting: list[Slice] = []
    behind = 0
    for left, (each, weight) in zip(
        range(len(slices), 0, -1), zip(slices, weights, strict=True), strict=True
    ):
        waiting.append(each)
        behind += weight
        if behind >= share * (len(found) + 1) or left <= most - len(found) - 1:
            found.append(tuple(waiting))
            waiting = []
    return [*found, tuple(waiting)] if waiting else found


def part(whole: Slice, start: int, stop: int) -> Slice:
    """The offsets of a slice from `start` up to `stop`, told of no more files than that needs."""
    return whole._replace(
        start=start, stop=stop,
        pieces=_within(whole.pieces, start, stop), spare=_within(whole.spare, start, stop),
    )  # fmt: skip


def instead(planned: Slice, start: int, stop: int) -> tuple[Stretch, ...]:
    """Where an archive has a range that the log has lost meanwhile; nowhere unless it has all of it."""
    spare = _within(planned.spare, start, stop)
    if not spare or spare[0].base > start or spare[-1].stop < stop:
        return ()
    return tuple(each._replace(base=max(each.base, start), stop=min(each.stop, stop)) for each in spare)


def clipped(pieces: Sequence[SegmentRange], start: int) -> tuple[SegmentRange, ...]:
    """Segments as if they held offsets from `start` on only: to be weighed, not to be read."""
    runs = _runs_in(pieces, start, pieces[-1].stop) if pieces else ()
    return tuple(SegmentRange(run.start, run.stop, run.bytes) for run in runs)


def range_bytes(pieces: Sequence[SegmentRange | Stretch], start: int, stop: int) -> int:
    """How many bytes a range of offsets is likely to be."""
    return sum(run.bytes for run in _runs_in(pieces, start, stop))


def reach(pieces: Sequence[SegmentRange | Stretch], start: int, stop: int, budget: int) -> int:
    """How far one comes from `start` towards `stop` with so many bytes, about; one message at least."""
    at = start
    for run in _runs_in(pieces, start, stop):
        if run.bytes > budget:
            at = run.start + (run.stop - run.start) * budget // run.bytes
            break
        at, budget = run.stop, budget - run.bytes
    else:
        return stop
    return min(max(at, start + 1), stop)


def task_bytes(total: int, cores: int = 0) -> int:
    """How much a task should read when all of them read `total`."""
    wanted = cores * _TASKS_A_CORE or _TASKS_WANTED
    return min(max(total // wanted, TASK_BYTES_LEAST), TASK_BYTES_MOST)


def _runs(whole: Slice) -> Iterator[_Run]:
    return _runs_in(whole.pieces, whole.start, whole.stop)


def _runs_in(pieces: Sequence[SegmentRange | Stretch], start: int, stop: int) -> Iterator[_Run]:
    """The part of each segment or file that lies in the range."""
    for piece in pieces:
        first, last = max(piece.base, start), min(piece.stop, stop)
        if first < last:
            yield _Run(piece, first, last, piece.bytes * (last - first) // (piece.stop - piece.base))


def _packed(runs: Iterable[_Run], target: int) -> Iterator[list[_Run]]:
    """Neighbouring runs put together up to `target` bytes, and large ones divided."""
    waiting: list[_Run] = []
    weight = 0
    for run in runs:
        for part in _cut(run, target):
            if waiting and weight + part.bytes > target:
                yield waiting
                waiting, weight = [], 0
            waiting.append(part)
            weight += part.bytes
    if waiting:
        yield waiting


def _cut(run: _Run, target: int) -> Iterator[_Run]:
    count = min(max(round(run.bytes / target), 1), run.stop - run.start)
    cuts = [run.start + (run.stop - run.start) * i // count for i in range(count + 1)]
    for start, stop in pairwise(cuts):
        yield run._replace(start=start, stop=stop, bytes=run.bytes // count)


def _multiplied(slices: list[Slice], least: int) -> list[Slice]:
    """Cut until there are `least`, the ones with the most messages first; order is kept."""
    counts = [1] * len(slices)
    sizes = [each.stop - each.start for each in slices]
    heap = [(-size, place) for place, size in enumerate(sizes)]
    heapify(heap)
    for _ in range(min(least, sum(sizes)) - len(slices)):
        place = heap[0][1]
        counts[place] += 1
        heapreplace(heap, (-sizes[place] // counts[place], place))  # the largest part, rounded up
    return [part for each, count in zip(slices, counts, strict=True) for part in _equal_parts(each, count)]


def _equal_parts(whole: Slice, count: int) -> Iterator[Slice]:
    cuts = [whole.start + (whole.stop - whole.start) * i // count for i in range(count + 1)]
    for start, stop in pairwise(cuts):
        yield part(whole, start, stop)


def _within(pieces: tuple[_Piece, ...], start: int, stop: int) -> tuple[_Piece, ...]:
    """Keep the pieces in which offsets of the range may lie; they are in order."""
    if start >= stop:
        return ()
    first = bisect_right(pieces, start, key=lambda each: each.stop)
    return pieces[first : bisect_left(pieces, stop, key=lambda each: each.base)]
