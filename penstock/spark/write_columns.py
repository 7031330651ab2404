"""Which column of a DataFrame is what of a message: decided by name and type before anything runs.

    value       binary or string             null is a tombstone
    key         binary or string             chooses the partition
    headers     map<string,binary|string>    or Kafka's array<struct<key:string,value:binary>>
    partition   int                          null: by key
    topic       string                       unless the option `topic` says it for all rows
    timestamp   timestamp                    null: the time of writing

Without a column `value` the whole row becomes the value, as JSON; but for `topic`, where that says it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.errors import InvalidOption

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
