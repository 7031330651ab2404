"""`penstock pipeline redrive`: dead letters, chosen by SQL, back to their consumers."""

from __future__ import annotations

from typing import Annotated, Any, cast

import typer

from penstock.cli import pipeline_progress
from penstock.cli.arguments import JsonOption, StoreOption, TopicArgument, open_to_write
from penstock.cli.pipeline_progress import EngineOption, say_engine
from penstock.store.replay import parse_rate


def redrive(
    topic: TopicArgument,
    where: Annotated[
        str | None, typer.Option("--where", metavar="SQL", help="Only those of which this is true; on Spark.")
    ] = None,
    consumer: Annotated[
        str | None, typer.Option("--consumer", "-c", metavar="CONSUMER", help="Only those of this consumer.")
    ] = None,
    reason: Annotated[
        str | None,
        typer.Option("--reason", metavar="TEXT", help="Only those whose reason or error says so."),
    ] = None,
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="RATE", help="At most so many a second: 500/s.")
    ] = None,
    engine: EngineOption = "auto",
    name: pipeline_progress.NameOption = None,
    master: pipeline_progress.MasterOption = None,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Deliver dead letters of a topic again to the consumers that rejected them.

    For a few of them, chosen by number, there is `penstock dead replay`.
    """
    from penstock.spark.pipelines import redrive as pipeline

    watched = pipeline_progress.Watched()
    with open_to_write(store) as opened:
        result = pipeline.redrive(
            opened, topic, where=where, consumer=consumer, reason=reason, engine=cast(Any, engine),
            rate=None if rate is None else parse_rate(rate), name=name, master=master, watch=watched,
            told=say_engine,
        )  # fmt: skip
        pipeline_progress.put_summary(watched.run, "redrive", result, as_json=as_json)
