"""`penstock stream ttl`: how long messages live."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli import output, units
from penstock.cli.arguments import JsonOption, StoreOption, YesOption, flag, open_to_read, open_to_write
from penstock.cli.stream.arguments import DEFAULT_STREAM, NameOption, pairs
from penstock.errors import InvalidOption
from penstock.faces.ttl import TtlStatus


def ttl(
    enable: Annotated[bool, flag("--enable", help="Let messages go when their time is over.")] = False,
    disable: Annotated[bool, flag("--disable", help="Let none go but by the topic's retention.")] = False,
    default: Annotated[
        str | None, typer.Option("--default", metavar="TIME", help="How long a message lives: 7d.")
    ] = None,
    channel: Annotated[
        list[str] | None,
        typer.Option(
            "--channel", metavar="SUBJECT=TIME",
            help="Another time for a subject or a pattern; repeatable, replaces those there are.",
        ),
    ] = None,
    interval: Annotated[
        str | None, typer.Option("--interval", metavar="TIME", help="How often a cleanup looks.")
    ] = None,
    clean: Annotated[bool, flag("--clean", help="Delete what is over, now.")] = False,
    yes: YesOption = False,
    name: NameOption = DEFAULT_STREAM,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Show or choose how long messages of a stream live."""
    if enable and disable:
        raise InvalidOption("--enable and --disable", hint="give one of them")
    changes: dict[str, Any] = {
        "enabled": True if enable else False if disable else None,
        "default_ttl": default,
        "check_interval": interval,
        "channels": None if channel is None else pairs("--channel", channel),
    }
    changes = {option: value for option, value in changes.items() if value is not None}
    if not changes and not clean:
        with open_to_read(store) as opened:
            _tell(name, opened.stream(name).get_ttl_status(), None, as_json=as_json)
        return
    if enable or changes.get("channels") or default is not None or clean:
        output.confirm(f"Messages of {name} may go for good. Go on?", yes=yes)
    with open_to_write(store) as opened:
        stream = opened.stream(name)
        status = stream.configure_ttl(**changes)
        deleted = stream.delete_expired()[0] if clean else None
    _tell(name, status, deleted, as_json=as_json)


def _tell(name: str, status: TtlStatus, deleted: int | None, *, as_json: bool) -> None:
    if as_json:
        record: dict[str, Any] = {
            "stream": name, "enabled": status["enabled"], "default_ttl": status["default_ttl"],
            "check_interval": status["check_interval"], "channels": status["channels"],
        }  # fmt: skip
        output.put_json(record if deleted is None else {**record, "deleted": deleted})
        return
    is_on = "on" if status["enabled"] else "off"
    output.put_text(
        f"{name}: TTL {is_on}, {units.duration(status['default_ttl'])} by default, "
        f"looked at every {units.duration(status['check_interval'])}"
    )
    for subject, life in sorted(status["channels"].items()):
        output.put_text(f"  {subject}: {units.duration(life)}")
    if deleted is not None:
        output.put_text(f"{units.counted(deleted, 'message')} deleted")
