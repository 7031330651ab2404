"""The schema of JSON values: given as Spark's DDL, kept as the table's columns.

A later run may bring more columns; they are added, and null in the rows there are. A column that has
another type by now is refused: a table has one type for it, and rewriting history is not an archive's work.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import cast

import pyarrow as pa

from penstock.errors import InvalidOption
from penstock.lake.layout import json_schema

_PLAIN = "boolean, byte, short, int, long, float, double, decimal, string, date, timestamp, array and struct"


def parsed(schema: str | os.PathLike[str]) -> list[pa.Field]:
    """The columns that a DDL text names, or a file with one; raises `InvalidOption` for what cannot be.

    A Spark session must be running.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import StructType

    text = _text(schema)
    try:
        columns = cast(StructType, StructType.fromDDL(text))
    except PySparkException as error:
        told = str(error).strip().splitlines()[0]
        raise InvalidOption(
            f"schema={text[:100]!r} is not understood: {told}",
            hint='write it like "id long, paid boolean, items array<struct<name: string>>"',
        ) from None
    for column in columns.fields:
        _check(column.name, column.dataType)
    fields = [pa.field(each.name, _nullable(to_arrow_type(each.dataType))) for each in columns.fields]
    _check_names(fields)
    return fields


def missing(there: pa.Schema, fields: Sequence[pa.Field]) -> list[pa.Field]:
    """The columns that a table has not got yet; raises `InvalidOption` when one has another type there."""
    known = {each.name.lower(): each for each in there}
    more = []
    for field in fields:
        stored = known.get(field.name.lower())
        if stored is None:
            more.append(field)
        elif stored.name != field.name:
            raise InvalidOption(
                f"the table has a column {stored.name!r}, the schema says {field.name!r}",
                hint="names that differ in case alone are one column to many readers",
            )
        elif not stored.type.equals(field.type):
            raise InvalidOption(
                f"column {field.name!r} is {stored.type} in the table, and {field.type} in the schema",
                hint="a type cannot be changed: archive into another table, or give the column another name",
            )
    return more


def _text(schema: str | os.PathLike[str]) -> str:
    text = os.fspath(schema)
    if not isinstance(schema, str) or (" " not in text.strip() and os.path.isfile(text)):
        try:
            with open(text, encoding="utf-8") as file:
                text = file.read()
        except OSError as error:
            raise InvalidOption(f"the schema {text!r} cannot be read: {error}") from None
    if not text.strip():
        raise InvalidOption("the schema is empty", hint='write it like "id long, paid boolean"')
    return text.strip()


def _check(name: str, kind: object) -> None:
    """Raise `InvalidOption` for a type that JSON cannot fill or the table cannot hold."""
    from pyspark.sql import types

    if isinstance(kind, types.StructType):
        for field in kind.fields:
            _check(f"{name}.{field.name}", field.dataType)
    elif isinstance(kind, types.ArrayType):
        _check(name, kind.elementType)
    elif not isinstance(kind, _fillable()):
        told = kind.simpleString() if isinstance(kind, types.DataType) else kind
        raise InvalidOption(f"column {name!r} cannot be {told}", hint=f"there are {_PLAIN}")


def _fillable() -> tuple[type, ...]:
    from pyspark.sql import types

    return (
        types.BooleanType, types.ByteType, types.ShortType, types.IntegerType, types.LongType,
        types.FloatType, types.DoubleType, types.DecimalType, types.StringType, types.DateType,
        types.TimestampType,
    )  # fmt: skip


def _nullable(kind: pa.DataType) -> pa.DataType:
    """A JSON type as Delta has it: everything may be missing, and times are UTC."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC")
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _nullable(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _nullable(kind.value_type)))
    return kind


def _check_names(fields: Sequence[pa.Field]) -> None:
    ours = {name.lower() for name in json_schema(()).names} | {"value"}
    seen: set[str] = set()
    for field in fields:
        name = field.name.lower()
        if name in ours:
            raise InvalidOption(
                f"the schema may not have a column {field.name!r}: the table has it already",
                hint=f"taken are {', '.join(sorted(ours))}",
            )
        if name in seen:
            raise InvalidOption(f"the schema has the column {field.name!r} twice")
        seen.add(name)
