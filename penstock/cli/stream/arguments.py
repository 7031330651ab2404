"""Headers, and messages as JSON: what the verbs of `penstock stream` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from penstock.cli import output
from penstock.errors import InvalidOption
from penstock.exchange.message_json import encoded
from penstock.parse import MIB
from penstock.streams.engine import Row, StreamMessage

#: So much of a body is moved at a time.
_PIECE_BYTES = MIB

#: The stream that one means who names none.
DEFAULT_STREAM = "stream"

NameOption = Annotated[
    str, typer.Option("--name", "-n", metavar="STREAM", help="The stream's name; made by the first publish.")
]
SubjectArgument = Annotated[str, typer.Argument(metavar="SUBJECT", help="The subject.")]
PatternArgument = Annotated[
    str, typer.Argument(metavar="SUBJECT", help='A subject, or a pattern: "images.*", "*".')
]
BodiesOption = Annotated[
    str | None,
    typer.Option("--bodies", metavar="PLACE", help="Where bodies with names lie: a folder, or s3://…"),
]
DurableArgument = Annotated[str, typer.Argument(metavar="DURABLE", help="The durable consumer's name.")]


def pairs(option: str, given: list[str] | None) -> dict[str, str]:
    """What was given as NAME=VALUE, any number of times."""
    found = {}
    for each in given or ():
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise InvalidOption(f"{option} {each!r} is not NAME=VALUE")
        found[name] = value
    return found


def save(name: str, body: BinaryIO, target: Path) -> None:
    """Write an open body to a file piece by piece, telling how far it is; - is stdout."""
    if target == Path("-"):
        while piece := body.read(_PIECE_BYTES):
            output.put(piece)
        return
    done = 0
    progress = output.ProgressLine(lambda: f"{name}: {output.size(done)}")
    with target.open("wb") as opened:
        while piece := body.read(_PIECE_BYTES):
            opened.write(piece)
            done += len(piece)
            progress.update()
    progress.clear()
    output.say(f"{target}: {output.size(done)}")


def record(message: StreamMessage, *, with_body: bool = False) -> dict[str, Any]:
    """What the JSON of a message holds; its body only where it is asked for, since it may be large."""
    found: dict[str, Any] = {
        "sequence": message.sequence,
        "subject": message.subject,
        "object_name": message.object_name,
        "headers": message.headers,
        "created_at": output.iso(message.created_ns),
        "created_at_ns": message.created_ns,
    }
    return {**found, **encoded("data", message.data)} if with_body else found


def row_record(row: Row) -> dict[str, Any]:
    """What the JSON of a message holds that was read without its body."""
    sequence, headers, object_name, subject, create_at = row
    return {
        "sequence": sequence, "subject": subject, "object_name": object_name, "headers": headers,
        "create_at": create_at,
    }  # fmt: skip
