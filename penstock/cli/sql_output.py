"""Rows of a query as the command prints them: a table for people, CSV and JSON for programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

import msgspec

from penstock.cli import output
from penstock.cli.formats import shown
from penstock.sql.session import SqlResult

#: A table needs the widths of all its rows; behind so many there is a new head.
_TABLE_ROWS = 10_000


class RowsFormat(StrEnum):
    """How `penstock sql` prints rows."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def put_rows(result: SqlResult, form: RowsFormat) -> None:
    """Print the rows of a query; JSON is an object a line, CSV begins with the names."""
    {RowsFormat.TABLE: _put_table, RowsFormat.CSV: _put_csv, RowsFormat.JSON: _put_json}[form](result)


def _put_table(result: SqlResult) -> None:
    names, found = result.columns, 0
    numbers = _number_columns(result)
    for rows in _rows(result, _TABLE_ROWS):
        found += len(rows)
        columns: list[output.Column[tuple[Any, ...]]] = [
            (name, lambda row, at=at: _cell(row[at]), at in numbers)  # type: ignore[misc]
            for at, name in enumerate(names)
        ]
        output.put_table("", rows, columns)
    if not found:
        output.put_text("no rows")


def _put_csv(result: SqlResult) -> None:
    output.put(_csv_lines([tuple(result.columns)]))
    for rows in _rows(result, _TABLE_ROWS):
        output.put(_csv_lines([tuple("" if each is None else _cell(each) for each in row) for row in rows]))


def _put_json(result: SqlResult) -> None:
    names = result.columns
    for rows in _rows(result, _TABLE_ROWS):
        lines = [msgspec.json.encode(dict(zip(names, map(_plain, row), strict=True))) for row in rows]
        output.put(b"\n".join(lines) + b"\n")


def _rows(result: SqlResult, most: int) -> Iterator[list[tuple[Any, ...]]]:
    held: list[tuple[Any, ...]] = []
    for batch in result.batches():
        columns = [column.to_pylist() for column in batch.columns]
        held += zip(*columns, strict=True) if columns else []
        if len(held) >= most:
            yield held
            held = []
    if held:
        yield held


def _number_columns(result: SqlResult) -> set[int]:
    kinds = [str(each) for each in result.relation.types]
    return {
        at
        for at, kind in enumerate(kinds)
        if kind.endswith(("INT", "INTEGER", "DOUBLE", "FLOAT")) or "DECIMAL" in kind
    }


def _csv_lines(rows: list[tuple[Any, ...]]) -> bytes:
    held = io.StringIO()
    csv.writer(held, lineterminator="\n").writerows(rows)
    return held.getvalue().encode(errors="backslashreplace")


def _cell(value: Any) -> str:
    """A value as one line of text."""
    plain = _plain(value)
    if plain is None:
        return "-"
    if isinstance(plain, str):
        return shown(plain.encode(errors="backslashreplace"))
    return msgspec.json.encode(plain).decode()


def _plain(value: Any) -> Any:
    """A value as JSON can say it: times in ISO, bytes as text, exact numbers as numbers."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
