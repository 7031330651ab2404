"""`penstock pipeline enrich`: each message with the row of a table that belongs to it."""

from __future__ import annotations

from typing import Annotated, Any, cast

import typer

from penstock.cli import pipeline_progress
from penstock.cli.arguments import open_to_write
from penstock.cli.options import grouped
from penstock.cli.pipeline_progress import SinkArgument, SourceArgument


@grouped
def enrich(
    *,
    source: SourceArgument,
    sink: SinkArgument,
    table: Annotated[
        str, typer.Option("--table", metavar="PATH", help="A Delta, Parquet, CSV or JSON table.")
    ],
    column: Annotated[
        str, typer.Option("--column", metavar="NAME", help="The column by which its rows are found.")
    ],
    on: Annotated[
        str, typer.Option("--on", metavar="SQL", help="What it must equal, of a message.")
    ] = "string(key)",
    into: Annotated[
        str, typer.Option("--into", metavar="FIELD", help="The field that holds the row.")
    ] = "row",
    fields: Annotated[
        str | None, typer.Option("--fields", metavar="A,B", help="The columns of the row; else all.")
    ] = None,
    unmatched: Annotated[
        str, typer.Option("--unmatched", metavar="keep|drop", help="What becomes of messages without a row.")
    ] = "keep",
    asked: pipeline_progress.StreamOptions,
) -> None:
    """Copy messages into another topic, each with the row of a table that belongs to it.

    The table is read when the run begins. SQL sees the columns of a message, and its value as `text`.
    """
    from penstock.spark.pipelines import enrich as pipeline

    watched = pipeline_progress.Watched()
    with (
        open_to_write(asked.store) as opened,
        pipeline_progress.sinks_made(opened, source, sink, create=asked.create, watched=watched),
    ):
        result = pipeline.enrich(
            opened, source, sink, table=table, column=column, on=on, into=into,
            fields=() if fields is None else [each.strip() for each in fields.split(",")],
            unmatched=cast(Any, unmatched), **asked.run(), watch=watched,
        )  # fmt: skip
        pipeline_progress.put_summary(watched.run, "enrich", result, as_json=asked.as_json)
