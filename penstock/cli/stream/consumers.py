"""`penstock stream consumers`, `position`, `ttl`, `sweep`: who has read how far, how long messages live."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import typer

from penstock import Stream
from penstock.cli import output, pipeline_progress
from penstock.cli.arguments import JsonOption, StoreOption, YesOption, flag, open_to_read, open_to_write
from penstock.cli.pipeline_progress import EngineOption
from penstock.cli.pipelines import sweep as pipeline
from penstock.cli.stream.arguments import DEFAULT_STREAM, DurableArgument, NameOption, PatternArgument, pairs
from penstock.errors import InvalidOption
from penstock.streams.ttl import TtlStatus


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
        new = output.counted(standing.new_messages, "new message")
        output.put_text(f"{durable} in {subject}: {standing.last_sequence}, {new}")


def _standing(stream: Stream, durable: str, subject: str, last_sequence: int) -> _Standing:
    return _Standing(
        durable, subject, last_sequence, stream.get_new_messages_count(subject, since=last_sequence)
    )


_COLUMNS: tuple[output.Column[_Standing], ...] = (
    ("durable", lambda row: row.durable_name, False),
    ("subject", lambda row: row.subject, False),
    ("last read", lambda row: str(row.last_sequence), True),
    ("new", lambda row: output.count(row.new_messages), True),
)


def sweep(
    apply: pipeline.ApplyOption = False,
    grace: pipeline.GraceOption = "24h",
    limit: pipeline.MostOption = 100,
    engine: EngineOption = "auto",
    name: NameOption = DEFAULT_STREAM,
    master: pipeline_progress.MasterOption = None,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Find bodies without a message and messages without a body; exit code 3 when there are such messages.

    It is `penstock pipeline sweep` of the stream's topic. Nothing is deleted without --apply.
    """
    pipeline.sweep(
        name,
        apply=apply,
        grace=grace,
        limit=limit,
        engine=engine,
        master=master,
        store=store,
        as_json=as_json,
    )


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
        f"{name}: TTL {is_on}, {output.duration(status['default_ttl'])} by default, "
        f"looked at every {output.duration(status['check_interval'])}"
    )
    for subject, life in sorted(status["channels"].items()):
        output.put_text(f"  {subject}: {output.duration(life)}")
    if deleted is not None:
        output.put_text(f"{output.counted(deleted, 'message')} deleted")
