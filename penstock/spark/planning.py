"""How a topic is divided among Spark's tasks: plain functions, no Spark and no files.

    partition 0   [──── segment 0 ────][──── segment 812 ────][── segment 1630 (active) ──
    range              └start                                              └stop
    slices             └──── task ─────┘└─────── task ────────┘└── task ───┘

A slice is a range of offsets and the segments it lies in; it is all that an executor is told. Cuts may
fall anywhere: wherever they do, the slices together hold each offset of the range once, in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from penstock.options import MIB

#: A task costs tens of milliseconds whatever it reads, so it should have this much to do …
TASK_BYTES_LEAST = 64 * MIB
#: … and no more than this, or one straggler holds up the query.
TASK_BYTES_MOST = 256 * MIB
#: Between the two, this many tasks keep a machine's cores busy.
_TASKS_WANTED = 32


class Piece(NamedTuple):
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
    pieces: tuple[Piece, ...]


class _Run(NamedTuple):
    """Offsets within one piece, and how many bytes they are likely to be."""

    piece: Piece
    start: int
    stop: int
    bytes: int


def divided(wholes: Sequence[Slice]) -> list[Slice]:
    """Divide whole partitions into tasks of a good size, in order."""
    runs = [list(_runs(whole)) for whole in wholes]
    target = task_bytes(sum(run.bytes for each in runs for run in each))
    return [
        whole._replace(start=packed[0].start, stop=packed[-1].stop, pieces=tuple(run.piece for run in packed))
        for whole, each in zip(wholes, runs, strict=True)
        for packed in _packed(each, target)
    ]


def task_bytes(total: int) -> int:
    """How much a task should read when all of them read `total`."""
    return min(max(total // _TASKS_WANTED, TASK_BYTES_LEAST), TASK_BYTES_MOST)


def _runs(whole: Slice) -> Iterator[_Run]:
    """The part of each segment that lies in the range."""
    for piece in whole.pieces:
        start, stop = max(piece.base, whole.start), min(piece.stop, whole.stop)
        if start < stop:
            yield _Run(piece, start, stop, piece.bytes * (stop - start) // (piece.stop - piece.base))


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
