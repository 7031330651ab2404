"""What a pipeline's function takes, read off its signature: no Spark, no files.

    def enrich(orders, payments, customers, *, country: str = "NL", least: float = 0):
               sources, in order tables       parameters, by name

The first positional arguments are the sources. A table goes to the argument of its name. Every other
argument is keyword-only: a parameter, which `--set name=value` and `.run(parameters=…)` fill in.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from penstock.errors import InvalidOption

_MISSING = inspect.Parameter.empty
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Parameter(NamedTuple):
    """A keyword argument that whoever runs the pipeline may choose."""

    name: str
    #: What its value must be, by its annotation or else its default.
    kind: Any
    default: Any

    @property
    def is_required(self) -> bool:
        return self.default is _MISSING


Parameters = Mapping[str, Parameter]


def parameters(
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
