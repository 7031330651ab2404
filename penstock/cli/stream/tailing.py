"""`penstock stream tail`: messages as they come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from penstock import Stream, StreamMessage
from penstock.cli import output, units
from penstock.cli.arguments import JsonOption, StoreOption, flag, open_to_write
from penstock.cli.formats import shown
from penstock.cli.stream.arguments import DEFAULT_STREAM, NameOption, PatternArgument, record
from penstock.errors import DataError, InvalidOption

#: Who follows without a name; its position is never stored.
_NOBODY = "penstock-tail"
_SHOWN_BYTES = 200


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
    time = (units.iso(message.created_ns) or "").replace("T", " ")[:-4]
    try:
        with message.open() as body:
            data = body.read(_SHOWN_BYTES + 1)
    except DataError:
        return f"{message.sequence}  {time}  {message.subject}  ({message.object_name})"
    more = " …" if len(data) > _SHOWN_BYTES else ""
    return f"{message.sequence}  {time}  {message.subject}  {shown(data[:_SHOWN_BYTES])}{more}".rstrip()
