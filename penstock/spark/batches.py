"""A slice as record batches of a size that suits Spark: small frames put together, large ones divided.

A batch costs Spark about as much as a few hundred rows, and one that is too large is held in memory
twice; between 4 and 16 thousand rows both are small.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa

from penstock.errors import DataError
from penstock.lake.cut import Stretch
from penstock.options import MIB
from penstock.spark.bodies import Outside
from penstock.spark.columns import Table
from penstock.spark.planning import Slice
from penstock.spark.segments import FramePart, parts
from penstock.spark.singles import Singles

logger = logging.getLogger("penstock.spark")

ROWS_LEAST = 4096
ROWS_MOST = 16384
#: A batch of large values is closed earlier.
_BYTES_ENOUGH = 8 * MIB


def read(
    planned: Slice, columns: Mapping[str, bool], *, null_undecodable: bool = False, fetched: bool = True
) -> Iterator[pa.RecordBatch]:
    """The messages of a slice, in order, as record batches.

    `columns` are their names, in order, and whether the schema says that they may be null. A value that
    cannot be decoded raises, or is null. One that lies outside the log is fetched, or told by where it lies.
    """
    outside = Outside(planned.bodies, fetched=fetched and "value" in columns)
    table = Table(columns, topic=planned.topic, partition=planned.partition, outside=outside)
    make = partial(_lenient, table) if null_undecodable else table.batch
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch, weight in _made(planned, table, outside, make):
        waiting.append(batch)
        rows += batch.num_rows
        size += weight
        if rows >= ROWS_LEAST or size >= _BYTES_ENOUGH:
            yield from _divided(_together(waiting))
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _together(waiting)


def _made(
    planned: Slice, table: Table, outside: Outside, make: Callable[[FramePart | Singles], pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Record batches as they come, from the log or from an archive, and about how many bytes they are."""
    for part in parts(planned):
        if isinstance(part, Stretch):
            yield from ((batch, batch.nbytes) for batch in _archived(planned, part, table))
        elif isinstance(part, FramePart):
            yield from ((make(portion), weight) for portion, weight in outside.portions(part))
        else:
            yield make(part), part.bytes


def _archived(planned: Slice, part: Stretch, table: Table) -> Iterator[pa.RecordBatch]:
    """Messages that lie in a file of an archive."""
    from penstock.lake import reading  # whoever reads no archive need not load it

    assert planned.table is not None
    rows = reading.read(
        planned.table, part.file, start=part.base, stop=part.stop, columns=table.archived_columns
    )
    return map(table.archived, rows)


def _lenient(table: Table, part: FramePart | Singles) -> pa.RecordBatch:
    """The same with nulls for values that cannot be decoded; only frames that hold one are slower."""
    try:
        return table.batch(part)
    except DataError:
        if isinstance(part, Singles):
            raise
    made = []
    for at in range(part.first, part.stop):
        one = part._replace(first=at, stop=at + 1)
        try:
            made.append(table.batch(one))
        except DataError as error:
            logger.warning("a value is null, since it cannot be decoded: %s", error)
            made.append(table.batch(one, values=False))
    return pa.concat_batches(made)


def _together(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _divided(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for first in range(0, batch.num_rows, ROWS_MOST):
        yield batch.slice(first, ROWS_MOST)
