"""Parquet and Arrow files in and out, by columns: no message becomes a Python object on the way.

In: the columns that were chosen become `value`, `key` and `timestamp` of a table that is written as it is;
only rows that are to become JSON are looked at one by one. Out: batches of a scan, gathered to row groups.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeVar

import msgspec

from penstock.arrow import require_pyarrow
from penstock.errors import InvalidOption
from penstock.exchange.file_import import (
    DASH,
    FileImported,
    Progress,
    RecordSink,
    file_producer,
    opened,
    shown_name,
)
from penstock.exchange.records import FieldChoice
from penstock.parse import MIB
from penstock.store.topic import Topic

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ROWS = 65_536
#: A row group is written when it has so many rows, or bytes.
_GROUP_ROWS, _GROUP_BYTES = 131_072, 64 * MIB
_ARROW_FILE = b"ARROW1"
_END: Final = object()
_MESSAGE_COLUMNS = ("value", "key", "headers", "timestamp")

T = TypeVar("T")


def import_table(
    topic: Topic[Any], path: str, kind: str, choice: FieldChoice, *, producer: str | None = None,
    progress: Progress = lambda done: None,
) -> FileImported:  # fmt: skip
    """Bring the rows of a Parquet or Arrow file, or of stdin, into a topic; a row's number is its seqno."""
    choice.check()
    producer = producer or file_producer(path)
    with opened(path) as file, RecordSink(topic, producer, progress) as sink:
        begin, at = sink.first_to_send(), 0
        for batch in _read_ahead(_batches(file, path, kind, choice)):
            stop = at + batch.num_rows
            if stop > begin:
                wanted = batch.slice(max(begin - at, 0))
                sink.store_table(_as_messages(wanted, choice, shown_name(path)), stop - wanted.num_rows)
            at = stop
    return sink.done


def _batches(file: BinaryIO, path: str, kind: str, choice: FieldChoice) -> Iterator[pa.RecordBatch]:
    pa = require_pyarrow()
    name = shown_name(path)
    try:
        if kind == "parquet":
            yield from _parquet_batches(file, path, choice)
        else:
            yield from _arrow_batches(file, path, choice)
    except pa.ArrowInvalid as error:
        raise InvalidOption(f"{name} is not a file of kind {kind}: {error}") from error


def _parquet_batches(file: BinaryIO, path: str, choice: FieldChoice) -> Iterator[pa.RecordBatch]:
    from pyarrow import parquet

    with _seekable(file, path) as source:
        found = parquet.ParquetFile(source)
        columns = _wanted(found.schema_arrow.names, choice, shown_name(path))
        yield from found.iter_batches(batch_size=_BATCH_ROWS, columns=columns)


def _arrow_batches(file: BinaryIO, path: str, choice: FieldChoice) -> Iterator[pa.RecordBatch]:
    from pyarrow import ipc

    if path != DASH and file.read(len(_ARROW_FILE)) == _ARROW_FILE:
        found = ipc.open_file(require_pyarrow().OSFile(path))  # mapped, a file cut meanwhile would kill us
        columns = _wanted(found.schema.names, choice, shown_name(path))
        for number in range(found.num_record_batches):
            yield found.get_batch(number).select(columns)
        return
    if path != DASH:
        file.seek(0)
    stream = ipc.open_stream(file)
    columns = _wanted(stream.schema.names, choice, shown_name(path))
    for batch in stream:
        yield batch.select(columns)


def _wanted(names: list[str], choice: FieldChoice, where: str) -> list[str]:
    """The columns to read; raises `InvalidOption` when one that was chosen is not there."""
    needed = ("value",) if choice.messages else choice.names
    for name in needed:
        if name not in names:
            raise InvalidOption(
                f"{where} has no column {name!r}", hint=f"it has {', '.join(map(repr, names))}"
            )
    if choice.messages:
        return [name for name in _MESSAGE_COLUMNS if name in names]
    return list(dict.fromkeys(choice.names)) if choice.value is not None else names


