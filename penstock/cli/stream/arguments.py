"""Headers, and messages as JSON: what the verbs of `penstock stream` share."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli import output as units
from penstock.errors import InvalidOption
from penstock.exchange.message_json import encoded
from penstock.streams.engine import Row, StreamMessage

#: The stream that one means who names none.
DEFAULT_STREAM = "stream"

NameOption = Annotated[
    str, typer.Option("--name", "-n", metavar="STREAM", help="The stream's name; made by the first publish.")
]
SubjectArgument = Annotated[str, typer.Argument(metavar="SUBJECT", help="The subject.")]
PatternArgument = Annotated[
    str, typer.Argument(metavar="SUBJECT", help='A subject, or a pattern: "images.*", "*".')
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


def record(message: StreamMessage, *, with_body: bool = False) -> dict[str, Any]:
    """What the JSON of a message holds; its body only where it is asked for, since it may be large."""
    found: dict[str, Any] = {
        "sequence": message.sequence,
        "subject": message.subject,
        "object_name": message.object_name,
        "headers": message.headers,
        "created_at": units.iso(message.created_ns),
        "created_at_ns": message.created_ns,
    }
    return {**found, **encoded("data", message.data)} if with_body else found


def row_record(row: Row) -> dict[str, Any]:
    """The same of a message that was read without its body."""
    sequence, headers, object_name, subject, create_at = row
    return {
        "sequence": sequence, "subject": subject, "object_name": object_name, "headers": headers,
        "create_at": create_at,
    }  # fmt: skip
