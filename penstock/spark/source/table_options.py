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
#: What Spark says of a table besides its options.
_TABLES = ("provider", "location", "owner", "external", "comment", "is_managed_location", "collation")
#: Options come twice: by their names, and behind this.
_AGAIN = "option."


def of_table(options: Mapping[str, str]) -> dict[str, str] | None:
    """The options of a table that is being made; None when this is not about a table."""
    given = {name.lower(): value for name, value in options.items()}
    if "provider" not in given:
        return None
    known = {
        name: value for name, value in options.items()
        if name.lower() not in _TABLES and not name.lower().startswith(_AGAIN)
    }  # fmt: skip
    if "location" in given:
        known.setdefault("path", given["location"])
    return known


def kept(options: Mapping[str, str]) -> dict[str, str]:
    """The metadata with which a column keeps a table's options."""
    return {_METADATA: json.dumps(dict(options))}


def with_kept(options: Mapping[str, str], metadata: list[Mapping[str, Any]]) -> dict[str, str]:
    """The options of a query, with those of the table that it is about, found in its columns' metadata."""
    given = dict(of_table(options) or options)
    for each in metadata:
        if _METADATA in each:
            table: dict[str, str] = json.loads(each[_METADATA])
            return {**table, **given}
    if not given:
        raise InvalidOption(
            "Spark does not say which table this is about",
            hint="CREATE TABLE t USING penstock OPTIONS (path …, topic …), without a list of columns; "
            "write with INSERT INTO t (key, value) …, or df.write.format('penstock').option('topic', …)",
        )
    return given


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
