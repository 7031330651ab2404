"""Rows as Spark hands them to a task, turned into messages: Arrow columns in, Arrow columns out.

A batch of messages has the columns `value` (binary) and, where there are any, `key` (binary), `headers`
(a map) and `time` (nanoseconds). Rows are looked at one by one only to make JSON of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidOption, MessageTooLarge, WrongType
from penstock.log.arrow_input import ArrowStrings
from penstock.parse import HEADERS_BYTES_MAX, KEY_BYTES_MAX

_TEXTS = ("binary", "string")
_TYPES: Mapping[str, tuple[str, ...]] = {
    "value": _TEXTS,
    "key": _TEXTS,
    "headers": (
        *(f"map<string,{text}>" for text in _TEXTS),
        *(f"array<struct<key:string,value:{text}>>" for text in _TEXTS),
    ),
    "partition": ("int",),
    "topic": ("string",),
    "timestamp": ("timestamp",),
}
_HINTS = {
    "value": "leave out the column `value` to store rows as JSON, or cast it",
    "key": "cast it: col('key').cast('string')",
    "headers": f"one of {', '.join(_TYPES['headers'])}",
    "partition": "cast it: col('partition').cast('int')",
    "topic": "cast it: col('topic').cast('string')",
    "timestamp": "cast it: col('timestamp').cast('timestamp')",
}
#: What a message that was read has, and one that is written is given: left out without a word.
GIVEN_BY_THE_LOG = ("offset", "written_at", "producer_id", "group", "seqno", "codec", "reference")


class Column(NamedTuple):
    """A column as Spark declares it."""

    name: str
    kind: str


class Shape(NamedTuple):
    """Places of a message's parts among the columns; None for what is not there."""

    #: None: the whole row, as JSON.
    value: int | None
    key: int | None = None
    headers: int | None = None
    partition: int | None = None
    topic: int | None = None
    timestamp: int | None = None
    #: A column that is null in rows which an INSERT made, and not in those of another table.
    unset: int | None = None


def shape(columns: Sequence[Column], *, topic_given: bool, key_column: str | None) -> Shape:
    """What the columns are; raises `InvalidOption` for those that cannot be stored."""
    if not columns:
        raise InvalidOption("the DataFrame has no columns")
    places = _places(columns)
    if "value" not in places:
        return _row_as_json(columns, places, topic_given=topic_given, key_column=key_column)
    if key_column is not None:
        raise InvalidOption("keyColumn is for rows without a column `value`", hint="name the column `key`")
    for name, place in places.items():
        if name in _TYPES:
            _check_type(columns[place], name)
        elif name not in GIVEN_BY_THE_LOG:
            raise InvalidOption(
                f"a message has no {columns[place].name!r}",
                hint=f"columns: {', '.join(_TYPES)}; without `value` the whole row is stored as JSON",
            )
    if not topic_given:
        _check_topic(columns, places)
    found = {name: places[name] for name in _TYPES if name in places}
    if topic_given:
        found.pop("topic", None)
    return Shape(**found)


def _places(columns: Sequence[Column]) -> dict[str, int]:
    """Where each column is, by its name in lower case: names are the same to Spark in any case."""
    places: dict[str, int] = {}
    for place, column in enumerate(columns):
        if column.name.lower() in places:
            raise InvalidOption(f"two columns are named {column.name!r}")
        places[column.name.lower()] = place
    return places


def _row_as_json(
    columns: Sequence[Column], places: Mapping[str, int], *, topic_given: bool, key_column: str | None
) -> Shape:
    if not topic_given:
        _check_topic(columns, places)
    topic = None if topic_given else places["topic"]
    if key_column is None:
        return Shape(None, topic=topic)
    place = places.get(key_column.lower())
    if place is None:
        raise InvalidOption(
            f"keyColumn={key_column!r} is not a column", hint=f"columns: {', '.join(c.name for c in columns)}"
        )
    _check_type(columns[place], "key")
    return Shape(None, key=place, topic=topic)


def _check_topic(columns: Sequence[Column], places: Mapping[str, int]) -> None:
    if "topic" not in places:
        raise InvalidOption("which topic?", hint='.option("topic", "orders"), or a column `topic`')
    _check_type(columns[places["topic"]], "topic")


def _check_type(column: Column, role: str) -> None:
    kind = _plain(column.kind)
    if kind not in _TYPES[role]:
        allowed = " or ".join(_TYPES[role][:2])
        raise InvalidOption(f"column {column.name!r} is {column.kind}, not {allowed}", hint=_HINTS[role])


def _plain(kind: str) -> str:
    """The type without a collation, which says how text compares and not what it is."""
    return "string" if kind.startswith("string collate") else kind


class WriteRows(NamedTuple):
    """Messages, and where their rows ask to go."""

    messages: pa.RecordBatch
    topics: pa.Array | None
    partitions: pa.Array | None


def rows(batch: pa.RecordBatch, shape: Shape) -> WriteRows:
    """The messages of a batch; raises for what no topic can store."""
    if shape.unset is not None:
        _refuse_read_rows(batch.column(shape.unset))
    made = {
        "value": _json(_without(batch, shape.topic))
        if shape.value is None
        else _binary(batch.column(shape.value))
    }
    if shape.key is not None:
        made["key"] = _key(batch.column(shape.key))
    if shape.headers is not None:
        made["headers"] = _headers(batch.column(shape.headers))
    if shape.timestamp is not None:
        made["time"] = _nanoseconds(batch.column(shape.timestamp))
    return WriteRows(
        pa.RecordBatch.from_arrays(list(made.values()), list(made)),
        None if shape.topic is None else _topics(batch.column(shape.topic)),
        None if shape.partition is None else batch.column(shape.partition),
    )


