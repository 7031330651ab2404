"""Files of an archive as record batches, in offset order. Needs pyarrow alone, so executors can do it."""

from __future__ import annotations

import os
import socket
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import DataError, NotATable, PenstockError, Unavailable
from penstock.lake.layout import DATE, RAW_SCHEMA, LakeFile
from penstock.lake.storage import Storage, first_line

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
    not have yet is null. Raises `Unavailable` when the file was vacuumed since the table was looked at,
    `NotATable` when the whole table is not there, `DataError` when the file is damaged.
    """
    wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
    stop = file.stop if stop is None else stop
    with (
        _told(place, file),
        place.open(file.path) as source,
        pq.ParquetFile(source, pre_buffer=not place.is_local) as parquet,
    ):
        there = set(parquet.schema_arrow.names)
        names = [name for name in ("offset", *wanted.names) if name in there]
        groups = _groups(parquet, start, stop)
        for batch in parquet.iter_batches(
            BATCH_ROWS, row_groups=groups, columns=list(dict.fromkeys(names)), use_threads=False
        ):
            part = _between(batch, start, stop)
            if part.num_rows:
                yield _shaped(part, wanted, file)


@contextmanager
def _told(place: Storage, file: LakeFile) -> Iterator[None]:
    """Within this, an error of the disk, the network or the file is told as one of the table."""
    try:
        yield
    except FileNotFoundError:
        raise _missing(place, file) from None
    except OSError as error:
        raise Unavailable(
            f"{file.path} of the table {place.uri} cannot be read: {first_line(error)}",
            hint="check storage_options and the server, then run it again",
        ) from error
    except pa.ArrowInvalid as error:
        raise DataError(
            f"{file.path} of the table {place.uri} is damaged: {first_line(error)}",
            hint=f"leave out offsets {file.first} to {file.stop - 1} of partition {file.partition}",
        ) from error


def _missing(place: Storage, file: LakeFile) -> PenstockError:
    if place.is_local and not os.path.isdir(os.path.join(place.uri, "_delta_log")):
        return NotATable(
            f"{socket.gethostname()} does not see the table {place.uri}",
            hint="it was deleted, or it lies under another path here: executors read the files themselves",
        )
    return Unavailable(
        f"{file.path} is no longer in the table {place.uri}",
        hint="it was compacted, and vacuumed since: run it again",
    )


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
