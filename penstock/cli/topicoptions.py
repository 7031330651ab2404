"""The options of a topic as `create` and `alter` take them, spelled once for both."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

import typer

from penstock.errors import InvalidOption
from penstock.options import size
from penstock.payload_options import FILES, Payloads

#: Those that were given on the command line, by name, as they were spelled.
Given = dict[str, Any]

#: Each option in the order of the help: its type, what stands for its value, and what it does.
_OPTIONS: dict[str, tuple[Any, str, str]] = {
    "partitions": (int, "N", "How many logs it is divided into."),
    "retention": (str, "AGE", "Older messages go: 7d, 12h; none keeps them for ever."),
    "max_bytes": (str, "SIZE", "The oldest go beyond this size per partition; or none."),
    "sync": (str, "disk|os", "What acknowledged means; cannot be changed later."),
    "segment_bytes": (str, "SIZE", "How large the files become."),
    "segment_age": (str, "AGE", "How old a file becomes before the next."),
    "max_message_bytes": (str, "SIZE", "The largest value."),
    "partitioner": (str, "range|diskq|kafka", "How a key chooses its partition."),
    "codecs": (str, "NAMES", "Codecs writers may use: raw,zstd,10001; none allows all."),
    "compress": (str, "zstd|none", "Compress each batch as a whole."),
    "index": (str, "key|none", "Let messages be read by their key."),
    "key_retention": (
        list[str],
        "PATTERN=AGE",
        "Messages of these keys go sooner: 'progress.*=10m'; once for each pattern, all anew; or none.",
    ),
    "payloads": (str, "PLACE", "Where large values lie: files, s3://bucket/prefix; or none."),
    "payloads_above": (str, "SIZE", "Values above this size lie there; 64KiB."),
}
#: Of these the word "none" is no limit, or no such thing.
_MAY_BE_NONE = ("retention", "max_bytes", "codecs", "compress", "index", "payloads")


def with_topic_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one option for each that a topic has, in the place of its parameter `options`."""
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for each in signature.parameters.values():
        parameters += _parameters() if each.name == "options" else [each]

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        spelled = {name: arguments.pop(name) for name in _OPTIONS}
        command(**arguments, options={name: value for name, value in spelled.items() if value is not None})

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _parameters() -> list[inspect.Parameter]:
    return [
        inspect.Parameter(
            name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None,
            annotation=Annotated[
                kind | None, typer.Option(f"--{name.replace('_', '-')}", metavar=metavar, help=does)
            ],
        )
        for name, (kind, metavar, does) in _OPTIONS.items()
    ]  # fmt: skip


def chosen(given: Given, payloads: Payloads | None) -> dict[str, Any]:
    """The options for `create_topic` and `Topic.alter`, of a topic that has these payloads."""
    options = {name: value for name, value in given.items() if not name.startswith("payloads")}
    if "codecs" in options:
        options["codecs"] = options["codecs"].split(",")
    if "key_retention" in options:
        options["key_retention"] = _lifetimes(options["key_retention"])
    place = _chosen_payloads(payloads, given.get("payloads"), given.get("payloads_above"))
    if place is not None:
        options["payloads"] = place
    return {
        name: None if name in _MAY_BE_NONE and value in ("none", ["none"]) else value
        for name, value in options.items()
    }


def _lifetimes(given: list[str]) -> dict[str, str]:
    """PATTERN=AGE, each; the one word "none" is no lifetimes."""
    if given == ["none"]:
        return {}
    found = {}
    for each in given:
        pattern, equals, age = each.rpartition("=")
        if not equals:
            raise InvalidOption(f"--key-retention {each!r} has no '='", hint="write it like 'progress.*=10m'")
        found[pattern] = age
    return found


def _chosen_payloads(before: Payloads | None, place: str | None, above: str | None) -> Payloads | str | None:
    """What two options say of payloads; what they leave open stays as it was."""
    if place == "none":
        if above is not None:
            raise InvalidOption("--payloads-above needs a place", hint="--payloads files")
        return place
    if place is None and above is None:
        return None
    if place is None and before is None:
        raise InvalidOption("--payloads-above needs --payloads", hint="--payloads files")
    chosen = (
        before if before is not None and place in (None, before.place) else Payloads(place=place or FILES)
    )
    if above is not None:
        return replace(chosen, above=size("--payloads-above", above))
    return replace(chosen, above=Payloads.above) if chosen.above is None else chosen
