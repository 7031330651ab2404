"""`penstock stream engine …` and `migrate`: install Penstock's functions in a Tarantool, or leave one."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import output
from penstock.cli.arguments import JsonOption, StoreOption, YesOption, flag
from penstock.cli.failures import Exit
from penstock.cli.stream.arguments import DEFAULT_STREAM, NameOption
from penstock.errors import InvalidOption

if TYPE_CHECKING:
    from penstock import Tarantool
    from penstock.tarantool.migration import Migrated


app = typer.Typer(no_args_is_help=True)

#: The password comes from here and nowhere else: the command line can be seen by everybody on the machine.
PASSWORD = "PENSTOCK_TARANTOOL_PASSWORD"

AddressOption = Annotated[
    str, typer.Option("--tarantool", metavar="HOST:PORT", help="Where the Tarantool listens.")
]
UserOption = Annotated[
    str | None, typer.Option("--user", metavar="USER", help=f"Its user; the password is ${PASSWORD}.")
]
PrefixOption = Annotated[
    str,
    typer.Option("--prefix", metavar="PREFIX", help="Before the names of its spaces: for a second stream."),
]
AllowOption = Annotated[
    str | None, typer.Option("--allow", metavar="USER", help="Let this user or role call the functions.")
]


@app.callback()
def group() -> None:
    """Make a Tarantool ready to keep a stream, and see what is there."""


@app.command()
def install(
    tarantool: AddressOption = "127.0.0.1:3301",
    user: UserOption = None,
    prefix: PrefixOption = "",
    allow: AllowOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make spaces and functions, or bring them up to date; what is stored stays."""
    with open_tarantool(tarantool, user, prefix) as place:
        version = place.install(allow=allow)
    if as_json:
        output.put_json({"tarantool": tarantool, "prefix": prefix, "version": version})
    else:
        output.put_text(f"Tarantool {tarantool}: functions of version {version} are installed")


@app.command()
def check(
    tarantool: AddressOption = "127.0.0.1:3301",
    user: UserOption = None,
    prefix: PrefixOption = "",
    as_json: JsonOption = False,
) -> None:
    """Say what is there: versions, what acknowledged means, how many messages."""
    with open_tarantool(tarantool, user, prefix) as place:
        about = place.check()
    if as_json:
        output.put_json({"address": tarantool, "prefix": prefix, **about})
        return
    output.put_text(f"Tarantool {about['tarantool']} at {tarantool}: functions of version {about['version']}")
    kept = {"fsync": "a power cut", "write": "a crash of Tarantool, not a power cut", "none": "nothing"}
    output.put_text(f"wal_mode {about['wal_mode']}: what is acknowledged survives {kept[about['wal_mode']]}")
    output.put_text(
        f"{output.counted(about['messages'], 'message')}, {output.counted(about['consumers'], 'position')}, "
        f"last sequence {about['sequence']}"
    )
    if about["read_only"]:
        output.say("warning: it is read-only: messages cannot be published here")


@app.command()
def lua(prefix: PrefixOption = "", allow: AllowOption = None) -> None:
    """Print the Lua that `install` runs, for those who load it from a file, after box.cfg."""
    from penstock.tarantool.tarantool import install_text

    output.put_text(install_text(prefix, allow))


def open_tarantool(address: str, user: str | None, prefix: str) -> Tarantool:
    """The Tarantool at HOST:PORT, with the environment's password."""
    from penstock import Tarantool

    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit():
        raise InvalidOption(f"{address!r} is not HOST:PORT", hint="such as 127.0.0.1:3301")
    password = os.environ.get(PASSWORD)
    if user is not None and password is None:
        raise InvalidOption(f"the password of {user!r} is missing", hint=f"set ${PASSWORD}")
    return Tarantool(host.strip("[]"), int(port), user=user, password=password, prefix=prefix)


#: So many names of missing bodies are shown; the JSON has all.
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
        progress = output.ProgressLine(lambda: f"{output.count(seen[0])} of {output.count(seen[1])} messages")

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
        f"{result.stream}: {output.counted(result.written, 'message')} written, "
        f"{output.count(result.already)} were there, {output.counted(result.consumers, 'position')}; "
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
        f"found {output.counted(result.messages, 'message')} and "
        f"{output.counted(result.consumers, 'position')} in {result.layout}; "
        f"last sequence {result.last_sequence}, "
        f"{output.count(result.numbers_filled)} numbers without a message{numbered}"
    )
