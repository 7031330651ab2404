"""`penstock pipeline archive`: a topic into a Delta table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated

import typer

from penstock.arrow import require_pyarrow
from penstock.cli import pipeline_progress
from penstock.cli.arguments import JsonOption, StoreOption, TopicArgument, flag
from penstock.errors import InvalidOption

TableArgument = Annotated[
    str, typer.Argument(metavar="TABLE", help="A folder, or s3://bucket/prefix; made if it is not there.")
]
StorageOption = Annotated[
    list[str] | None,
    typer.Option("--storage-option", metavar="NAME=VALUE", help="For S3; else what is in AWS_…"),
]


def archive(
    topic: TopicArgument,
    table: TableArgument,
    follow: Annotated[bool, flag("--follow", "-f", help="Go on as messages come.")] = False,
    important: Annotated[
        bool, flag("--important", help="Retention waits for the archive from now on.")
    ] = False,
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema",
            metavar="FILE|DDL",
            help="Values are JSON with these columns: 'id long, paid boolean'.",
        ),
    ] = None,
    file_size: Annotated[
        str, typer.Option("--file-size", metavar="SIZE", help="About how large a data file may become.")
    ] = "128MiB",
    every: Annotated[
        str, typer.Option("--every", metavar="TIME", help="With --follow: how often there is a commit.")
    ] = "10s",
    on_gap: Annotated[
        str,
        typer.Option(
            "--on-gap",
            metavar="raise|skip",
            help="Messages that are damaged, or gone before they were archived.",
        ),
    ] = "raise",
    consumer: Annotated[
        str | None,
        typer.Option("--consumer", metavar="NAME", help="Who shows the lag; else like the pipeline."),
    ] = None,
    name: pipeline_progress.NameOption = None,
    master: pipeline_progress.MasterOption = None,
    storage_option: StorageOption = None,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Bring a topic into a Delta table, each message once.

    Where it stands is kept in the table itself: run it again and it goes on, also after kill -9.
    Any reader of Delta can query the table: polars, DuckDB, pandas, Spark.
    """
    require_pyarrow()
    from penstock.spark.pipelines import archive as pipeline

    watched = pipeline_progress.Watched()
    result = pipeline.archive(
        store, topic, table, name=name, master=master, follow=follow, important=important or None,
        schema=schema, file_size=file_size, every=every, consumer=consumer, on_gap=pipeline.gap(on_gap),
        storage_options=table_options(table, storage_option or ()), watch=watched,
    )  # fmt: skip
    pipeline_progress.put_summary(watched.run, "archive", result, as_json=as_json)


def table_options(table: str, given: Sequence[str]) -> dict[str, str]:
    """What was given, and for S3 what the environment says besides: executors may not have it."""
    wrong = next((each for each in given if "=" not in each), None)
    if wrong is not None:
        raise InvalidOption(f"--storage-option {wrong!r}", hint="write it like AWS_REGION=eu-north-1")
    options = dict(each.split("=", 1) for each in given)
    if not table.startswith(("s3://", "s3a://")):
        return options
    return {name: value for name, value in os.environ.items() if name.startswith("AWS_")} | options
