"""`penstock stream engine install | check | lua`: the Tarantool that keeps a stream."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import output, units
from penstock.cli.arguments import JsonOption
from penstock.errors import InvalidOption

if TYPE_CHECKING:
    from penstock import Tarantool

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
        f"{units.counted(about['messages'], 'message')}, {units.counted(about['consumers'], 'position')}, "
        f"last sequence {about['sequence']}"
    )
    if about["read_only"]:
        output.say("warning: it is read-only: messages cannot be published here")


@app.command()
def lua(prefix: PrefixOption = "", allow: AllowOption = None) -> None:
    """Print the Lua that `install` runs, for those who load it from a file, after box.cfg."""
    from penstock.tarantool.source import install_text

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
