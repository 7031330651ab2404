"""`penstock stream migrate`: a MiniToolStream comes out of its Tarantool, into a stream of the store."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import output, units
from penstock.cli.arguments import JsonOption, StoreOption, YesOption, flag
from penstock.cli.failures import Exit
from penstock.cli.stream.arguments import DEFAULT_STREAM, NameOption
from penstock.cli.stream.engine import PrefixOption, UserOption, open_tarantool

if TYPE_CHECKING:
    from penstock.tarantool.migration import Migrated

#: So many names of missing bodies are told; the JSON has all.
_TOLD = 10


def migrate(
    source: Annotated[str, typer.Option("--from", metavar="HOST:PORT", help="Where its Tarantool listens.")],
    user: UserOption = None,
    prefix: PrefixOption = "",
    bodies: Annotated[
        str | None,
        typer.Option(
            "--bodies",
            metavar="PLACE",
            help="Copy bodies from s3://bucket/prefix, or a folder; else name them.",
        ),
    ] = None,
    retention: Annotated[
        str | None, typer.Option("--retention", metavar="AGE", help="Of a new stream; else for ever.")
    ] = None,
    dry_run: Annotated[bool, flag("--dry-run", help="Only say what there is.")] = False,
    yes: YesOption = False,
    name: NameOption = DEFAULT_STREAM,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Bring all messages and positions of a MiniToolStream into a stream; sequences stay.

    It can be killed and run again, and run again for what is new. No other program may have the store open.
    """
    options: dict[str, Any] = {} if retention is None else {"retention": retention}
    with open_tarantool(source, user, prefix) as place:
        found = place.survey(name)
        if dry_run:
            _tell(found, as_json)
            return
        if not yes:
            output.say(_found(found))
        output.confirm(f"Bring them into stream {name} of {store}?", yes=yes)
        seen = [0, found.messages]
        progress = output.Progress(lambda: f"{units.count(seen[0])} of {units.count(seen[1])} messages")

        def on_progress(done: int, total: int) -> None:
            seen[:] = done, total
            progress.update()

        done = place.migrate(store, name, bodies=bodies, on_progress=on_progress, **options)
        progress.clear()
    _tell(done, as_json)
    if done.bodies_missing:
        raise typer.Exit(Exit.UNHEALTHY)


def _tell(result: Migrated, as_json: bool) -> None:
    if as_json:
        output.put_json(asdict(result))
        return
    if result.is_dry_run:
        output.put_text(_found(result))
        return
    output.put_text(
        f"{result.stream}: {units.counted(result.written, 'message')} written, "
        f"{units.count(result.already)} were there, {units.counted(result.consumers, 'position')}; "
        f"last sequence {result.last_sequence}"
    )
    if result.bodies_copied:
        output.put_text(f"{result.bodies_copied} bodies copied")
    for missing in result.bodies_missing[:_TOLD]:
        output.say(f"warning: body {missing} is missing")
    if result.bodies_missing:
        output.say(f"warning: {len(result.bodies_missing)} bodies are missing; their messages only name them")


def _found(result: Migrated) -> str:
    numbered = "; they are numbered anew, by time" if result.renumbered else ""
    return (
        f"found {units.counted(result.messages, 'message')} and "
        f"{units.counted(result.consumers, 'position')} in {result.layout}; "
        f"last sequence {result.last_sequence}, "
        f"{units.count(result.numbers_filled)} numbers without a message{numbered}"
    )
