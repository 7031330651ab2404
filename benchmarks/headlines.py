"""The rows that a newcomer looks at first, in their words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.rows import Row
from benchmarks.table import number

#: Row, and what one does there. The first ten that were measured are shown.
HEADLINES = {
    "write/str-key": "Write, a call for each message, with a text key",
    "write/headers-same": "… with headers too",
    "write/partitions": "… into four partitions",
    "write/typed": "… typed values (a `msgspec.Struct`)",
    "write/many-str": "Write a thousand in a call",
    "read/batches": "Read in batches, with a commit for each",
    "read/to-arrow": "Read into Arrow tables",
    "handle/process": "Call a handler for each message (`reader.process`)",
    "queue/one": "A queue: take a message, settle it, take the next",
    "wait/write": "Write a message that is delivered in an hour",
    "durable/one": "Write and wait until it is on disk",
    "streams/publish": "Publish to a subject stream",
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
        yield f"- {HEADLINES[row.name]}: **{rate}**, {times(row.ratio)} {row.peer}."


def times(ratio: float) -> str:
    """How much of the peer's rate that is, in words."""
    return f"{ratio:.1f} times" if ratio >= 1.05 else f"{ratio:.0%} of"
