"""`penstock pipeline list | show | stop | drop`, and the ready pipelines, each in a file of `pipelines/`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from penstock import Pipeline
from penstock.cli import output
from penstock.cli.arguments import JsonOption, StoreOption, YesOption, open_to_read, open_to_write
from penstock.cli.failures import Exit
from penstock.cli.pipelines.archive import archive
from penstock.cli.pipelines.compact import compact
from penstock.cli.pipelines.dedup import dedup
from penstock.cli.pipelines.enrich import enrich
from penstock.cli.pipelines.mirror import mirror
from penstock.cli.pipelines.quality import quality
from penstock.cli.pipelines.redrive import redrive
from penstock.cli.pipelines.replay import replay
from penstock.cli.pipelines.rollup import rollup
from penstock.cli.pipelines.sessions import sessions
from penstock.cli.pipelines.sweep import sweep
from penstock.cli.pipelines.upsert import upsert
from penstock.clock import Clock
from penstock.parse import seconds

app = typer.Typer(no_args_is_help=True)

_NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The pipeline's name.")]


@dataclass(frozen=True)
class Stopped:
    """Whether a pipeline ended when it was asked to."""

    pipeline: str
    stopped: bool


@dataclass(frozen=True)
class Dropped:
    """A pipeline that is forgotten."""

    pipeline: str


@app.callback()
def group(store: StoreOption = "") -> None:
    """Named jobs over topics: run, list, show, stop and drop them."""


@app.command("list")
def list_pipelines(store: StoreOption = "", as_json: JsonOption = False) -> None:
    """All pipelines, and how their latest run goes or went."""
    with open_to_read(store) as opened:
        found = opened.pipelines()
    if as_json:
        output.put_json({"pipelines": [asdict(each) for each in found]})
    else:
        output.put_table("", found, _COLUMNS, empty="no pipelines yet")


@app.command()
def show(name: _NameArgument, store: StoreOption = "", as_json: JsonOption = False) -> None:
    """One pipeline: what it is, and how its latest run goes or went."""
    with open_to_read(store) as opened:
        found = opened.pipeline(name)
    if as_json:
        output.put_json(asdict(found))
        return
    output.put_table(f"{found.name}: {found.kind}, {found.state}", list(_facts(found).items()), _FACT_COLUMNS)


@app.command()
def stop(
    name: _NameArgument,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="TIME", help="How long to wait for it.")
    ] = "60s",
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Ask a running pipeline to end behind its present batch; exit code 4 when it has not yet."""
    with open_to_write(store) as opened:
        stopped = opened.stop_pipeline(name, timeout=seconds("--timeout", timeout))
    if as_json:
        output.put_json(Stopped(name, stopped))
    else:
        output.put_text(f"{name} is not running any more" if stopped else f"{name} is still running")
    if not stopped:
        raise typer.Exit(Exit.TRY_AGAIN)


@app.command()
def drop(
    name: _NameArgument, yes: YesOption = False, store: StoreOption = "", as_json: JsonOption = False
) -> None:
    """Forget a pipeline and where it stands; what it wrote stays. Run again, it begins anew."""
    with open_to_write(store) as opened:
        opened.pipeline(name)
        output.confirm(f"forget pipeline {name} and its checkpoint?", yes=yes)
        opened.drop_pipeline(name)
    if as_json:
        output.put_json(Dropped(name))
    else:
        output.put_text(f"dropped {name}")


def _facts(found: Pipeline) -> dict[str, str]:
    run = found.run
    lines: dict[str, Any] = {
        **found.identity,
        **found.options,
        "consumer": found.consumer,
        "behind": None if found.lag is None else output.counted(found.lag, "message"),
        "checkpoint": found.checkpoint,
        "started": output.iso(run.started),
        "last report": output.iso(run.updated),
        "ended": output.iso(run.ended),
        "process": f"{run.pid} on {run.host}",
        "batches": output.count(run.batches),
        "last batch": run.last_batch,
        "rows": output.count(run.rows),
        "rows/s": output.count(round(run.rows_per_second)),
        "error": run.error,
    }
    return {name: str(value) for name, value in lines.items() if value is not None}


_FACT_COLUMNS: tuple[output.Column[tuple[str, str]], ...] = (
    ("what", lambda fact: fact[0], False),
    ("", lambda fact: fact[1], False),
)
_COLUMNS: tuple[output.Column[Pipeline], ...] = (
    ("pipeline", lambda each: each.name, False),
    ("kind", lambda each: each.kind, False),
    ("state", lambda each: each.state, False),
    ("behind", lambda each: "-" if each.lag is None else output.count(each.lag), True),
    ("rows", lambda each: output.count(each.run.rows), True),
    ("rows/s", lambda each: output.count(round(each.run.rows_per_second)), True),
    ("last report", lambda each: output.age(each.run.updated, Clock.now_ns()), False),
    ("error", lambda each: each.run.error or "", False),
)

app.command()(archive)
app.command()(upsert)
app.command()(compact)
app.command()(dedup)
app.command()(enrich)
app.command()(sessions)
app.command()(rollup)
app.command()(quality)
app.command()(mirror)
app.command()(replay)
app.command()(redrive)
app.command()(sweep)
