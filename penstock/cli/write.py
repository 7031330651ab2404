"""`penstock write`: one message from the arguments, or one from each line of stdin."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from penstock import Receipt, Topic
from penstock.cli import output
from penstock.cli.arguments import JsonOption, StoreOption, TopicArgument, flag, open_to_write, typed_key
from penstock.cli.options import grouped
from penstock.cli.write_lines import LineForm, write_lines
from penstock.cli.write_target import (
    Common,
    Sender,
    check,
    due_at_of,
    refuse_in_new_store,
    topic_to_write,
)
from penstock.codecs import number_of
from penstock.errors import InvalidOption, MessageTooLarge
from penstock.parse import MIB, identifier, topic_name

#: Stands for stdin.
_DASH = "-"
#: The largest value that is taken from stdin as a whole.
_STDIN_BYTES_MOST = 1024 * MIB


class LineFormat(StrEnum):
    """What a line of stdin holds."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True)
class Written:
    """Where a message was stored."""

    topic: str
    partition: int
    #: -1 for a duplicate.
    offset: int
    sync: str
    duplicate: bool = False
    #: Of a delayed message, whose partition and offset are -1: when it enters the topic, in nanoseconds.
    due_at: int | None = None


@dataclass(frozen=True)
class MessageOptions:
    """What a message has beside its value; with lines of stdin, each of them."""

    key: Annotated[str | None, typer.Option("--key", "-k", help="The key.")] = None
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header; repeatable.")
    ] = None
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", min=0, metavar="N", help="The partition; else the key chooses."),
    ] = None
    timestamp: Annotated[
        str | None,
        typer.Option("--timestamp", metavar="TIME", help="An ISO time, or nanoseconds since 1970; else now."),
    ] = None
    delay: Annotated[
        str | None,
        typer.Option("--delay", metavar="DURATION", help="It enters the topic after this: 30s, 10m, 2h."),
    ] = None
    deliver_at: Annotated[
        str | None,
        typer.Option(
            "--deliver-at", metavar="TIME", help="It enters at an ISO time, or nanoseconds since 1970."
        ),
    ] = None

    def common(self) -> Common:
        """These, checked."""
        return Common(
            None if self.key is None else typed_key(self.key),
            _headers(self.header or []),
            self.partition,
            None if self.timestamp is None else output.parse_moment(self.timestamp),
            self.delay,
            None if self.deliver_at is None else output.parse_moment(self.deliver_at, "--deliver-at"),
        )


@dataclass(frozen=True)
class SenderOptions:
    """Under which name messages are sent, and how they are packed."""

    producer: Annotated[
        str | None,
        typer.Option(
            "--producer", metavar="ID", help="Write under this producer id: nothing is stored twice."
        ),
    ] = None
    seqno_from: Annotated[
        int | None,
        typer.Option(
            "--seqno-from", min=0, metavar="N", help="The first message's seqno; else it counts on."
        ),
    ] = None
    group: Annotated[
        str | None,
        typer.Option("--group", metavar="NAME", help="All messages of a group go to one partition."),
    ] = None
    codec: Annotated[
        str | None,
        typer.Option("--codec", metavar="CODEC", help="Pack each value: raw, gzip, zstd or lzop."),
    ] = None

    def sender(self) -> Sender:
        """These, checked."""
        if self.seqno_from is not None and self.producer is None:
            raise InvalidOption("--seqno-from needs --producer")
        if self.codec is not None:
            number_of(self.codec)
        return Sender(
            None if self.producer is None else identifier("--producer", self.producer),
            None if self.group is None else identifier("--group", self.group),
            self.seqno_from,
            self.codec,
        )


@dataclass(frozen=True)
class StdinOptions:
    """What the lines of stdin hold."""

    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", metavar="TEXT", help="Lines hold a key, this text, and the value."),
    ] = None
    format: Annotated[
        LineFormat | None,
        typer.Option(
            "--format",
            help="Lines are values, or whole messages as `penstock read --json` prints them.",
            show_default="text; json with --json",
        ),
    ] = None
    keep_partition: Annotated[
        bool, flag("--keep-partition", help="Messages in JSON go into the partition they came from.")
    ] = False

    def refuse(self) -> None:
        """Raise if any was given, for a value that is no line."""
        if self.key_separator is not None:
            raise InvalidOption("--key-separator is for the lines of stdin", hint="use --key with a VALUE")
        if self.format is not None or self.keep_partition:
            raise InvalidOption("--format and --keep-partition are for the lines of stdin")

    def form(self, common: Common, *, as_json: bool) -> LineForm:
        """These, checked."""
        separator = self.key_separator
        if separator is not None and (common.key is not None or not separator):
            raise InvalidOption("--key-separator needs a text, and no --key beside it")
        is_json = self.format is LineFormat.JSON or (self.format is None and as_json and separator is None)
        if is_json and separator is not None:
            raise InvalidOption("messages in JSON bring their own keys", hint="leave --key-separator away")
        if self.keep_partition and not (is_json and common.partition is None):
            raise InvalidOption("--keep-partition is for messages in JSON, without --partition")
        return LineForm(os.fsencode(separator or ""), is_json, self.keep_partition)


