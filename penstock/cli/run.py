"""`penstock run FILE.py[:NAME]`: one of the user's own pipelines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from penstock.cli.arguments import JsonOption, StoreOption, flag
from penstock.cli.pipeline_progress import MasterOption, NameOption, followed, put_summary
from penstock.errors import InvalidOption

_KIND = "run"


def run(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE.py[:NAME]", help="Where the pipeline is; NAME if there are several."),
    ],
    once: Annotated[bool, flag("--once", help="End when all that is there now is done.")] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="A parameter of it, or the path of a table; repeatable."
        ),
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark, by its own name; repeatable."),
    ] = None,
    name: NameOption = None,
    master: MasterOption = None,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Run a pipeline of your own, made by @penstock.pipeline; it goes on where it stopped."""
    from penstock.spark.user.load import load

    ended = load(file).run(
        store, once=once, name=name, parameters=_pairs("--set", settings or ()), master=master,
        conf=_pairs("--conf", conf or ()), watch=followed,
    )  # fmt: skip
    put_summary(ended, _KIND, None, as_json=as_json)


def _pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise InvalidOption(f"{option} {text}: NAME=VALUE is expected")
        found[name] = value
    return found
