"""`penstock pipeline replay`: a topic, or an archive, into a topic."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import output, pipeline_progress
from penstock.cli.arguments import (
    PLACE_HELP,
    JsonOption,
    StoreOption,
    flag,
    open_to_read,
    open_to_write,
    parse_place,
)
from penstock.cli.pipelines.archive import table_options
from penstock.errors import InvalidOption
from penstock.place import Place
from penstock.store.replay import PartitionRange, ReplayPlan, parse_rate, parse_speed, plan_replay
from penstock.store.replay import replay as replay_topic


def replay(
    topics: Annotated[
        list[str],
        typer.Argument(
            metavar="[SOURCE] SINK", help="The topic to read (unless --from-table), and to write."
        ),
    ],
    start: Annotated[
        str, typer.Option("--from", metavar="PLACE", help=f"Where to begin: {PLACE_HELP}.")
    ] = "earliest",
    stop: Annotated[str, typer.Option("--to", metavar="PLACE", help="Where to end.")] = "latest",
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="N/s", help="Messages a second; else as fast as it can.")
    ] = None,
    speed: Annotated[
        str | None,
        typer.Option("--speed", metavar="X", help="So many times as fast as they were written: 1, 60, 0.5."),
    ] = None,
    dry_run: Annotated[bool, flag("--dry-run", help="Say what would be copied, and copy nothing.")] = False,
    from_table: Annotated[
        str | None,
        typer.Option("--from-table", metavar="TABLE", help="Read an archive instead of a topic, on Spark."),
    ] = None,
    storage_option: Annotated[
        list[str] | None,
        typer.Option("--storage-option", metavar="NAME=VALUE", help="For a table in S3."),
    ] = None,
    create: pipeline_progress.CreateOption = False,
    name: pipeline_progress.NameOption = None,
    master: pipeline_progress.MasterOption = None,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Copy messages into a topic, each once: keys, values, headers and times stay as they were.

    Run it again and it goes on where it stopped, also after kill -9.
    """
    places = parse_place(start), parse_place(stop)
    if from_table is None:
        source, sink = _two(topics)
        if dry_run:
            with open_to_read(store) as opened:
                _put_plan(plan_replay(opened, source, sink, start=places[0], stop=places[1]), as_json=as_json)
            return
        watched = pipeline_progress.Watched()
        with (
            open_to_write(store) as opened,
            pipeline_progress.sinks_made(opened, source, sink, create=create, watched=watched),
        ):
            result = replay_topic(
                opened, source, sink, start=places[0], stop=places[1], name=name, watch=watched,
                rate=None if rate is None else parse_rate(rate),
                speed=None if speed is None else parse_speed(speed),
            )  # fmt: skip
            pipeline_progress.put_summary(watched.run, "replay", result, as_json=as_json)
        return
    if rate is not None or speed is not None:
        raise InvalidOption(
            "a table is replayed as fast as it goes", hint="--rate and --speed are for topics"
        )
    if create:
        raise InvalidOption("--create with --from-table", hint="penstock topic create makes the sink")
    options = table_options(from_table, storage_option or ())
    _from_table(from_table, topics, options, places, name, master, store, dry_run=dry_run, as_json=as_json)


def _from_table(
    table: str, topics: list[str], options: dict[str, str], places: tuple[Place, Place], name: str | None,
    master: str | None, store: str, *, dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    from penstock.arrow import require_pyarrow

    require_pyarrow()
    from penstock.spark.pipelines import replay_table as pipeline

    if len(topics) != 1:
        raise InvalidOption(f"{len(topics)} topics with --from-table", hint="name the sink alone")
    start, stop = places
    if dry_run:
        with open_to_read(store) as opened:
            plan = pipeline.plan_replay_table(
                opened, table, topics[0], start=start, stop=stop, storage_options=options
            )
        _put_plan(plan, as_json=as_json)
        return
    watched = pipeline_progress.Watched()
    with open_to_write(store) as opened:
        result = pipeline.replay_table(
            opened, table, topics[0], start=start, stop=stop, storage_options=options, name=name,
            master=master, watch=watched,
        )  # fmt: skip
        pipeline_progress.put_summary(watched.run, "replay", result, as_json=as_json)


def _two(topics: list[str]) -> tuple[str, str]:
    if len(topics) != 2:
        raise InvalidOption(
            f"{len(topics)} topics: two are needed", hint="penstock pipeline replay SOURCE SINK"
        )
    return topics[0], topics[1]


def _put_plan(plan: ReplayPlan, *, as_json: bool) -> None:
    if as_json:
        output.put_json(plan)
        return
    amount = f"{output.counted(plan.messages, 'message')}, about {output.size(plan.bytes)}"
    output.put_table(f"{plan.source} to {plan.sink}: {amount}", plan.partitions, _PLAN_COLUMNS)


_PLAN_COLUMNS: tuple[output.Column[PartitionRange], ...] = (
    ("partition", lambda each: str(each.partition), True),
    ("from", lambda each: output.count(each.start), True),
    ("to", lambda each: output.count(each.stop), True),
    ("messages", lambda each: output.count(each.messages), True),
    ("about", lambda each: output.size(each.bytes), True),
)
