"""Options of a catalog table, which Spark tells a source once, when the table is made, and never again.

    CREATE TABLE orders USING penstock OPTIONS (path 'data', topic 'orders')

From then on a query hands over the table's columns and nothing else. But columns keep their metadata: so
the options are written into it when Spark asks for the schema, and read from it when there is a query.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.errors import InvalidOption

#: The entry in the metadata of each column.
_METADATA = "penstock"
#: Options come twice, by their names and behind this; what comes once is a property of the table's own.
_AGAIN = "option."
#: The column by which rows that were read are told from those that an INSERT makes.
OFFSET = "offset"
#: Options of a table that mean something to its writes, too.
_FOR_WRITES = ("path", "topic")


def of_table(options: Mapping[str, str]) -> dict[str, str] | None:
    """The options of a table that is being made; None when this is not about a table."""
    given = {name.lower(): value for name, value in options.items()}
    if "provider" not in given:
        return None
    known = {name: value for name, value in options.items() if _AGAIN + name.lower() in given}
    place = given.get("path") or given.get("location")
    return {**known, "path": place} if place else known


def kept(options: Mapping[str, str]) -> dict[str, str]:
    """The metadata with which a column keeps a table's options."""
    return {_METADATA: json.dumps(dict(options))}


def with_kept(options: Mapping[str, str], metadata: list[Mapping[str, Any]]) -> dict[str, str]:
    """The options of a query, with those of the table that it is about, found in its columns' metadata.

    Options that name a store are the whole of it: the query is about no table, whatever its columns are of.
    """
    given = dict(of_table(options) or options)
    if _names_a_store(given):
        return given
    for each in metadata:
        if _METADATA in each:
            table: dict[str, str] = json.loads(each[_METADATA])
            return {**table, **given}
    if not given:
        raise _unknown()
    return given


def is_table_write(options: Mapping[str, str]) -> bool:
    """Whether a write is one into a table of the catalog, whose options Spark does not hand over."""
    return not _names_a_store(options)


def for_table_write(
    options: Mapping[str, str], columns: list[tuple[str, Mapping[str, Any]]]
) -> dict[str, str]:
    """The options of a write into a table, given the names and the metadata of the rows' columns.

    Spark gives rows the metadata of the table they go into unless they have its columns already, as those of
    another table have. Rows that it has put in order have all of the table's columns, with one metadata.
    """
    kept_with = {each.get(_METADATA) for _, each in columns}
    if kept_with == {None} and options:  # of no table, and of no store: that is for others to say
        return dict(options)
    if len(kept_with) > 1 or None in kept_with or OFFSET not in [name for name, _ in columns]:
        raise _unknown()
    table: dict[str, str] = json.loads(str(kept_with.pop()))
    return {name: table[name] for name in _FOR_WRITES if name in table} | dict(options)


def _names_a_store(options: Mapping[str, str]) -> bool:
    return "path" in {name.lower() for name in options}


def _unknown() -> InvalidOption:
    return InvalidOption(
        "Spark does not say which table this is about",
        hint="CREATE TABLE t USING penstock OPTIONS (path …, topic …), without a list of columns; "
        "write with INSERT INTO t (key, value) …, or df.write.format('penstock').option('topic', …)",
    )


# Columns as Spark's own types, made without a session: there is none where Spark asks for a schema.

_SIMPLE: dict[str, DataType] = {
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "boolean": BooleanType(),
    "timestamp": TimestampType(),
    "binary": BinaryType(),
    "map<string,binary>": MapType(StringType(), BinaryType()),
}
_STRUCT = "struct<"


def with_metadata(ddl: str, metadata: dict[str, str]) -> StructType:
    """The columns of our own DDL ("`offset` bigint, key binary"), each with this metadata."""
    pairs = [column.split(" ", 1) for column in ddl.split(", ")]
    return StructType([StructField(name.strip("`"), _kind(kind), True, metadata) for name, kind in pairs])


def _kind(text: str) -> DataType:
    if not text.startswith(_STRUCT):
        return _SIMPLE[text]
    pairs = [field.split(":") for field in text.removeprefix(_STRUCT).removesuffix(">").split(",")]
    return StructType([StructField(name, _SIMPLE[kind]) for name, kind in pairs])
