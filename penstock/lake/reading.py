"""Files of an archive as record batches, in offset order. Needs pyarrow alone, so executors can do it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import Unavailable
from penstock.lake.layout import DATE, RAW_SCHEMA, LakeFile
from penstock.lake.storage import Storage

#: About what suits Spark; see penstock/spark/batches.py.
BATCH_ROWS = 16384


def read(
    place: Storage,
    file: LakeFile,
    *,
    start: int = 0,
    stop: int | None = None,
    columns: Sequence[str] | None = None,
    schema: pa.Schema = RAW_SCHEMA,
) -> Iterator[pa.RecordBatch]:
    """The messages of a file with offsets from `start` up to `stop`, in offset order.

    `columns` chooses and orders those of `schema`, all of them by default; a column that the file does
    not have yet is null. Raises `Unavailable` when the file was vacuumed since the table was looked at.
    """
    wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
    stop = file.stop if stop is None else stop
    try:
        source = place.open(file.path)
    except FileNotFoundError:
        raise Unavailable(
            f"{file.path} is no longer in the table {place.uri}", hint="it was compacted; look again"
        ) from None
    with source, pq.ParquetFile(source, pre_buffer=not place.is_local) as parquet:
        there = set(parquet.schema_arrow.names)
        names = [name for name in ("offset", *wanted.names) if name in there]
        groups = _groups(parquet, start, stop)
        for batch in parquet.iter_batches(
            BATCH_ROWS, row_groups=groups, columns=list(dict.fromkeys(names)), use_threads=False
        ):
            part = _between(batch, start, stop)
            if part.num_rows:
                yield _shaped(part, wanted, file)


def _groups(parquet: pq.ParquetFile, start: int, stop: int) -> list[int]:
    """The row groups in which offsets of the range lie."""
    leaves = [parquet.schema.column(number).path for number in range(len(parquet.schema))]
    leaf = leaves.index("offset")
    found = []
    for number in range(parquet.num_row_groups):
        known = parquet.metadata.row_group(number).column(leaf).statistics
        if known is None or not known.has_min_max or (known.max >= start and known.min < stop):
            found.append(number)
    return found


def _between(batch: pa.RecordBatch, start: int, stop: int) -> pa.RecordBatch:
    offsets = batch.column("offset")
    first = bisect_left(range(len(offsets)), start, key=lambda at: offsets[at].as_py())
    last = bisect_left(range(len(offsets)), stop, lo=first, key=lambda at: offsets[at].as_py())
    return batch if last - first == batch.num_rows else batch.slice(first, last - first)


def _shaped(batch: pa.RecordBatch, wanted: pa.Schema, file: LakeFile) -> pa.RecordBatch:
    there = set(batch.schema.names)
    arrays = []
    for field in wanted:
        if field.name == DATE:
            arrays.append(pa.repeat(pa.scalar(file.date, pa.date32()), batch.num_rows))
        elif field.name in there:
            arrays.append(batch.column(field.name).cast(field.type))
        else:
            arrays.append(pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)
