"""`penstock pipeline mirror`: a topic copied into another store."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import pipeline_progress
from penstock.cli.arguments import flag, open_to_write
from penstock.cli.options import grouped
from penstock.cli.pipeline_progress import SourceArgument


@grouped
def mirror(
    *,
    source: SourceArgument,
    to: Annotated[str, typer.Argument(metavar="STORE", help="The folder of the other store.")],
    sink: Annotated[
        str | None, typer.Option("--topic", metavar="NAME", help="The topic there; else of the same name.")
    ] = None,
    important: Annotated[bool, flag("--important", help="Retention here waits for the mirror.")] = False,
    asked: pipeline_progress.StreamOptions,
) -> None:
    """Copy a topic into a topic of another store as it grows, each message once."""
    from penstock.spark.pipelines import mirror as pipeline

    watched = pipeline_progress.Watched()
    with (
        open_to_write(asked.store) as opened,
        pipeline_progress.sinks_made(
            opened, source, sink or source, create=asked.create, watched=watched, into=to
        ),
    ):
        result = pipeline.mirror(
            opened, source, to=to, sink=sink, important=important or None, **asked.run(), watch=watched,
        )  # fmt: skip
        pipeline_progress.put_summary(watched.run, "mirror", result, as_json=asked.as_json)
