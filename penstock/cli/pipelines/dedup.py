"""`penstock pipeline dedup`: each message once within a time."""

from __future__ import annotations

from typing import Annotated, Any, cast

import typer

from penstock.cli import pipeline_progress
from penstock.cli.arguments import open_to_write
from penstock.cli.options import grouped
from penstock.cli.pipeline_progress import SinkArgument, SourceArgument, TimeOption


@grouped
def dedup(
    *,
    source: SourceArgument,
    sink: SinkArgument,
    within: Annotated[
        str, typer.Option("--within", metavar="TIME", help="How long a message is remembered.")
    ],
    by: Annotated[
        str, typer.Option("--by", metavar="key|value|SQL", help="What makes two messages alike.")
    ] = "key",
    time: TimeOption = "written_at",
    asked: pipeline_progress.StreamOptions,
) -> None:
    """Copy each message into another topic unless one like it came a short time before.

    A stream: it runs until it is stopped, or --once over what is there; it goes on where it stopped.
    """
    from penstock.spark.pipelines import dedup as pipeline

    watched = pipeline_progress.Watched()
    with (
        open_to_write(asked.store) as opened,
        pipeline_progress.sinks_made(opened, source, sink, create=asked.create, watched=watched),
    ):
        result = pipeline.dedup(
            opened, source, sink, within=within, by=by, time=cast(Any, time), **asked.run(), watch=watched,
        )  # fmt: skip
        pipeline_progress.put_summary(watched.run, "dedup", result, as_json=asked.as_json)
