"""What the driver finds out before a query runs: the topic, its bounds, and the segments to read.

Only here does the source open a store, read-only, and closes it again at once.
"""

from __future__ import annotations

from penstock.errors import InvalidOption, NotAStore, OffsetAhead, OffsetTrimmed, OutOfRange
from penstock.log.folder import file_bytes
from penstock.log.log import Log
from penstock.log.view import Bounds
from penstock.options import Spot
from penstock.spark.options import Offsets, ReadOptions
from penstock.spark.planning import Piece, Slice
from penstock.store import Store, open_store
from penstock.topic.partitions import Partitions


def check_topic(options: ReadOptions) -> None:
    """Raise `NotAStore` or `UnknownTopic` now, rather than when the query runs."""
    with _opened(options) as store:
        store.topic(options.topic)


def survey(options: ReadOptions) -> list[Slice]:
    """Every partition with what is to be read of it; "latest" is fixed at this moment.

    Raises `OutOfRange` for an offset that retention took or that is not written yet.
    """
    with _opened(options) as store:
        partitions = store.topic(options.topic)._partitions
        for offsets in (options.starting, options.ending):
            _check_partitions(offsets, partitions)
        return [_whole(log, partitions, options) for log in partitions.logs()]


def _opened(options: ReadOptions) -> Store:
    try:
        return open_store(options.store, read_only=True)
    except NotAStore as error:
        error.hint = "load(…) takes the folder of a store"
        raise


def _check_partitions(offsets: Offsets, partitions: Partitions) -> None:
    for number in offsets.each:
        if number >= len(partitions):
            raise InvalidOption(
                f"topic {partitions.name!r} has no partition {number}",
                hint=f"they are 0 to {len(partitions) - 1}",
            )


def _whole(log: Log, partitions: Partitions, options: ReadOptions) -> Slice:
    bounds, pieces = _segments(log)
    start = _offset(log, bounds, options.starting.of(log.partition), partitions.name)
    stop = _offset(log, bounds, options.ending.of(log.partition), partitions.name)
    if start > stop:
        raise InvalidOption(
            f"partition {log.partition} of {partitions.name!r} would begin at {start} and end at {stop}",
            hint="startingOffsets must not lie behind endingOffsets",
        )
    return Slice(
        options.store, log.folder.path, partitions.name, partitions.record.id, log.partition,
        start, stop, pieces,
    )  # fmt: skip


def _segments(log: Log) -> tuple[Bounds, tuple[Piece, ...]]:
    """The partition's bounds, and all segments within them."""
    while True:
        bounds = log.bounds()
        bases = [base for base in log.view.segments() if base <= bounds.segment]
        sizes = [bounds.byte if base == bounds.segment else file_bytes(log.folder, base) for base in bases]
        # A vacuum moves the start before it removes a segment: an unmoved start means none is missing.
        if log.bounds().start == bounds.start:
            stops = [*bases[1:], bounds.end]
            return bounds, tuple(map(Piece, bases, stops, sizes))


def _offset(log: Log, bounds: Bounds, spot: Spot, topic: str) -> int:
    if spot.kind == "earliest":
        return bounds.start
    if spot.kind == "latest":
        return bounds.end
    error: OutOfRange
    where = f"offset {spot.value} of {topic!r} partition {log.partition}"
    if spot.value < bounds.start:
        error = OffsetTrimmed(
            f"{where} is gone: the first one left is {bounds.start}",
            partition=log.partition, offset=spot.value, first=bounds.start,
        )  # fmt: skip
        error.hint = 'startingOffsets="earliest" begins at what is left'
        raise error
    if spot.value > bounds.end:
        error = OffsetAhead(
            f"{where} is beyond the end ({bounds.end})",
            partition=log.partition, offset=spot.value, end=bounds.end,
        )  # fmt: skip
        error.hint = 'endingOffsets="latest" ends at what is there'
        raise error
    return spot.value
