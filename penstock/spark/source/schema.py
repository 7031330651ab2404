"""The columns that a topic has in Spark: their names, types and which of them a query gets.

The first six are Kafka's, by name and type, so that a query moves from one to the other unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import InvalidOption

#: Name and Spark type of every column; `timestamp` is the producer's own, `written_at` the log's.
TYPES = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "key": "binary",
    "value": "binary",
    "headers": "map<string,binary>",
    "written_at": "timestamp",
    "producer_id": "string",
    "group": "string",
    "seqno": "bigint",
    "codec": "string",
    "reference": (
        "struct<place:string,name:string,path:string,start:bigint,size:bigint,sha256:string,codec:string,"
        "packed:boolean>"
    ),
}
#: Where a value lies and not what the message is: never part of `*`, and unknown to an archive.
REFERENCE = "reference"
ALL: tuple[str, ...] = tuple(name for name in TYPES if name != REFERENCE)
DEFAULT: tuple[str, ...] = ("topic", "partition", "offset", "timestamp", "key", "value")
HEADERS = "headers"
NEVER_NULL = ("topic", "partition", "offset", "timestamp", "written_at", "codec")


def chosen(columns: str | None, *, include_headers: bool) -> tuple[str, ...]:
    """The columns that the options `columns` and `includeHeaders` ask for, in that order."""
    if columns is None:
        names = DEFAULT
    elif columns.strip() == "*":
        names = ALL
    else:
        names = tuple(name.strip() for name in columns.split(","))
    if include_headers and HEADERS not in names:
        names = (*names, HEADERS)
    check_names(names)
    return names


def check_names(names: Sequence[str]) -> None:
    """Raise `InvalidOption` unless these are columns of a topic, each named once."""
    for name in names:
        if name not in TYPES:
            raise InvalidOption(f"a topic has no column {name!r}", hint=f"columns: {', '.join(TYPES)}")
    if len(set(names)) < len(names):
        raise InvalidOption(f"a column is named twice in {', '.join(names)}")
    if not names:
        raise InvalidOption("no column is chosen", hint=f"columns: {', '.join(TYPES)}")


def check_types(given: Sequence[tuple[str, str, bool]]) -> tuple[str, ...]:
    """The names of columns given with type and "may be null", as by `.schema(…)`; both must be right."""
    names = tuple(name for name, _, _ in given)
    check_names(names)
    for name, kind, nullable in given:
        if kind != TYPES[name]:
            raise InvalidOption(
                f"column {name!r} is {TYPES[name]}, not {kind}", hint="read it as it is, then cast it"
            )
        if not nullable and name not in NEVER_NULL:
            raise InvalidOption(f"column {name!r} may be null", hint="leave out NOT NULL")
    return names


def ddl(names: Sequence[str]) -> str:
    """The columns as Spark's DDL."""
    return ", ".join(f"`{name}` {TYPES[name]}" for name in names)