@grouped
def write(
    topic: TopicArgument,
    message: MessageOptions,
    sent: SenderOptions,
    lines: StdinOptions,
    value: Annotated[
        str | None,
        typer.Argument(
            metavar="[VALUE]",
            help="The value; without it, or with -, each line of stdin is one.",
            show_default=False,
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            metavar="PATH",
            help="The value is this file's content, of any size with --payloads; - is all of stdin.",
        ),
    ] = None,
    tombstone: Annotated[
        bool, flag("--tombstone", help="Write a message without a value: the key is deleted.")
    ] = False,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Write a message, or each line of stdin as one.

    Makes the store and the topic if they are not there, and says so. It returns when everything is
    on disk. A VALUE that begins with a dash goes behind --. With --json, lines of stdin are messages
    in JSON, unless --format text says otherwise. What is delayed waits on disk; a process
    that has the store open appends it.
    """
    topic_name(topic)
    common, sender = message.common(), sent.sender()
    text = None if value == _DASH else value
    if text is None and file is None and not tombstone:
        write_lines(store, topic, common, sender, lines.form(common, as_json=as_json), as_json)
        return
    one = _one_value(text, file, tombstone=tombstone)
    lines.refuse()
    _write_one(store, topic, one, common, sender, as_json)


def _one_value(text: str | None, file: Path | None, *, tombstone: bool) -> bytes | Path | None:
    """The value of the one message that is written; None for a tombstone."""
    if file is not None and text is not None:
        raise InvalidOption("a message has one value", hint="give VALUE or --file")
    if tombstone:
        if file is not None or text is not None:
            raise InvalidOption("a tombstone has no value", hint="leave VALUE, --file or --tombstone away")
        return None
    if file is not None:
        return _all_of_stdin() if file == Path(_DASH) else _readable(file)
    assert text is not None
    return os.fsencode(text)


def _readable(file: Path) -> Path:
    if not file.is_file() or not os.access(file, os.R_OK):
        raise InvalidOption(f"--file {file} does not exist, or is no file that can be read")
    return file


def _all_of_stdin() -> bytes:
    body = sys.stdin.buffer.read(_STDIN_BYTES_MOST + 1)
    if len(body) > _STDIN_BYTES_MOST:
        raise MessageTooLarge(f"stdin holds more than {_STDIN_BYTES_MOST} bytes")
    return body


def _write_one(
    store: str, name: str, value: bytes | Path | None, common: Common, sender: Sender, as_json: bool
) -> None:
    size = value.stat().st_size if isinstance(value, Path) else len(value or b"")
    check(b"" if isinstance(value, Path) else value, common)
    refuse_in_new_store(store, name, common.partition, size)
    with open_to_write(store, create=True) as opened:
        topic = topic_to_write(opened, name, common.partition, size)
        if isinstance(value, Path) and not topic.open_topic.bodies.takes_bodies:
            value = _whole(value, topic.options.max_message_bytes)
        receipt = _receipt(topic, value, common, sender)
        result = Written(
            name, receipt.partition, receipt.offset, receipt.sync, receipt.duplicate, receipt.due_at
        )
    if as_json:
        output.put_json(result)
    elif result.duplicate:
        output.put_text(f"{name}: a duplicate, not stored again")
    elif result.due_at is not None:
        output.put_text(f"{name}: waits on disk, enters the topic at {output.iso(result.due_at)}")
    else:
        output.put_text(f"{name}: partition {result.partition}, offset {result.offset}")


def _whole(path: Path, limit: int) -> bytes:
    """Read a whole file whose bytes go into the log."""
    with path.open("rb") as file:
        body = file.read(limit + 1)
    if len(body) > limit:
        raise MessageTooLarge(f"{path} is over the topic's limit of {limit} bytes")
    return body


def _receipt(topic: Topic, value: bytes | Path | None, common: Common, sender: Sender) -> Receipt:
    message = common._asdict()
    if sender.producer is None and sender.codec is None:
        return topic.write(value, group=sender.group, **message)
    with sender.writer(topic) as writer:
        due_ns = due_at_of(common)
        writer.write(value, seqno=sender.first, **message)
        receipts = writer.flush()
        return receipts[0] if receipts else Receipt(-1, -1, "disk", due_at=due_ns)


def _headers(pairs: list[str]) -> dict[str, str] | None:
    headers = {}
    for pair in pairs:
        name, found, value = pair.partition("=")
        if not found or not name:
            raise InvalidOption(f"--header {pair!r} is not a header", hint="write it as NAME=VALUE")
        headers[name] = value
    return headers or None