def _refuse_read_rows(offsets: pa.Array) -> None:
    """Raise for rows that have offsets: they are as they were read, and so are their columns' options.

    A table's options are found in the columns; with those of the rows' own table they would go back into it.
    """
    if offsets.null_count < len(offsets):
        raise InvalidOption(
            "Spark does not say which table these rows go into, since they have its columns already",
            hint="name the columns: INSERT INTO t (key, value) SELECT key, value …, df.select('key', 'value')"
            ".writeTo('t').append(), or df.write.format('penstock').option('topic', …)",
        )


def check_values(values: pa.Array, limit: int, topic: str) -> None:
    """Raise `MessageTooLarge` when a value is over the topic's limit."""
    strings = ArrowStrings(values)
    if not strings.fits(limit):
        raise MessageTooLarge(
            f"a value of {strings.longest} bytes is over the limit of {limit} of topic {topic!r}",
            hint="raise max_message_bytes of the topic, or store the body elsewhere",
        )


def _binary(column: pa.Array) -> pa.Array:
    return column if pa.types.is_binary(column.type) else column.cast(pa.binary())


def _without(batch: pa.RecordBatch, place: int | None) -> pa.RecordBatch:
    return batch if place is None else batch.drop_columns([batch.schema.names[place]])


def _json(batch: pa.RecordBatch) -> pa.Array:
    """Each row as a JSON object: bytes as Base64, times in ISO 8601, what is null as null."""
    from msgspec.json import Encoder

    encode = Encoder(decimal_format="number").encode
    return pa.array([encode(row) for row in batch.to_pylist(maps_as_pydicts="lossy")], pa.binary())


def _key(column: pa.Array) -> pa.Array:
    keys = _binary(column)
    strings = ArrowStrings(keys)
    if not strings.fits(KEY_BYTES_MAX):
        raise MessageTooLarge(f"a key of {strings.longest} bytes is over the limit of {KEY_BYTES_MAX}")
    return keys


def _nanoseconds(column: pa.Array) -> pa.Array:
    """Times as nanoseconds; raises for one outside 1677 to 2262, which 64 bits cannot hold."""
    micros = column.cast(pa.timestamp("us", tz="UTC")).view(pa.int64())
    try:
        return pc.multiply_checked(micros, pa.scalar(1000, pa.int64()))
    except pa.ArrowInvalid:
        raise InvalidOption("a timestamp does not fit: moments from 1677 to 2262 can be stored") from None


def _topics(column: pa.Array) -> pa.Array:
    if column.null_count:
        raise InvalidOption("column 'topic' is null in a row", hint='fill it, or .option("topic", …)')
    return column


def _headers(column: pa.Array) -> pa.Array:
    """Headers as a map without nulls, each name once in a message and all of it within the limit."""
    bounds = column.offsets
    if pa.types.is_map(column.type):
        names, values = column.keys, column.items
    else:
        entries = column.values
        names, values = entries.field("key"), entries.field("value")
    first, stop = bounds[0].as_py(), bounds[-1].as_py()
    names, values = names.slice(first, stop - first), values.slice(first, stop - first)
    if first:
        bounds = pc.subtract(bounds, pa.scalar(first, bounds.type))
    if names.null_count or values.null_count:
        what = "name" if names.null_count else "value"
        raise WrongType(
            f"a header's {what} is null", hint="a header has a name and a value, which may be empty"
        )
    names, values = names.cast(pa.string()), _smaller(values)
    _check_sizes(bounds, names, values)
    if not pa.types.is_map(column.type):
        _refuse_twice(bounds, names)
    return pa.MapArray.from_arrays(bounds.cast(pa.int32()), names, values)


def _smaller(strings: pa.Array) -> pa.Array:
    """Cast a column to offsets of 32 bits, as frames have them."""
    is_text = pa.types.is_string(strings.type) or pa.types.is_large_string(strings.type)
    return strings.cast(pa.string() if is_text else pa.binary())


def _check_sizes(bounds: pa.Array, names: pa.Array, values: pa.Array) -> None:
    sizes = pc.add(_sizes(bounds, names), _sizes(bounds, values))
    largest = pc.max(sizes).as_py() or 0
    if largest > HEADERS_BYTES_MAX:
        raise MessageTooLarge(f"headers of {largest} bytes are over the limit of {HEADERS_BYTES_MAX}")


def _sizes(bounds: pa.Array, strings: pa.Array) -> pa.Array:
    """How many bytes the strings of each row have together."""
    lengths = pc.cast(pc.binary_length(strings), pa.int64())
    ends = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths)])
    at = ends.take(bounds)
    return pc.subtract(at[1:], at[:-1])


def _refuse_twice(bounds: pa.Array, names: pa.Array) -> None:
    """Raise for a header that comes twice in an array of headers."""
    lists = pa.ListArray.from_arrays(bounds.cast(pa.int32()), names)
    entries = pa.table({"row": pc.list_parent_indices(lists), "name": names})
    if entries.group_by(["row", "name"]).aggregate([]).num_rows < len(names):
        raise InvalidOption(
            "a message has two headers of one name", hint="give each header a name of its own"
        )
