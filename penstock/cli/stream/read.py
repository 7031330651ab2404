"""`penstock stream get`, `object`, `list`, `stats` and `tail`: reading a stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from penstock import Stream, StreamMessage
from penstock.cli import output
from penstock.cli.arguments import JsonOption, StoreOption, flag, open_to_read, open_to_write
from penstock.cli.formats import shown
from penstock.cli.stream.arguments import (
    DEFAULT_STREAM,
    BodiesOption,
    NameOption,
    PatternArgument,
    record,
    row_record,
    save,
)
from penstock.clock import NANOSECONDS, Clock
from penstock.errors import DataError, InvalidOption
from penstock.streams.engine import Row, SubjectFacts

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
            with message.open() as body:
                save(message.object_name, body, target)
            if target == Path("-"):
                return
        if as_json:
            output.put_json(record(message, with_body=target is None))
        else:
            _tell(message, is_shown=target is None)


def _tell(message: StreamMessage, *, is_shown: bool) -> None:
    output.put_text(f"{message.sequence}  {message.subject}  {message.object_name}")
    output.put_text(f"  created: {output.iso(message.created_ns)}")
    for header, value in message.headers.items():
        output.put_text(f"  {header}: {value}")
    if is_shown:
        with message.open() as body:
            data = body.read(_SHOWN_BYTES + 1)
        more = "" if len(data) <= _SHOWN_BYTES else " … (--output writes all of it)"
        output.put_text(shown(data[:_SHOWN_BYTES]) + more)


def object_(
    object_name: Annotated[
        str, typer.Argument(metavar="NAME", help="The body's name, as `list` shows it: given, or orders_16.")
    ],
    target: Annotated[
        Path, typer.Option("--output", "-o", metavar="PATH", help="Write the body there; - is stdout.")
    ] = Path("-"),
    bodies: BodiesOption = None,
    name: NameOption = DEFAULT_STREAM,
    store: StoreOption = "",
) -> None:
    """A body by its name, as it is, to stdout or into a file."""
    with open_to_read(store) as opened, opened.stream(name, bodies=bodies).open_object(object_name) as body:
        save(object_name, body, target)


def list_messages(
    subject: Annotated[
        str | None,
        typer.Argument(
            metavar="[SUBJECT]", help='A subject, or a pattern: "images.*". Without: all subjects.'
        ),
    ] = None,
    start: Annotated[
        int, typer.Option("--from", min=1, metavar="SEQUENCE", help="Begin with this sequence.")
    ] = 1,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="At most so many.")] = 100,
    name: NameOption = DEFAULT_STREAM,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """The subjects of a stream; or the messages of some, in order, without their bodies."""
    with open_to_read(store) as opened:
        stream = opened.stream(name)
        if subject is None:
            _list_subjects(name, stream, as_json=as_json)
            return
        rows = stream.get_messages_by_subject(subject, start, limit)
    if as_json:
        output.put_json({"stream": name, "messages": [row_record(row) for row in rows]})
    else:
        output.put_table("", rows, _ROW_COLUMNS, empty=f"{name} has no messages of {subject}")


def _list_subjects(name: str, stream: Stream, *, as_json: bool) -> None:
    facts = stream.get_subjects()
    if as_json:
        output.put_json({"stream": name, "subjects": [each._asdict() for each in facts]})
    else:
        output.put_table("", facts, _SUBJECT_COLUMNS, empty=f"{name} has no messages")


def stats(name: NameOption = DEFAULT_STREAM, store: StoreOption = "", as_json: JsonOption = False) -> None:
    """A stream in numbers: messages, subjects, consumers, bytes, the last sequence given."""
    with open_to_read(store) as opened:
        stream = opened.stream(name)
        ttl = stream.get_ttl_status()
        found = {
            "stream": name,
            "messages": stream.get_message_count(),
            "subjects": len(stream.get_subjects()),
            "consumers": stream.get_consumer_count(),
            "latest_sequence": stream.get_latest_sequence(),
            "bytes": opened.topic(name).stats().bytes,
            "ttl_enabled": ttl["enabled"],
        }
    if as_json:
        output.put_json(found)
        return
    output.put_text(
        f"{name}: {output.counted(found['messages'], 'message')} of "  # type: ignore[arg-type]
        f"{output.counted(found['subjects'], 'subject')}, "  # type: ignore[arg-type]
        f"{output.counted(found['consumers'], 'position')} of consumers, "  # type: ignore[arg-type]
        f"{output.size(found['bytes'])}, "  # type: ignore[arg-type]
        f"last sequence {found['latest_sequence']}, TTL {'on' if ttl['enabled'] else 'off'}"
    )


_ROW_COLUMNS: tuple[output.Column[Row], ...] = (
    ("sequence", lambda row: str(row[0]), True),
    ("subject", lambda row: row[3], False),
    ("object", lambda row: row[2], False),
    ("age", lambda row: output.age(row[4] * NANOSECONDS, Clock.now_ns()), True),
    ("headers", lambda row: " ".join(f"{header}={value}" for header, value in row[1].items()), False),
)
_SUBJECT_COLUMNS: tuple[output.Column[SubjectFacts], ...] = (
    ("subject", lambda each: each.subject, False),
    ("messages", lambda each: output.count(each.messages), True),
    ("first", lambda each: str(each.first_sequence), True),
    ("latest", lambda each: str(each.latest_sequence), True),
)


#: Who follows without a name; its position is never stored.
_NOBODY = "penstock-tail"
_TAIL_SHOWN_BYTES = 200


def tail(
    subject: PatternArgument = "*",
    durable: Annotated[
        str | None,
        typer.Option("--durable", "-c", metavar="NAME", help="Begin behind this consumer's position."),
    ] = None,
    ack: Annotated[bool, flag("--ack", help="Move that position with each message printed.")] = False,
    start: Annotated[
        int | None, typer.Option("--from", min=1, metavar="SEQUENCE", help="Begin with this; else with now.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="End after N.")] = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="TIME", help="End when nothing came for so long.")
    ] = None,
    name: NameOption = DEFAULT_STREAM,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Print messages as they come, one a line, until Ctrl-C."""
    if ack and durable is None:
        raise InvalidOption("--ack needs a consumer", hint="name it with --durable")
    with open_to_write(store, create=True) as opened:
        stream = opened.stream(name)
        for count, message in enumerate(_followed(stream, subject, durable, start, timeout), 1):
            if as_json:
                output.put_json(record(message), line=True)
            else:
                output.put_text(_line(message))
            if ack and durable is not None:
                stream.ack(durable, subject, message.sequence)
            if count == limit:
                return


def _followed(
    stream: Stream, subject: str, durable: str | None, start: int | None, timeout: str | None
) -> Iterator[StreamMessage]:
    if durable is None and start is None:
        start = stream.get_latest_sequence() + 1
    return stream.subscribe(durable or _NOBODY, subject, start_sequence=start, timeout=timeout)


def _line(message: StreamMessage) -> str:
    """Sequence, time, subject, and the beginning of the body, or where it lies."""
    time = (output.iso(message.created_ns) or "").replace("T", " ")[:-4]
    try:
        with message.open() as body:
            data = body.read(_TAIL_SHOWN_BYTES + 1)
    except DataError:
        return f"{message.sequence}  {time}  {message.subject}  ({message.object_name})"
    more = " …" if len(data) > _TAIL_SHOWN_BYTES else ""
    return f"{message.sequence}  {time}  {message.subject}  {shown(data[:_TAIL_SHOWN_BYTES])}{more}".rstrip()
