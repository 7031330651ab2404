"""Messages into Parquet files that an archive can name: one partition, one day, offset order.

    batches of a slice  ─►  cut where the day changes  ─►  row groups  ─►  files of about the wanted size

A file's name is used by nobody else, so two tasks that do the same work, or a task that is tried again,
never meet. The files count for nothing before a commit of the table names them.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.lake.layout import WITH_STATISTICS, LakeFile, in_files
from penstock.lake.storage import Storage, writing_to
from penstock.options import MIB

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


class Target(NamedTuple):
    """What a task is told about the files that it is to write."""

    storage: Storage
    #: The table's columns.
    schema: pa.Schema
    partition: int
    file_bytes: int = FILE_BYTES


def write(batches: Iterable[pa.RecordBatch], target: Target) -> list[LakeFile]:
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

    def __init__(self, target: Target, date: datetime.date, first: int) -> None:
        self.date = date
        self._path = new_path(date, target.partition, first)
        self._target = target
        self._schema = in_files(target.schema)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._known = _Known()
        self._open = ExitStack()
        self._stream = self._open.enter_context(target.storage.create(self._path))
        self._writer = pq.ParquetWriter(self._stream, self._schema, **parquet_options(self._schema.names))

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
        with writing_to(self._target.storage):
            self._writer.close()
        size = int(self._stream.tell())
        self._open.close()
        return self._known.file(self._path, self.date, self._target.partition, size)

    def abandon(self, error: BaseException) -> None:
        """Leave nothing of it."""
        with suppress(Exception):
            self._writer.close()  # else it tries again when it is collected
        self._open.__exit__(type(error), error, error.__traceback__)

    def _flush(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting, schema=self._schema)
            with writing_to(self._target.storage):
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


def parquet_options(columns: Sequence[str]) -> dict[str, Any]:
    """How our files are encoded."""
    return {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": [name for name in _REPEATING if name.split(".")[0] in columns],
        "column_encoding": {name: "DELTA_BINARY_PACKED" for name in _ASCENDING if name in columns},
        "write_statistics": list(WITH_STATISTICS),
        "store_schema": False,
    }
