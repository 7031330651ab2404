"""The Parquet files of an archive: written, read and merged with pyarrow alone, so that executors can.

Only neighbours are merged, in offset order, of one partition and one day; so a table that was
compacted reads as before, with fewer files. (`optimize.compact` and `z_order` of deltalake would mix
partitions and destroy the order: never use them on an archive.)

Sizes go by steps of eight, and small neighbours are merged when that takes them over a step: so a message is
rewritten a few times at most, however often little is added. A day that has ended, to which nothing is added
any more, is merged whole.
"""

from __future__ import annotations

import datetime
import os
import socket
import uuid
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain, groupby
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.errors import DataError, NotATable, PenstockError, Unavailable
from penstock.lake.compress import LEVEL, compressions
from penstock.lake.layout import DATE, RAW_SCHEMA, WITH_STATISTICS, LakeFile, in_files
from penstock.lake.storage import Storage, first_line, writing_to
from penstock.parse import KIB, MIB

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
    """Raise an error of the disk, the network or the file as one of the table."""
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


#: Large enough for readers to stream, small enough that a scan with a limit reads little.
FILE_BYTES = 128 * MIB
#: What is held in memory of a file, before compression; also how finely offsets can be looked up in it.
_GROUP_BYTES = 16 * MIB
_GROUP_ROWS = 256 * 1024

#: Few different values each; a dictionary of keys and values would cost and gain nothing.
_REPEATING = (
    "partition", "timestamp_nanos", "written_at_nanos", "producer_id", "group", "codec",
    "headers.key_value.key",
)  # fmt: skip
#: Neighbours are close together.
_ASCENDING = ("offset", "timestamp", "written_at", "seqno")


class FileTarget(NamedTuple):
    """The files that a task is to write: where, and for which messages."""

    storage: Storage
    #: The table's columns.
    schema: pa.Schema
    partition: int
    file_bytes: int = FILE_BYTES


def write(batches: Iterable[pa.RecordBatch], target: FileTarget) -> list[LakeFile]:
    """Write messages of one partition, given in offset order, and return the files they are in.

    The files are on the disk when this returns. When it fails, none of them stays.
    """
    written: list[LakeFile] = []
    file: _File | None = None
    try:
        for date, batch in _by_day(batches):
            if file is not None and (file.date != date or file.size >= target.file_bytes):
                written.append(file.finish())
                file = None
            if file is None:
                file = _File(target, date, batch.column("offset")[0].as_py())
            file.add(batch)
        if file is not None:
            written.append(file.finish())
    except BaseException as error:
        try:
            if file is not None:
                file.abandon(error)
        finally:
            target.storage.delete(each.path for each in written)
        raise
    return written


def new_path(date: datetime.date, partition: int, first: int) -> str:
    """A name that nobody has used: ours by its beginning, and readable."""
    return f"date={date.isoformat()}/penstock-{partition:06d}-{first:020d}-{uuid.uuid4().hex}.parquet"


def is_ours(path: str) -> bool:
    """Whether a file below a table's root has a name of ours."""
    folder, _, name = path.rpartition("/")
    return folder.startswith("date=") and name.startswith("penstock-") and name.endswith(".parquet")


def _by_day(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[datetime.date, pa.RecordBatch]]:
    """Batches cut where the day changes; a clock that was set back may change it to and fro."""
    for batch in batches:
        days = batch.column("written_at").cast(pa.date32())
        bounds = pc.min_max(days).as_py()
        if bounds["min"] == bounds["max"]:
            if bounds["min"] is not None:
                yield bounds["min"], batch
            continue
        ends = pc.run_end_encode(days)
        first = 0
        for stop, day in zip(ends.run_ends.to_pylist(), ends.values.to_pylist(), strict=True):
            yield day, batch.slice(first, stop - first)
            first = stop


class _File:
    """A file that is being written."""

    def __init__(self, target: FileTarget, date: datetime.date, first: int) -> None:
        self.date = date
        self._path = new_path(date, target.partition, first)
        self._target = target
        self._schema = in_files(target.schema)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._known = _Known()
        self._open = ExitStack()
        self._stream = self._open.enter_context(target.storage.create(self._path))
        self._writer: pq.ParquetWriter | None = None

    @property
    def size(self) -> int:
        """About how large it is by now."""
        return int(self._stream.tell()) + self._waiting_bytes

    def add(self, batch: pa.RecordBatch) -> None:
        self._known.add(batch)
        self._waiting.append(batch.select(self._schema.names))
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= _GROUP_BYTES or self._waiting_rows >= _GROUP_ROWS:
            self._flush()

    def finish(self) -> LakeFile:
        """Complete it; on the disk when this returns."""
        self._flush()
        assert self._writer is not None  # a file is made for rows that are there
        with writing_to(self._target.storage):
            self._writer.close()
        size = int(self._stream.tell())
        self._open.close()
        return self._known.file(self._path, self.date, self._target.partition, size)

    def abandon(self, error: BaseException) -> None:
        """Leave nothing of it."""
        if self._writer is not None:
            with suppress(Exception):
                self._writer.close()  # else it tries again when it is collected
        self._open.__exit__(type(error), error, error.__traceback__)

    def _flush(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting, schema=self._schema)
            with writing_to(self._target.storage):
                if self._writer is None:
                    self._writer = pq.ParquetWriter(self._stream, self._schema, **parquet_options(table))
                self._writer.write_table(table, row_group_size=table.num_rows)
            self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0


