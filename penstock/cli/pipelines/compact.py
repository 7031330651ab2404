"""`penstock pipeline compact`: the latest message of each key."""

from __future__ import annotations

from typing import Annotated, Any, cast

import typer

from penstock.cli import pipeline_progress
from penstock.cli.arguments import JsonOption, StoreOption, open_to_write
from penstock.cli.pipeline_progress import EngineOption, SinkArgument, SourceArgument, say_engine


def compact(
    source: SourceArgument,
    sink: SinkArgument,
    keyless: Annotated[
        str,
        typer.Option("--keyless", metavar="refuse|keep|drop", help="What becomes of messages without a key."),
    ] = "refuse",
    keep_tombstones: Annotated[
        str | None,
        typer.Option("--keep-tombstones", metavar="TIME", help="Write tombstones not older than that."),
    ] = None,
    engine: EngineOption = "auto",
    create: pipeline_progress.CreateOption = False,
    name: pipeline_progress.NameOption = None,
    master: pipeline_progress.MasterOption = None,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Copy the latest message of each key into another topic, in the order of the source.

    Run it again and it writes the keys that changed since. A tombstone removes its key.
    """
    from penstock.spark.pipelines import compact as pipeline

    watched = pipeline_progress.Watched()
    with (
        open_to_write(store) as opened,
        pipeline_progress.sinks_made(opened, source, sink, create=create, watched=watched),
    ):
        result = pipeline.compact(
            opened, source, sink, name=name, keyless=cast(Any, keyless), keep_tombstones=keep_tombstones,
            engine=cast(Any, engine), master=master, watch=watched, told=say_engine,
        )  # fmt: skip
        pipeline_progress.put_summary(watched.run, "compact", result, as_json=as_json)