def _as_messages(batch: pa.RecordBatch, choice: FieldChoice, where: str) -> pa.Table:
    """Rows as a table of messages."""
    pa = require_pyarrow()
    if choice.messages:
        return pa.Table.from_batches([batch])
    value = _as_json(batch) if choice.value is None else _as_bytes(batch[choice.value])
    columns = {"value": value}
    if choice.key is not None:
        columns["key"] = _as_bytes(batch[choice.key])
    if choice.time is not None:
        columns["timestamp"] = _as_time(batch[choice.time], choice, where)
    return pa.table(columns)


def _as_json(batch: pa.RecordBatch) -> pa.Array:
    pa = require_pyarrow()
    return pa.array([msgspec.json.encode(row) for row in batch.to_pylist()], pa.binary())


def _as_bytes(column: pa.Array) -> pa.Array:
    """Text and bytes as they are; numbers as their text; what is nested as its JSON."""
    pa = require_pyarrow()
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return column
    if pa.types.is_large_string(kind):
        return column.cast(pa.large_binary())
    if pa.types.is_nested(kind):
        texts = [None if each is None else msgspec.json.encode(each) for each in column.to_pylist()]
        return pa.array(texts, pa.binary())
    return column.cast(pa.string()).cast(pa.binary())


def _as_time(column: pa.Array, choice: FieldChoice, where: str) -> pa.Array:
    pa = require_pyarrow()
    try:
        if pa.types.is_integer(column.type):
            column = column.cast(pa.int64()).cast(pa.timestamp(choice.time_unit, tz="UTC"))
        elif pa.types.is_timestamp(column.type) and column.type.tz is None:
            column = column.cast(pa.timestamp(column.type.unit, tz="UTC"))
        return column.cast(pa.timestamp("ns", tz="UTC"))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidOption(f"column {choice.time!r} of {where} holds no times: {error}") from error


@contextmanager
def _seekable(file: BinaryIO, path: str) -> Iterator[BinaryIO | pa.NativeFile]:
    """Parquet is read from its end: what comes by stdin is kept in a file meanwhile.

    Arrow opens a file that has a name itself: through Python's it would copy everything once more.
    """
    if path != DASH:
        with require_pyarrow().OSFile(path) as native:
            yield native
        return
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(file, copy)
        copy.seek(0)
        yield copy


def export_table(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, file: BinaryIO, kind: str, progress: Progress
) -> int:
    """Write record batches as a Parquet file or an Arrow stream; return how many rows."""
    require_pyarrow()
    from pyarrow import ipc, parquet

    rows = 0
    with _arrow_file(file) as sink:
        writer = parquet.ParquetWriter(sink, schema) if kind == "parquet" else ipc.new_stream(sink, schema)
        with writer:
            for table in _read_ahead(_groups(batches)):
                writer.write_table(table)
                rows += table.num_rows
                progress(rows)
    return rows


def _arrow_file(file: BinaryIO) -> pa.NativeFile:
    """A file as Arrow writes to it: one that has a name by Arrow itself, others through Python."""
    pa = require_pyarrow()
    name = getattr(file, "name", None)
    return pa.OSFile(name, mode="wb") if isinstance(name, str) else pa.PythonFile(file, mode="w")


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches gathered to groups of a good size: a frame may hold one message."""
    arrow = require_pyarrow()
    gathered: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        gathered.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield arrow.Table.from_batches(gathered)
            gathered, rows, size = [], 0, 0
    if gathered:
        yield arrow.Table.from_batches(gathered)


def _read_ahead(pieces: Iterator[T]) -> Iterator[T]:
    """Yield what `pieces` yields, one piece ahead, from a thread; what fails there is raised here.

    It pays where reading and storing leave Python for native code: both cores work then.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="penstock-read-ahead") as thread:
        following = thread.submit(next, pieces, _END)
        while (piece := following.result()) is not _END:
            following = thread.submit(next, pieces, _END)
            yield piece  # type: ignore[misc]  # mypy cannot tell the end from a piece
