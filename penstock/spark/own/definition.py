"""What `@penstock.pipeline` was given, checked when the file is read: a wrong name is told there and then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from penstock.clock import Clock
from penstock.errors import InvalidOption, WrongType
from penstock.options import (
    Duration,
    Size,
    consumer_name,
    datetime_ns,
    one_of,
    pipeline_name,
    seconds,
    size,
    spot,
    topic_name,
    whole,
)

Output = Literal["append", "update"]
_NS_PER_MS = 1_000_000


@dataclass(frozen=True)
class Definition:
    """A pipeline as its author describes it."""

    name: str
    #: The topics that are read, one for each of the function's first arguments.
    sources: tuple[str, ...]
    #: The topic that is written; None: each row names its own in a column `topic`.
    sink: str | None
    #: Where each table lies, by the name of the argument that takes it.
    tables: Mapping[str, str]
    #: A batch begins this often; None: as soon as the one before is done.
    trigger_s: float | None
    #: Under this name the positions in the sources show; None: under that of the pipeline.
    consumer: str | None
    #: Retention waits for the consumer; None leaves it as it was declared.
    important: bool | None
    #: Options of the source that say where the very first run begins.
    starting: Mapping[str, str]
    #: "update" writes a row of an aggregate each time it changes, "append" once it is final.
    output: Output
    #: With rows that become JSON: the column that is the message's key as well.
    key: str | None
    #: Most messages and bytes that a batch takes from each source.
    max_rows: int | None
    max_bytes: int | None


def define(
    name: str, *, source: str | Sequence[str], sink: str | None, tables: Mapping[str, str] | None,
    trigger: Duration | None, consumer: str | None, important: bool | None, starting: str | datetime,
    output: Output, key: str | None, max_rows: int | None, max_bytes: Size | None,
) -> Definition:  # fmt: skip
    """Check everything that can be checked without a store and without Spark."""
    sources = _sources(source)
    if sink is not None:
        topic_name(sink)
        refuse_loop(name, sink, sources)
    one_of("output", output, ("append", "update"))
    return Definition(
        name=pipeline_name(name), sources=sources, sink=sink, tables=_tables(tables or {}),
        trigger_s=None if trigger is None else seconds("trigger", trigger),
        consumer=None if consumer is None else consumer_name(consumer), important=important,
        starting=_starting(starting), output=output, key=key,
        max_rows=None if max_rows is None else whole("max_rows", max_rows, 1, 2**62),
        max_bytes=None if max_bytes is None else size("max_bytes", max_bytes),
    )  # fmt: skip


def refuse_loop(name: str, sink: str, sources: Sequence[str]) -> None:
    """Raise `InvalidOption` when a pipeline would read what it wrote, and never come to an end."""
    if sink in sources:
        raise InvalidOption(
            f"pipeline {name!r} writes to {sink!r}, which it reads: it would never come to an end",
            hint="write to another topic",
        )


def _sources(source: object) -> tuple[str, ...]:
    if isinstance(source, str):
        return (topic_name(source),)
    if not isinstance(source, Sequence):
        raise WrongType(f"source is a topic's name or a list of them, not {type(source).__name__}")
    if not source:
        raise InvalidOption("a pipeline needs a source", hint='source="orders"')
    return tuple(topic_name(each) for each in source)


def _tables(tables: object) -> dict[str, str]:
    if not isinstance(tables, Mapping):
        raise WrongType(f"tables is a dict of names and paths, not {type(tables).__name__}")
    for name, path in tables.items():
        if not (isinstance(name, str) and name.isidentifier()):
            raise InvalidOption(f"{name!r} cannot be a table's name", hint="it is the name of an argument")
        if not isinstance(path, str):
            raise WrongType(f"table {name!r} is given by a path, not by {type(path).__name__}")
    return dict(tables)


def _starting(place: object) -> dict[str, str]:
    """A place as the source spells it."""
    if place in ("earliest", "latest"):
        return {"startingOffsets": str(place)}
    if isinstance(place, datetime):
        return _since(datetime_ns(place))
    found = spot(place, 0, Clock.now_ns()) if isinstance(place, str) and not place.isdecimal() else None
    if found is None or found.kind != "time":
        raise InvalidOption(
            f"starting={place!r} is not understood", hint='"earliest", "latest", an age ("2h") or a time'
        )
    return _since(found.value)


def _since(moment_ns: int) -> dict[str, str]:
    return {"startingTimestamp": str(max(moment_ns, 0) // _NS_PER_MS)}
