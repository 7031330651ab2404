"""Groups of options that several verbs share, written down once.

A verb takes a group as one argument, a dataclass whose fields are options of typer:

    @dataclass(frozen=True)
    class Scope:
        partition: PartitionOption = None
        store: StoreOption = ""

    @app.command()
    @grouped
    def csv(path: PathArgument, scope: Scope) -> None: …

Typer sees `--partition` and `--store` in the place of `scope`; the verb gets a `Scope`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints


def grouped(verb: Callable[..., None]) -> Callable[..., None]:
    """A verb as typer is to see it: each field of its groups is a parameter."""
    hints = get_type_hints(verb, include_extras=True)
    given = signature(verb).parameters.values()
    groups = {each.name: hints[each.name] for each in given if is_dataclass(hints[each.name])}
    shown: list[Parameter] = []
    for each in given:
        if each.name in groups:
            shown += _shown(groups[each.name])
        else:
            shown.append(each.replace(annotation=hints[each.name], kind=Parameter.KEYWORD_ONLY))

    shown.sort(key=lambda each: each.name in ("store", "as_json"))  # last in every help

    @wraps(verb)
    def called(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        verb(**values)

    called.__signature__ = Signature(shown)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in shown}
    return called


def _shown(group: Any) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(
            each.name, Parameter.KEYWORD_ONLY, annotation=hints[each.name],
            default=Parameter.empty if each.default is MISSING else each.default,
        )
        for each in fields(group)
    ]  # fmt: skip
