"""The columns of an archive table, and the record that describes one of its files.

    date          the UTC day of written_at; the Delta partition, so not in the files themselves
    partition · offset
    timestamp     microseconds, the producer's; timestamp_nanos are the 0 to 999 nanoseconds below
    written_at    the same for the log's own time
    key · value   value is decoded from its codec; null is a tombstone, b"" is empty
    headers       their values are bytes; headers_text says of each whether it was written as text
    producer_id · group · seqno · codec

Delta has no nanoseconds: microseconds are floored, also before 1970, and what is left goes beside them.
A table of kind "json" has the columns of its schema, `_error` and `_raw` in place of `value`, and no
`headers_text`: messages cannot be made of it again.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

Kind = Literal["raw", "json"]

DATE = "date"
HEADERS_TEXT = "headers_text"
TIME = pa.timestamp("us", tz="UTC")
_FIELDS = (
    pa.field(DATE, pa.date32(), nullable=False),
    pa.field("partition", pa.int32(), nullable=False),
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("timestamp", TIME, nullable=False),
    pa.field("timestamp_nanos", pa.int16(), nullable=False),
    pa.field("written_at", TIME, nullable=False),
    pa.field("written_at_nanos", pa.int16(), nullable=False),
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("headers", pa.map_(pa.string(), pa.binary())),
    pa.field(HEADERS_TEXT, pa.list_(pa.bool_())),
    pa.field("producer_id", pa.string()),
    pa.field("group", pa.string()),
    pa.field("seqno", pa.int64()),
    pa.field("codec", pa.string(), nullable=False),
)
#: Of a value that is no JSON of the schema: why, and the value itself.
ERROR, RAW = "_error", "_raw"
_ONLY_RAW = ("value", HEADERS_TEXT)
_REST = (pa.field(ERROR, pa.string()), pa.field(RAW, pa.binary()))

#: All columns of a raw table, in order.
RAW_SCHEMA = pa.schema(_FIELDS)
#: The smallest and largest of these are kept for each file, in the file and in the table.
WITH_STATISTICS = ("partition", "offset", "timestamp", "written_at")


class LakeFile(NamedTuple):
    """One data file: messages of one partition and one day, in offset order."""

    #: Below the table's root.
    path: str
    date: datetime.date
    partition: int
    #: The first offset in it, and the one behind the last; there may be gaps between.
    first: int
    stop: int
    rows: int
    bytes: int
    #: Smallest and largest, in microseconds since 1970.
    timestamps: tuple[int, int]
    written: tuple[int, int]


def json_schema(fields: Sequence[pa.Field]) -> pa.Schema:
    """All columns of a table of kind "json" whose values have these fields."""
    return pa.schema([*(each for each in _FIELDS if each.name not in _ONLY_RAW), *fields, *_REST])


def in_files(schema: pa.Schema) -> pa.Schema:
    """The columns that the files hold: all but the Delta partition."""
    return pa.schema([each for each in schema if each.name != DATE])


def nanoseconds(micros: pa.Array, nanos: pa.Array) -> pa.Array:
    """The exact time, from `timestamp` and `timestamp_nanos` or `written_at` and its own."""
    exact = pc.add(pc.multiply(micros.cast(pa.int64()), 1000), nanos.cast(pa.int64()))
    return exact.cast(pa.timestamp("ns", tz="UTC"))