class _Known:
    """What the table will say about a file: its range, rows and times."""

    def __init__(self) -> None:
        self._first = self._last = -1
        self._rows = 0
        self._timestamps: tuple[int, int] | None = None
        self._written: tuple[int, int] | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        offsets = batch.column("offset")
        if not self._rows:
            self._first = offsets[0].as_py()
        self._last = offsets[-1].as_py()
        self._rows += batch.num_rows
        self._timestamps = _wider(self._timestamps, batch.column("timestamp"))
        self._written = _wider(self._written, batch.column("written_at"))

    def file(self, path: str, date: datetime.date, partition: int, size: int) -> LakeFile:
        assert self._timestamps is not None
        assert self._written is not None
        return LakeFile(
            path, date, partition, self._first, self._last + 1, self._rows, size, self._timestamps,
            self._written,
        )  # fmt: skip


def _wider(known: tuple[int, int] | None, times: pa.Array) -> tuple[int, int]:
    bounds = pc.min_max(times.cast(pa.int64())).as_py()
    if known is None:
        return bounds["min"], bounds["max"]
    return min(known[0], bounds["min"]), max(known[1], bounds["max"])


def parquet_options(rows: pa.Table) -> dict[str, Any]:
    """How a file is encoded whose first rows are these."""
    columns, compression = rows.schema.names, compressions(rows)
    return {
        "compression": compression,
        "compression_level": {path: LEVEL for path, name in compression.items() if name != "none"},
        "use_dictionary": [name for name in _REPEATING if name.split(".")[0] in columns],
        "column_encoding": {name: "DELTA_BINARY_PACKED" for name in _ASCENDING if name in columns},
        "write_statistics": list(WITH_STATISTICS),
        "store_schema": False,
    }


_STEP = 8
_FIRST_STEP_BYTES = 16 * KIB


def chosen(files: Sequence[LakeFile], file_bytes: int) -> list[list[LakeFile]]:
    """Neighbours that are worth putting together, each list into one file of about `file_bytes` at most.

    `files` are in the order of partition and offset.
    """
    found: list[list[LakeFile]] = []
    for _, partition in groupby(files, key=lambda each: each.partition):
        days = [list(day) for _, day in groupby(partition, key=lambda each: each.date)]
        for day in days[:-1]:
            found += [run for run in _runs(day, file_bytes // 2, file_bytes) if len(run) > 1]
        found += _of_present_day(days[-1], file_bytes)
    return found


def merge(files: Sequence[LakeFile], target: FileTarget) -> list[LakeFile]:
    """Write the rows of neighbouring files into new ones; raises `DataError` unless all are there."""
    rows = chain.from_iterable(read(target.storage, each, schema=target.schema) for each in files)
    made = write(rows, target)
    before, after = (sum(each.rows for each in some) for some in (files, made))
    if before != after:
        target.storage.delete(each.path for each in made)
        raise DataError(
            f"{before} rows were to be put together in {target.storage.uri}, and {after} were found",
            hint="the table is as it was; a file of it holds other rows than the table says",
        )
    return made


def _of_present_day(day: Sequence[LakeFile], file_bytes: int) -> list[list[LakeFile]]:
    """Choose neighbours of the day that still grows: those that together reach the lowest step they can."""
    step = _FIRST_STEP_BYTES
    while True:
        step = min(step, file_bytes // 2)
        found = [run for run in _runs(day, step, file_bytes) if len(run) > 1 and _bytes(run) >= step]
        if found or step == file_bytes // 2:
            return found
        step *= _STEP


def _runs(day: Sequence[LakeFile], limit: int, file_bytes: int) -> Iterator[list[LakeFile]]:
    """Neighbours below the limit, cut so that each run fits into one file."""
    run: list[LakeFile] = []
    for file in day:
        is_small = file.bytes < limit
        if run and (not is_small or _bytes(run) + file.bytes > file_bytes):
            yield run
            run = []
        if is_small:
            run.append(file)
    if run:
        yield run


def _bytes(files: Sequence[LakeFile]) -> int:
    return sum(each.bytes for each in files)
