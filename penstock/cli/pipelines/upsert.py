"""`penstock pipeline upsert`: the latest message of each key as a row of a Delta table."""

from __future__ import annotations

from typing import Annotated, Any, cast

import typer

from penstock.arrow import require_pyarrow
from penstock.cli import pipeline_progress
from penstock.cli.arguments import JsonOption, StoreOption, flag, open_to_write
from penstock.cli.pipeline_progress import EngineOption, SourceArgument, say_engine
from penstock.cli.pipelines.archive import StorageOption, TableArgument, table_options


def upsert(
    source: SourceArgument,
    table: TableArgument,
    schema: Annotated[
        str | None,
        typer.Option("--schema", metavar="FILE|DDL", help="Values are JSON with these fields: 'id long'."),
    ] = None,
    follow: Annotated[bool, flag("--follow", "-f", help="Go on as messages come.")] = False,
    every: Annotated[
        str, typer.Option("--every", metavar="TIME", help="With --follow: how often there is a MERGE.")
    ] = "10s",
    important: Annotated[
        bool, flag("--important", help="Retention waits for the table from now on.")
    ] = False,
    engine: EngineOption = "auto",
    name: pipeline_progress.NameOption = None,
    master: pipeline_progress.MasterOption = None,
    storage_option: StorageOption = None,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Keep a Delta table up to date with the latest message of each key; tombstones delete rows.

    Where it stands is kept in the table itself: run it again and it goes on, also after kill -9.
    """
    require_pyarrow()
    from penstock.spark.pipelines import upsert as pipeline

    watched = pipeline_progress.Watched()
    with open_to_write(store) as opened:
        result = pipeline.upsert(
            opened, source, table, schema=schema, follow=follow, every=every, important=important or None,
            engine=cast(Any, engine), name=name, master=master, watch=watched, on_engine=say_engine,
            storage_options=table_options(table, storage_option or ()),
        )  # fmt: skip
        pipeline_progress.put_summary(watched.run, "upsert", result, as_json=as_json)
