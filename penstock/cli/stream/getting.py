"""`penstock stream get`: one message, and its body."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock import StreamMessage
from penstock.cli import output, units
from penstock.cli.arguments import JsonOption, StoreOption, open_to_read
from penstock.cli.formats import shown
from penstock.cli.stream.arguments import DEFAULT_STREAM, NameOption, record
from penstock.errors import InvalidOption
from penstock.options import MIB

#: So much of a body is moved at a time.
_PIECE_BYTES = MIB
#: A body is shown as text up to this size; --output takes any.
_SHOWN_BYTES = 4096


def get(
    sequence: Annotated[int, typer.Argument(metavar="SEQUENCE", help="The message's number.")],
    target: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="PATH", help="Write the body there, as it is; - is stdout."),
    ] = None,
    name: NameOption = DEFAULT_STREAM,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """One message by its sequence: its fields, and its body or where that was written."""
    if as_json and target == Path("-"):
        raise InvalidOption("--json and --output - both write to stdout", hint="give one of them")
    with open_to_read(store) as opened:
        stream = opened.stream(name)
        message = stream.get(sequence)
        if message is None:
            raise InvalidOption(
                f"stream {name!r} has no message {sequence}",
                hint=f"the last one given is {stream.get_latest_sequence()}; older ones may have expired",
            )
        if target is not None:
            _save(message, target)
            if target == Path("-"):
                return
        if as_json:
            output.put_json(record(message, with_body=target is None))
        else:
            _tell(message, is_shown=target is None)


def _tell(message: StreamMessage, *, is_shown: bool) -> None:
    output.put_text(f"{message.sequence}  {message.subject}  {message.object_name}")
    output.put_text(f"  created: {units.iso(message.created_ns)}")
    for header, value in message.headers.items():
        output.put_text(f"  {header}: {value}")
    if is_shown:
        with message.open() as body:
            data = body.read(_SHOWN_BYTES + 1)
        more = "" if len(data) <= _SHOWN_BYTES else " … (--output writes all of it)"
        output.put_text(shown(data[:_SHOWN_BYTES]) + more)


def _save(message: StreamMessage, target: Path) -> None:
    """Write the body piece by piece, telling how far it is."""
    done = 0
    progress = output.Progress(lambda: f"{message.object_name}: {units.size(done)}")
    with message.open() as body:
        if target == Path("-"):
            while piece := body.read(_PIECE_BYTES):
                output.put(piece)
            return
        with target.open("wb") as opened:
            while piece := body.read(_PIECE_BYTES):
                opened.write(piece)
                done += len(piece)
                progress.update()
    progress.clear()
    output.say(f"{target}: {units.size(done)}")
