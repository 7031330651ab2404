"""`penstock pipeline sessions`: runs of messages of a group without a long pause."""

from __future__ import annotations

from typing import Annotated, Any, cast

import typer

from penstock.cli import pipeline_progress
from penstock.cli.arguments import open_to_write
from penstock.cli.options import grouped
from penstock.cli.pipeline_progress import SinkArgument, SourceArgument, TimeOption


@grouped
def sessions(
    *,
    source: SourceArgument,
    sink: SinkArgument,
    gap: Annotated[str, typer.Option("--gap", metavar="TIME", help="The pause that ends a session.")],
    by: Annotated[str, typer.Option("--by", metavar="key|SQL", help="The group of a message.")] = "key",
    where: Annotated[
        str | None, typer.Option("--where", metavar="SQL", help="Which messages count; else all.")
    ] = None,
    time: TimeOption = "timestamp",
    late: Annotated[
        str, typer.Option("--late", metavar="TIME", help="How long a session waits for messages.")
    ] = "1m",
    asked: pipeline_progress.StreamOptions,
) -> None:
    """Write a row for each session: messages of a group that follow each other without a long pause.

    SQL sees the columns of a message, and its value as `text`.
    """
    from penstock.spark.pipelines import sessions as pipeline

    watched = pipeline_progress.Watched()
    with (
        open_to_write(asked.store) as opened,
        pipeline_progress.sinks_made(opened, source, sink, create=asked.create, watched=watched),
    ):
        result = pipeline.sessions(
            opened, source, sink, gap=gap, by=by, where=where, time=cast(Any, time), late=late,
            **asked.run(), watch=watched,
        )  # fmt: skip
        pipeline_progress.put_summary(watched.run, "sessions", result, as_json=asked.as_json)
