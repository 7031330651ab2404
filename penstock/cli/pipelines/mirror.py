"""`penstock pipeline mirror`: a topic copied into another store."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import pipeline_progress as running
from penstock.cli.arguments import JsonOption, StoreOption, flag, open_to_write
from penstock.cli.pipeline_progress import CreateOption, OnceOption, SourceArgument, TriggerOption


def mirror(
    source: SourceArgument,
    to: Annotated[str, typer.Argument(metavar="STORE", help="The folder of the other store.")],
    sink: Annotated[
        str | None, typer.Option("--topic", metavar="NAME", help="The topic there; else of the same name.")
    ] = None,
    important: Annotated[bool, flag("--important", help="Retention here waits for the mirror.")] = False,
    create: CreateOption = False,
    once: OnceOption = False,
    every: TriggerOption = None,
    name: running.NameOption = None,
    master: running.MasterOption = None,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Copy a topic into a topic of another store as it grows, each message once."""
    from penstock.spark.pipelines import mirror as pipeline

    watched = running.Watched()
    with open_to_write(store) as opened:
        if create:
            with open_to_write(to) as other:
                running.create_sinks(opened, source, sink or source, create=True, into=other)
        result = pipeline.mirror(
            opened, source, to=to, sink=sink, important=important or None, once=once, trigger=every,
            name=name, master=master, watch=watched,
        )  # fmt: skip
        running.put_summary(watched.run, "mirror", result, as_json=as_json)
