"""`penstock stream list | stats`."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock import Stream
from penstock.cli import output, units
from penstock.cli.arguments import JsonOption, StoreOption, open_to_read
from penstock.cli.stream.arguments import DEFAULT_STREAM, NameOption, row_record
from penstock.clock import NANOSECONDS, Clock
from penstock.faces.engine import Row, SubjectFacts


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
        f"{name}: {units.counted(found['messages'], 'message')} of "  # type: ignore[arg-type]
        f"{units.counted(found['subjects'], 'subject')}, "  # type: ignore[arg-type]
        f"{units.counted(found['consumers'], 'position')} of consumers, "  # type: ignore[arg-type]
        f"{units.size(found['bytes'])}, "  # type: ignore[arg-type]
        f"last sequence {found['latest_sequence']}, TTL {'on' if ttl['enabled'] else 'off'}"
    )


_ROW_COLUMNS: tuple[output.Column[Row], ...] = (
    ("sequence", lambda row: str(row[0]), True),
    ("subject", lambda row: row[3], False),
    ("object", lambda row: row[2], False),
    ("age", lambda row: units.age(row[4] * NANOSECONDS, Clock.now_ns()), True),
    ("headers", lambda row: " ".join(f"{header}={value}" for header, value in row[1].items()), False),
)
_SUBJECT_COLUMNS: tuple[output.Column[SubjectFacts], ...] = (
    ("subject", lambda each: each.subject, False),
    ("messages", lambda each: units.count(each.messages), True),
    ("first", lambda each: str(each.first_sequence), True),
    ("latest", lambda each: str(each.latest_sequence), True),
)
