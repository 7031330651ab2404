"""What a pipeline's function takes, read off its signature: no Spark, no files.

    def enrich(orders, payments, customers, *, country: str = "NL", least: float = 0):
               sources, in order tables       parameters, by name

The first positional arguments are the sources. A table goes to the argument of its name. Every other
argument is keyword-only: a parameter, which `--set name=value` and `.run(parameters=…)` fill in.
"""

from __future__ import annotations

import inspect
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec

from penstock.clock import Clock
from penstock.errors import InvalidOption, PenstockError, PipelineFailed, WrongType
from penstock.parse import (
    Duration,
    Size,
    consumer_name,
    datetime_ns,
    one_of,
    pipeline_name,
    seconds,
    size,
    topic_name,
    whole,
)
from penstock.place import spot


def line_of(error: BaseException, path: str) -> str:
    """`line 7`, if the error passed through this file; else nothing."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}"
    passed = traceback.extract_tb(error.__traceback__)
    lines = [each.lineno for each in passed if os.path.abspath(each.filename) == os.path.abspath(path)]
    return f"line {lines[-1]}" if lines else ""


@contextmanager
def blamed(what: str, path: str) -> Iterator[None]:
    """Turn any error of the user's code into `PipelineFailed`; Penstock's own errors pass as they are."""
    try:
        yield
    except PenstockError:
        raise
    except Exception as error:  # the user's code may raise anything, and Spark does
        told = str(error).strip().partition("\n")[0]
        line = line_of(error, path)
        raise PipelineFailed(
            f"{what} failed: {type(error).__name__}: {told}", hint=f"{path}, {line}" if line else ""
        ) from error


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


_MISSING = inspect.Parameter.empty
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Parameter(NamedTuple):
    """A keyword argument that the caller of the pipeline may choose."""

    name: str
    #: What its value must be, by its annotation or else its default.
    kind: Any
    default: Any

    @property
    def is_required(self) -> bool:
        """Whether the parameter has no default."""
        return self.default is _MISSING


Parameters = Mapping[str, Parameter]


def parameters_of(
    function: Callable[..., Any], *, sources: Sequence[str], tables: Sequence[str]
) -> dict[str, Parameter]:
    """The parameters of a function with these sources and tables.

    Raises `InvalidOption` when the function cannot be called with them.
    """
    arguments = list(inspect.signature(function).parameters.values())
    _refuse_stars(function, arguments)
    positional = [each for each in arguments if each.kind in _POSITIONAL]
    others = positional[len(sources) :]
    strangers = [each.name for each in others if each.name not in tables]
    if len(positional) < len(sources) or strangers:
        raise _wrong_number(function, positional, sources, strangers)
    named = {each.name for each in arguments if each not in positional[: len(sources)]}
    for table in tables:
        if table not in named:
            raise InvalidOption(
                f"{function.__name__}() has no argument {table!r} for the table of that name",
                hint="sources come first, then tables, each by its name",
            )
    return {
        each.name: Parameter(each.name, _kind(function, each), each.default)
        for each in arguments
        if each.kind is inspect.Parameter.KEYWORD_ONLY and each.name not in tables
    }


def chosen(known: Parameters, given: Mapping[str, object]) -> dict[str, Any]:
    """The value of each parameter that was given, as its type; text is understood, all else must fit.

    Raises `InvalidOption` for one that is unknown, does not fit, or is needed and missing.
    """
    for name in given:
        if name not in known:
            there = f"parameters: {', '.join(known)}" if known else "it has none"
            raise InvalidOption(f"the pipeline has no parameter {name!r}", hint=there)
    for each in known.values():
        if each.is_required and each.name not in given:
            raise InvalidOption(
                f"parameter {each.name!r} is needed", hint=f"--set {each.name}={_told(each.kind)}"
            )
    return {name: _value(known[name], value) for name, value in given.items()}


def _refuse_stars(function: Callable[..., Any], arguments: Sequence[inspect.Parameter]) -> None:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    for each in arguments:
        if each.kind in stars:
            raise InvalidOption(
                f"{function.__name__}() takes {stars[each.kind]}{each.name}: name each argument",
                hint="one for each source, then tables and parameters",
            )


def _wrong_number(
    function: Callable[..., Any], positional: Sequence[inspect.Parameter], sources: Sequence[str],
    strangers: Sequence[str],
) -> InvalidOption:  # fmt: skip
    if strangers and len(positional) > len(sources):
        return InvalidOption(
            f"{function.__name__}() has an argument {strangers[0]!r} that is neither a source nor a table",
            hint=f"a parameter stands behind a star: def {function.__name__}(…, *, {strangers[0]}=…)",
        )
    return InvalidOption(
        f"{function.__name__}() takes {len(positional)} positional arguments, "
        f"but the pipeline has {len(sources)} sources: {', '.join(sources)}",
        hint="one argument for each source, in their order",
    )


def _kind(function: Callable[..., Any], argument: inspect.Parameter) -> Any:
    kind = argument.annotation
    if isinstance(kind, str):  # `from __future__ import annotations` in the user's file
        try:
            kind = eval(kind, function.__globals__)
        except Exception as error:  # noqa: BLE001 - whatever an annotation does
            raise InvalidOption(
                f"the annotation {kind!r} of {argument.name!r} cannot be understood: {error}"
            ) from None
    if kind is not _MISSING:
        return kind
    return str if argument.default is _MISSING or argument.default is None else type(argument.default)


def _value(parameter: Parameter, value: object) -> Any:
    try:
        return _converted(parameter.kind, value)
    except (msgspec.ValidationError, msgspec.DecodeError):
        raise InvalidOption(
            f"parameter {parameter.name!r} is {_told(parameter.kind)}, not {value!r}"
        ) from None
    except TypeError:  # a type that msgspec does not know
        if isinstance(value, parameter.kind):
            return value
        raise InvalidOption(
            f"parameter {parameter.name!r} is {_told(parameter.kind)}: it cannot be given as text"
        ) from None


def _converted(kind: Any, value: object) -> Any:
    if not isinstance(value, str):
        return msgspec.convert(value, kind)
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        return msgspec.json.decode(value, type=kind)  # lists and dicts


def _told(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind).removeprefix("typing.")
