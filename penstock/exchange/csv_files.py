"""CSV files: a line with the names of columns, then a record a row, quoted where it has to be."""

from __future__ import annotations

import base64
import csv
from collections.abc import Iterator
from typing import Any

import msgspec

from penstock.errors import InvalidOption, UsageError
from penstock.exchange.message_json import GivenMessage
from penstock.exchange.records import FieldChoice, FileRecord, Refuse, from_fields, refuse_all
from penstock.exchange.text_lines import Lines
from penstock.parse import MIB

#: The module's own limit of 128 KiB a field is below what a message may hold.
_FIELD_BYTES_MOST = 2**30
#: A quoted field that goes on for longer in a file that grows was not meant to be one.
_OPEN_ROW_BYTES = MIB


class CsvRows:
    """Reads records from a CSV file; all fields are text."""

    def __init__(self, name: str, choice: FieldChoice, delimiter: str = ",") -> None:
        if len(delimiter) != 1:
            raise InvalidOption(f"delimiter {delimiter!r} is not one character")
        self._name = name
        self._choice = choice
        self._delimiter = delimiter
        self._columns: list[str] = []

    def begin(self, lines: Lines) -> bool:
        """Read the names of columns, if they are there; raises `InvalidOption` when a chosen one is not."""
        names = next((row for _, row in self._rows(lines, refuse_all)), None)
        if not names:
            return False
        names[0] = names[0].removeprefix("\ufeff")
        wanted = ("value",) if self._choice.messages else self._choice.names
        for name in wanted:
            if name not in names:
                raise InvalidOption(
                    f"{self._name} has no column {name!r}", hint=f"it has {', '.join(map(repr, names))}"
                )
        if len(set(names)) < len(names):
            raise InvalidOption(f"{self._name} names a column twice: {', '.join(names)}")
        self._columns = names
        return True

    def records(self, lines: Lines, refuse: Refuse = refuse_all) -> Iterator[FileRecord]:
        """Yield all records from where `lines` stands; refuse, by its line, a row that is not one."""
        for at, row in self._rows(lines, refuse):
            if not row:
                continue
            where = f"{self._name} line {lines.number}"
            try:
                message = self._message(row, where)
            except UsageError as error:
                refuse(error)
            else:
                yield FileRecord(at, message, where)

    def _message(self, row: list[str], where: str) -> GivenMessage:
        if len(row) != len(self._columns):
            raise InvalidOption(f"{where} has {len(row)} fields, and there are {len(self._columns)} columns")
        fields: dict[str, Any] = dict(zip(self._columns, row, strict=True))
        if self._choice.messages:
            fields = _as_message(fields, where)
        return from_fields(fields, self._choice, where)

    def _rows(self, lines: Lines, refuse: Refuse) -> Iterator[tuple[int, list[str]]]:
        """Rows with the byte at which each begins; a quoted field may go over several lines."""
        csv.field_size_limit(_FIELD_BYTES_MOST)
        reader = self._reader(lines)
        while True:
            begin, number = lines.at, lines.number
            try:
                row = next(reader)
            except StopIteration:
                return
            except (csv.Error, UnicodeDecodeError) as error:
                if lines.is_over and lines.whole_only and lines.at - begin < _OPEN_ROW_BYTES:
                    lines.go_back(begin, number)  # its end may be written yet
                    return
                what = "not UTF-8" if isinstance(error, UnicodeDecodeError) else "not CSV"
                refuse(InvalidOption(f"{self._name} line {number + 1} is {what}: {error}"))
                lines.go_back(begin, number)
                lines.next_line()  # a quote that is never closed takes its own line with it, not all behind
                reader = self._reader(lines)
            else:
                yield begin, row

    def _reader(self, lines: Lines) -> Iterator[list[str]]:
        texts = (line.decode() + "\n" for _, line in lines)
        return csv.reader(texts, delimiter=self._delimiter, strict=True)


#: Columns of an exported message, in order.
MESSAGE_COLUMNS = (
    "partition", "offset", "timestamp", "timestamp_ns", "key", "key_encoding", "value", "value_encoding",
    "headers",
)  # fmt: skip


def message_row(record: dict[str, Any]) -> list[Any]:
    """A message's JSON record as a row; text that CSV would not give back the same becomes base64."""
    row = dict(record)
    for name in ("key", "value"):
        text = record[name]
        if text is not None and (text == "" or "\0" in text or "\r" in text):
            row[name], row[f"{name}_encoding"] = base64.b64encode(text.encode()).decode(), "base64"
    headers = {name: record[name] for name in ("headers", "headers_encoding") if record.get(name)}
    row["headers"] = msgspec.json.encode(headers).decode() if headers else ""
    return [row.get(name, "") for name in MESSAGE_COLUMNS]


def _as_message(fields: dict[str, Any], where: str) -> dict[str, Any]:
    """A row of an export as the record it was made from: no text is null, unless it is base64."""
    record = {name: field for name, field in fields.items() if field != ""}
    for name in ("key", "value"):
        if f"{name}_encoding" in record or name == "value":
            record.setdefault(name, "" if f"{name}_encoding" in record else None)
    for name in ("partition", "timestamp_ns"):
        if name in record:
            try:
                record[name] = int(record[name])
            except ValueError:
                raise InvalidOption(f"{where}: {name} {record[name]!r} is not a number") from None
    if "headers" in record:
        try:
            packed = msgspec.json.decode(record.pop("headers"), type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise InvalidOption(f"{where}: headers are not JSON: {error}") from None
        record.update({name: packed[name] for name in ("headers", "headers_encoding") if name in packed})
    return record
