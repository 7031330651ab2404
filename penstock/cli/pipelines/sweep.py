"""`penstock pipeline sweep`: bodies without a message, and messages without a body."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from penstock.cli import output, pipeline_progress
from penstock.cli.arguments import JsonOption, StoreOption, TopicArgument, flag, open_to_write
from penstock.cli.failures import Exit
from penstock.cli.pipeline_progress import EngineOption, say_engine
from penstock.clock import Clock

if TYPE_CHECKING:
    from penstock.spark.pipelines.sweep import Swept
    from penstock.spark.pipelines.sweep_engines import SweepFinding


ApplyOption = Annotated[bool, flag("--apply", help="Delete what has no message; else it is only told.")]
GraceOption = Annotated[
    str, typer.Option("--grace", metavar="TIME", help="Leave alone what was stored less than so long ago.")
]
MostOption = Annotated[
    int, typer.Option("--limit", metavar="N", help="Tell so many of each kind one by one.", min=0)
]


def sweep(
    topic: TopicArgument,
    apply: ApplyOption = False,
    grace: GraceOption = "24h",
    limit: MostOption = 100,
    engine: EngineOption = "auto",
    name: pipeline_progress.NameOption = None,
    master: pipeline_progress.MasterOption = None,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Find bodies without a message and messages without a body; exit code 3 when there are such messages.

    Only the topic's own bodies are looked at. Nothing is deleted without --apply.
    """
    from penstock.spark.pipelines import sweep as pipeline

    watched = pipeline_progress.Watched()
    with open_to_write(store) as opened:
        result = pipeline.sweep(
            opened, topic, apply=apply, grace=grace, most=limit, engine=cast(Any, engine), name=name,
            master=master, watch=watched, told=say_engine,
        )  # fmt: skip
        if not as_json:
            _put(result)
        pipeline_progress.put_summary(watched.run, "sweep", result, as_json=as_json)
    if result.losses:
        raise typer.Exit(Exit.UNHEALTHY)


def _put(result: Swept) -> None:
    noun = "body" if result.bodies == 1 else "bodies"
    output.put_text(
        f"{result.topic}: {output.count(result.bodies)} {noun}, {output.size(result.bytes)}; "
        f"{output.counted(result.messages, 'message')} with a value outside the log"
    )
    output.put_table("", _lines(result), _LINE_COLUMNS)
    output.put_table("", result.findings, _COLUMNS)
    if (result.orphans or result.unfinished) and not result.applied:
        output.say("nothing was deleted: --apply deletes orphans and what was never finished")


def _lines(result: Swept) -> list[tuple[str, int, int | None, str]]:
    done = f"{output.count(result.deleted)} deleted with those never finished" if result.applied else ""
    lines = [
        ("orphans", result.orphans, result.orphan_bytes, done or "no message refers to them"),
        ("young", result.young, None, "their messages may be on their way"),
        ("unfinished", result.unfinished, None, "never stored whole"),
        ("partly dead", result.partly_dead, result.dead_bytes, "packs some of whose messages are gone"),
        ("losses", result.losses, None, "messages whose body is missing"),
        ("elsewhere", result.elsewhere, None, "messages whose body is at a place of another topic"),
    ]
    return [line for line in lines if line[1] or line[0] in ("orphans", "losses")]


def _message(found: SweepFinding) -> str:
    return "" if found.partition is None else f"{found.partition}:{found.offset}"


_LINE_COLUMNS: tuple[output.Column[tuple[str, int, int | None, str]], ...] = (
    ("what", lambda line: line[0], False),
    ("count", lambda line: output.count(line[1]), True),
    ("size", lambda line: "" if line[2] is None else output.size(line[2]), True),
    ("", lambda line: line[3], False),
)
_COLUMNS: tuple[output.Column[SweepFinding], ...] = (
    ("found", lambda found: found.kind, False),
    ("place", lambda found: found.place, False),
    ("body", lambda found: found.name, False),
    ("size", lambda found: output.size(found.bytes), True),
    ("stored", lambda found: "" if found.stored is None else output.age(found.stored, Clock.now_ns()), False),
    ("message", _message, False),
)
