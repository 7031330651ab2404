"""Columns for the fields of JSON values, by a sample of a topic's messages.

The oldest and the newest messages are looked at, some of each partition. A field of an object among them is a
column; its type is the one that all of its values there have:

    whole numbers BIGINT · numbers DOUBLE · true and false BOOLEAN · text VARCHAR · objects and arrays JSON
    different ones, or only null: VARCHAR

A column is worked out from `value` when a query asks for it. It is NULL where the value is not JSON, has no
such field, or has one of another type: `value` has everything as it was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from penstock.errors import DataError, OutOfRange, Undecodable
from penstock.log.log import Log
from penstock.message import value_bytes
from penstock.topic.open_topic import OpenTopic

#: So many messages are looked at, half of them the oldest, half the newest.
SAMPLE = 1000
_SAMPLE_BYTES = 4 * 2**20
#: More fields than this are no columns; `value ->> 'field'` has them.
COLUMNS_MOST = 200
_BIGINT_LEAST, _BIGINT_MOST = -(2**63), 2**63 - 1


class ValueColumn(NamedTuple):
    """A field of values as a column of its own."""

    name: str
    field: str
    type: str

    @property
    def expression(self) -> str:
        """The column in SQL, made of `value`."""
        path = quoted_text(f'$."{self.field}"')
        text, kind = f"TRY(value ->> {path})", f"TRY(json_type(value, {path}))"
        match self.type:
            case "BIGINT":
                return f"CASE WHEN {kind} IN ('BIGINT', 'UBIGINT') THEN TRY_CAST({text} AS BIGINT) END"
            case "DOUBLE":
                numbers = "('BIGINT', 'UBIGINT', 'HUGEINT', 'DOUBLE')"
                return f"CASE WHEN {kind} IN {numbers} THEN TRY_CAST({text} AS DOUBLE) END"
            case "BOOLEAN":
                return f"CASE WHEN {kind} = 'BOOLEAN' THEN TRY_CAST({text} AS BOOLEAN) END"
            case "JSON":
                return f"TRY(value -> {path})"
        return text


def value_columns(topic: OpenTopic, taken: Sequence[str]) -> list[ValueColumn]:
    """The columns of a topic's values; a name that is taken gets `value_` in front."""
    return named(_fields(_sampled(topic)), taken)


def named(fields: dict[str, set[type]], taken: Sequence[str]) -> list[ValueColumn]:
    """Columns for fields that have values of these types; DuckDB tells no capitals from small letters."""
    used = {name.lower() for name in taken}
    found: list[ValueColumn] = []
    for field, types in fields.items():
        free = next((name for name in (field, f"value_{field}") if name.lower() not in used), None)
        if free is None or not field or '"' in field or "\\" in field or "\0" in field:
            continue  # `value` has it
        used.add(free.lower())
        found.append(ValueColumn(free, field, _type(types)))
    return found[:COLUMNS_MOST]


def quoted_text(text: str) -> str:
    """A text as SQL has it."""
    return "'" + text.replace("'", "''") + "'"


def quoted_name(name: str) -> str:
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def _fields(values: Iterator[bytes]) -> dict[str, set[type]]:
    """Fields of the objects among values, with the types that they have there; in the order seen."""
    found: dict[str, set[type]] = {}
    for value in values:
        if value.lstrip()[:1] != b"{":
            continue
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            for name, each in msgspec.json.decode(value, type=dict[str, Any]).items():
                found.setdefault(name, set()).add(_kind(each))
    return found


def _kind(value: Any) -> type:
    """The type of a value; a whole number that BIGINT cannot hold is any number."""
    if type(value) is int and not _BIGINT_LEAST <= value <= _BIGINT_MOST:
        return float
    return type(value)


def _type(types: set[type]) -> str:
    seen = types - {type(None)}
    if seen == {int}:
        return "BIGINT"
    if seen and seen <= {int, float}:
        return "DOUBLE"
    if seen == {bool}:
        return "BOOLEAN"
    return "JSON" if seen and seen <= {dict, list} else "VARCHAR"


def _sampled(topic: OpenTopic) -> Iterator[bytes]:
    """Values of some of the oldest and newest messages of each partition; none that lies outside the log."""
    logs = topic.logs()
    each = max(SAMPLE // (2 * len(logs)), 1)
    for log in logs[:SAMPLE]:
        bounds = log.bounds()
        newest = max(bounds.start, bounds.end - each)
        for first in dict.fromkeys((bounds.start, newest)):
            yield from islice(_values(log, first, each), each)


def _values(log: Log, first: int, count: int) -> Iterator[bytes]:
    with suppress(OutOfRange, DataError):  # what is damaged is said when it is read
        for rows in log.cursor(first).read(count, _SAMPLE_BYTES):
            for message in rows.messages():
                if message.reference is None:
                    with suppress(Undecodable):
                        yield value_bytes(message) or b""
