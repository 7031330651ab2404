"""Columns as Spark's own types, made without a session: there is none where Spark asks for a schema."""

from __future__ import annotations

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
