"""`penstock pipeline rollup`: counts, bytes, rates and percentiles by window and group."""

from __future__ import annotations

from typing import Annotated, Any, cast

import typer

from penstock.cli import pipeline_progress
from penstock.cli.arguments import open_to_write
from penstock.cli.options import grouped
from penstock.cli.pipeline_progress import SourceArgument, TimeOption


@grouped
def rollup(
    *,
    source: SourceArgument,
    sink: Annotated[
        str | None, typer.Argument(metavar="[SINK]", help="A topic that gets each window as JSON.")
    ] = None,
    window: Annotated[str, typer.Option("--window", metavar="TIME", help="How long a window is.")] = "1m",
    by: Annotated[
        str | None, typer.Option("--by", metavar="key|SQL", help="The group of a message; else all are one.")
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", metavar="SQL", help="Which messages count; else all.")
    ] = None,
    value: Annotated[
        str | None, typer.Option("--value", metavar="SQL", help="A number: p50, p95, p99 of it are taken.")
    ] = None,
    time: TimeOption = "timestamp",
    late: Annotated[
        str, typer.Option("--late", metavar="TIME", help="How long a window waits for messages.")
    ] = "1m",
    table: Annotated[
        str | None, typer.Option("--table", metavar="DELTA", help="A Delta table, of all there is.")
    ] = None,
    mode: Annotated[
        str, typer.Option("--mode", metavar="overwrite|append", help="How the table is written.")
    ] = "overwrite",
    plot: Annotated[
        str | None, typer.Option("--plot", metavar="FILE.png", help="A picture, of all there is.")
    ] = None,
    top: Annotated[int, typer.Option("--top", metavar="N", help="How many groups the picture shows.")] = 8,
    asked: pipeline_progress.StreamOptions,
) -> None:
    """Measure a topic by window of time and by group: into a topic, a Delta table, a picture.

    SQL sees the columns of a message, and its value as `text`: get_json_object(text, '$.country').
    """
    from penstock.spark.pipelines import rollup as pipeline

    watched = pipeline_progress.Watched()
    with (
        open_to_write(asked.store) as opened,
        pipeline_progress.sinks_made(opened, source, sink, create=asked.create, watched=watched),
    ):
        result = pipeline.rollup(
            opened, source, sink, window=window, by=by, where=where, value=value, time=cast(Any, time),
            late=late, table=table, mode=cast(Any, mode), plot=plot, top=top, **asked.run(), watch=watched,
        )  # fmt: skip
        pipeline_progress.put_summary(watched.run, "rollup", result, as_json=asked.as_json)
