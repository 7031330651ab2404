"""The rows that a newcomer looks at first, in their words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.rows import Row
from benchmarks.table import number

_TABLE = "a SQLite table, a thousand rows a transaction"
#: Row, what one does there, and what it is compared with. The first ten that were measured are shown.
HEADLINES = {
    "write/str-key": ("Write, a call for each message, with a text key", _TABLE),
    "write/headers-same": ("… with headers too", _TABLE),
    "write/partitions": ("… into four partitions", _TABLE),
    "write/typed": ("… typed values (a `msgspec.Struct`)", _TABLE),
    "write/many-str": ("Write a thousand in a call", _TABLE),
    "read/batches": ("Read in batches, with a commit for each", "reading the rows of a SQLite table"),
    "read/to-arrow": ("Read into Arrow tables", "reading the rows of a SQLite table"),
    "handle/process": (
        "Call a handler for each message (`reader.process`)",
        "a loop over SQLite rows that stores its place each hundred",
    ),
    "queue/one": ("A queue: take a message, settle it, take the next", "a queue in a SQLite table"),
    "wait/write": ("Write a message that is delivered in an hour", "an INSERT into SQLite"),
    "streams/publish": ("Publish to a subject stream", "an INSERT into SQLite"),
}
_SHOWN = 10


def chosen(rows: Sequence[Row]) -> list[Row]:
    """Those rows of the run that are told first."""
    measured = {row.name: row for row in rows if row.ratio is not None}
    return [measured[name] for name in HEADLINES if name in measured][:_SHOWN]


def told(rows: Sequence[Row]) -> Iterator[str]:
    """A line of Markdown for each."""
    for row in chosen(rows):
        assert row.ratio is not None
        rate = number(row.value, row.unit)
        what, peer = HEADLINES[row.name]
        yield f"- {what}: **{rate}**, {times(row.ratio)} {peer}."


def times(ratio: float) -> str:
    """A ratio in words."""
    return f"{ratio:.1f} times the rate of" if ratio >= 1.05 else f"{100 * ratio:.0f} % of the rate of"
