"""Messages of a topic as a file: lines of JSON, CSV, Parquet or Arrow; `-` is stdout.

Each holds whole messages, which an import takes again with `messages=True`; `values` writes the values
alone, a line each. A file is written beside its place and renamed at the end: it is whole, or not there.
"""

from __future__ import annotations

import csv
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, NamedTuple

import msgspec

from penstock import arrow
from penstock.errors import AlreadyExists, InvalidOption
from penstock.exchange.arrow_files import export_table
from penstock.exchange.csv_files import MESSAGE_COLUMNS, message_row
from penstock.exchange.file_import import DASH, Progress
from penstock.exchange.message_json import json_record
from penstock.message import Batch, value_bytes
from penstock.place import Place
from penstock.store.topic import Topic

FORMATS = ("jsonl", "csv", "parquet", "arrow")


class ExportRange(NamedTuple):
    """What of a topic is written."""

    partition: int | None = None
    start: Place = "earliest"
    stop: Place = "latest"


_ALL = ExportRange()


def export_file(
    topic: Topic[Any], path: str, kind: str, *, wanted: ExportRange = _ALL, values: bool = False,
    overwrite: bool = False, progress: Progress = lambda done: None,
) -> int:  # fmt: skip
    """Write messages of a topic as a file of one of the `FORMATS`; return how many.

    With `values`, lines of JSON hold the values alone, as they are. Raises `AlreadyExists` for a file that
    is there, unless it may be overwritten.
    """
    if kind not in FORMATS:
        raise InvalidOption(f"{kind!r} is none of {', '.join(FORMATS)}")
    if values and kind != "jsonl":
        raise InvalidOption("values alone are written as jsonl only")
    if path != DASH and os.path.lexists(path) and not overwrite:
        raise AlreadyExists(f"{path} is there already", hint="name another file, or overwrite it")
    raw: Topic = Topic(topic.open_topic)
    scan = raw.scan(partition=wanted.partition, start=wanted.start, stop=wanted.stop)
    with _target(path) as file:
        if kind in ("parquet", "arrow"):
            return export_table(scan.record_batches(), arrow.schema(None), file, kind, progress)
        lines = _value_lines if values else _json_lines if kind == "jsonl" else _csv_lines
        if kind == "csv":
            file.write(_csv_row(MESSAGE_COLUMNS))
        count = 0
        for batch in scan:
            file.writelines(lines(batch))
            count += len(batch)
            progress(count)
        return count


def _json_lines(batch: Batch[Any]) -> Iterator[bytes]:
    for message in batch:
        yield msgspec.json.encode(json_record(message)) + b"\n"


def _value_lines(batch: Batch[Any]) -> Iterator[bytes]:
    """Values as they are; raises `InvalidOption` for one that would not be one line of JSON."""
    for message in batch:
        body = value_bytes(message)
        line = b"null" if body is None else body
        try:
            msgspec.json.decode(line, type=msgspec.Raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidOption(
                f"the value at partition {message.partition}, offset {message.offset} is not JSON: {error}",
                hint="leave --values out: whole messages can hold any bytes",
            ) from None
        yield (line if b"\n" not in line else msgspec.json.format(line, indent=-1)) + b"\n"


def _csv_lines(batch: Batch[Any]) -> Iterator[bytes]:
    for message in batch:
        yield _csv_row(message_row(json_record(message)))


def _csv_row(fields: Any) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(fields)
    return text.getvalue().encode()


class _Counted:
    """Stdout as a file that knows how much was written, which a pipe does not."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._written = 0

    def write(self, data: Any) -> int:
        self._file.write(data)
        self._written += memoryview(data).nbytes
        return memoryview(data).nbytes

    def writelines(self, lines: Iterator[bytes]) -> None:
        for line in lines:
            self.write(line)

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self.flush()


@contextmanager
def _target(path: str) -> Iterator[Any]:
    if path == DASH:
        yield _Counted(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    draft = f"{path}.partial"
    try:
        with open(draft, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(draft)
        raise
