"""`penstock stream consumers | position`."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import typer

from penstock import Stream
from penstock.cli import output, units
from penstock.cli.arguments import JsonOption, StoreOption, YesOption, flag, open_to_read, open_to_write
from penstock.cli.stream.arguments import DEFAULT_STREAM, DurableArgument, NameOption, PatternArgument
from penstock.errors import InvalidOption


class _Standing(NamedTuple):
    """How far a durable consumer is."""

    durable_name: str
    subject: str
    last_sequence: int
    new_messages: int


def consumers(
    subject: Annotated[
        str | None, typer.Argument(metavar="[SUBJECT]", help="Only those of this subject or pattern.")
    ] = None,
    name: NameOption = DEFAULT_STREAM,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Durable consumers, how far each has read, and how much is new for it."""
    with open_to_read(store) as opened:
        stream = opened.stream(name)
        found = stream.get_consumers() if subject is None else stream.get_consumers_by_subject(subject)
        rows = [_standing(stream, *each) for each in found]
    if as_json:
        output.put_json({"stream": name, "consumers": [row._asdict() for row in rows]})
    else:
        output.put_table("", rows, _COLUMNS, empty=f"nobody has read {name} by name")


def position(
    durable: DurableArgument,
    subject: PatternArgument,
    sequence: Annotated[
        int | None,
        typer.Argument(metavar="[SEQUENCE]", help="The last one read: put the consumer there.", min=0),
    ] = None,
    forget: Annotated[bool, flag("--forget", help="Forget the position.")] = False,
    yes: YesOption = False,
    name: NameOption = DEFAULT_STREAM,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show how far a durable consumer has read, or put it anywhere."""
    if forget and sequence is not None:
        raise InvalidOption("--forget and a SEQUENCE", hint="give one of them")
    if forget or sequence is not None:
        what = "Forget" if forget else f"Put at {sequence}"
        output.confirm(f"{what}: {durable} in {subject} of {name}?", yes=yes)
        with open_to_write(store) as opened:
            stream = opened.stream(name)
            if sequence is None:
                stream.forget_consumer(durable, subject)
            else:
                stream.update_consumer_position(durable, subject, sequence)
    with open_to_read(store) as opened:
        stream = opened.stream(name)
        standing = _standing(stream, durable, subject, stream.get_consumer_position(durable, subject))
    if as_json:
        output.put_json({"stream": name, **standing._asdict()})
    else:
        new = units.counted(standing.new_messages, "new message")
        output.put_text(f"{durable} in {subject}: {standing.last_sequence}, {new}")


def _standing(stream: Stream, durable: str, subject: str, last_sequence: int) -> _Standing:
    return _Standing(
        durable, subject, last_sequence, stream.get_new_messages_count(subject, since=last_sequence)
    )


_COLUMNS: tuple[output.Column[_Standing], ...] = (
    ("durable", lambda row: row.durable_name, False),
    ("subject", lambda row: row.subject, False),
    ("last read", lambda row: str(row.last_sequence), True),
    ("new", lambda row: units.count(row.new_messages), True),
)
