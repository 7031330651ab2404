"""`penstock write`: one message from the arguments, or one from each line of stdin."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from penstock import Receipt, Receipts, Store, Topic, Writer
from penstock.cli import output
from penstock.cli import output as units
from penstock.cli.arguments import JsonOption, StoreOption, TopicArgument, flag, open_to_write, typed_key
from penstock.codecs import number_of
from penstock.errors import InvalidOption, MessageTooLarge, UnknownTopic
from penstock.options import TopicOptions
from penstock.parse import KEY_BYTES_MAX, identifier, topic_name
from penstock.topic import input as outgoing
from penstock.topic.delayed import due_at

#: Receipts are folded into the summary each time so many lines were written.
_FLUSH_LINES = 100_000


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


@dataclass
class WrittenPartition:
    """Where lines were stored in one partition; others may have written in between."""

    partition: int
    messages: int
    first: int
    last: int


@dataclass
class WrittenLines:
    """What became of the lines of stdin."""

    topic: str
    messages: int = 0
    #: Duplicates, which were not stored again.
    skipped: int = 0
    #: Messages that enter the topic later; they have no place yet.
    delayed: int = 0
    sync: str = "disk"
    seconds: float = 0.0
    partitions: list[WrittenPartition] = field(default_factory=list)

    def add(self, receipts: Receipts) -> None:
        self.sync = receipts.sync
        rows = {row.partition: row for row in self.partitions}
        for run in receipts.runs:
            if run.duplicate:
                self.skipped += run.count
                continue
            last = run.first + run.count - 1
            row = rows.get(run.partition)
            if row is None:
                row = rows[run.partition] = WrittenPartition(run.partition, 0, run.first, last)
            row.messages += run.count
            row.last = last
            self.messages += run.count
        self.partitions = sorted(rows.values(), key=lambda row: row.partition)


class _Common(NamedTuple):
    """What all messages of the call have in common."""

    key: bytes | None
    headers: dict[str, str] | None
    partition: int | None
    timestamp: int | None
    delay: str | None
    deliver_at: int | None

    @property
    def waits(self) -> bool:
        return self.delay is not None or self.deliver_at is not None


class _Sender(NamedTuple):
    """Under which names the messages are written."""

    producer: str | None
    group: str | None
    #: The seqno of the first one; None leaves counting to the writer.
    first: int | None
    #: How values are packed; None stores them as they are.
    codec: str | None

    def writer(self, topic: Topic) -> Writer:
        return topic.writer(producer_id=self.producer, group=self.group, codec=self.codec)


def write(
    topic: TopicArgument,
    value: Annotated[
        str | None,
        typer.Argument(
            metavar="[VALUE]", help="The value; without it, each line of stdin is one.", show_default=False
        ),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key.")] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header; repeatable.")
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", min=0, metavar="N", help="The partition; else the key chooses."),
    ] = None,
    timestamp: Annotated[
        str | None,
        typer.Option("--timestamp", metavar="TIME", help="An ISO time, or nanoseconds since 1970; else now."),
    ] = None,
    tombstone: Annotated[
        bool, flag("--tombstone", help="Write a message without a value: the key is deleted.")
    ] = False,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", metavar="TEXT", help="Lines hold a key, this text, and the value."),
    ] = None,
    producer: Annotated[
        str | None,
        typer.Option(
            "--producer", metavar="ID", help="Write under this producer id: nothing is stored twice."
        ),
    ] = None,
    seqno_from: Annotated[
        int | None,
        typer.Option(
            "--seqno-from", min=0, metavar="N", help="The first message's seqno; else it counts on."
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", metavar="NAME", help="All messages of a group go to one partition."),
    ] = None,
    codec: Annotated[
        str | None,
        typer.Option("--codec", metavar="CODEC", help="Pack each value: raw, gzip, zstd or lzop."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            metavar="PATH",
            help="The value is this file's content, of any size with --payloads.",
            exists=True,
            dir_okay=False,
            readable=True,
        ),
    ] = None,
    delay: Annotated[
        str | None,
        typer.Option("--delay", metavar="DURATION", help="It enters the topic after this: 30s, 10m, 2h."),
    ] = None,
    deliver_at: Annotated[
        str | None,
        typer.Option(
            "--deliver-at", metavar="TIME", help="It enters at an ISO time, or nanoseconds since 1970."
        ),
    ] = None,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Write a message, or each line of stdin as one.

    Makes the store and the topic if they are not there, and says so. It returns when everything is
    on disk. A VALUE that begins with a dash goes behind --. What is delayed waits on disk; a process
    that has the store open appends it.
    """
    topic_name(topic)
    common = _Common(
        None if key is None else typed_key(key),
        _headers(header or []),
        partition,
        None if timestamp is None else units.parse_moment(timestamp),
        delay,
        None if deliver_at is None else units.parse_moment(deliver_at, "--deliver-at"),
    )
    if seqno_from is not None and producer is None:
        raise InvalidOption("--seqno-from needs --producer")
    sender = _Sender(
        None if producer is None else identifier("--producer", producer),
        None if group is None else identifier("--group", group),
        seqno_from,
        codec,
    )
    if codec is not None:
        number_of(codec)
    given = file if file is not None else None if value is None else os.fsencode(value)
    if given is not None or tombstone:
        if given is not None and tombstone:
            raise InvalidOption("a tombstone has no value", hint="leave VALUE, --file or --tombstone away")
        if file is not None and value is not None:
            raise InvalidOption("a message has one value", hint="give VALUE or --file")
        if key_separator is not None:
            raise InvalidOption("--key-separator is for the lines of stdin", hint="use --key with a VALUE")
        _write_one(store, topic, given, common, sender, as_json)
        return
    if key_separator is not None and (key is not None or not key_separator):
        raise InvalidOption("--key-separator needs a text, and no --key beside it")
    _write_lines(store, topic, common, sender, os.fsencode(key_separator or ""), as_json)


def _write_one(
    store: str, name: str, value: bytes | Path | None, common: _Common, sender: _Sender, as_json: bool
) -> None:
    size = value.stat().st_size if isinstance(value, Path) else len(value or b"")
    _check(b"" if isinstance(value, Path) else value, common)
    _refuse_in_new_store(store, name, common.partition, size)
    with open_to_write(store, create=True) as opened:
        topic = _topic(opened, name, common.partition, size)
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
        output.put_text(f"{name}: waits on disk, enters the topic at {units.iso(result.due_at)}")
    else:
        output.put_text(f"{name}: partition {result.partition}, offset {result.offset}")


def _whole(path: Path, limit: int) -> bytes:
    """A file that is to lie in the log."""
    with path.open("rb") as file:
        body = file.read(limit + 1)
    if len(body) > limit:
        raise MessageTooLarge(f"{path} is over the topic's limit of {limit} bytes")
    return body


def _check(value: bytes | None, common: _Common) -> None:
    """What is wrong anyway fails before anything is made."""
    outgoing.one(value, common.key, common.headers, common.timestamp, common.partition, limit=2**62)
    _due_at(common)


def _due_at(common: _Common) -> int | None:
    """When what is delayed enters the topic; None for now."""
    due = due_at(common.delay, common.deliver_at, time.time_ns()) if common.waits else None
    return None if due is None else due.at_ms * 1_000_000


def _receipt(topic: Topic, value: bytes | Path | None, common: _Common, sender: _Sender) -> Receipt:
    message = common._asdict()
    if sender.producer is None and sender.codec is None:
        return topic.write(value, group=sender.group, **message)
    with sender.writer(topic) as writer:
        due_ns = _due_at(common)
        writer.write(value, seqno=sender.first, **message)
        receipts = writer.flush()
        return receipts[0] if receipts else Receipt(-1, -1, "disk", due_at=due_ns)


def _write_lines(
    store: str, name: str, common: _Common, sender: _Sender, separator: bytes, as_json: bool
) -> None:
    _check(b"", common)
    if sys.stdin.isatty():
        output.say("each line becomes a message; Ctrl-D ends")
    _refuse_in_new_store(store, name, common.partition, 0)
    result = WrittenLines(name)
    began = time.monotonic()
    with open_to_write(store, create=True) as opened:
        topic = _topic(opened, name, common.partition, 0)
        try:
            _copy_lines(topic, common, sender, separator, result)
        except BaseException:
            output.say(f"{units.counted(result.messages, 'message')} written before that")
            raise
    result.seconds = round(time.monotonic() - began, 3)
    if as_json:
        output.put_json(result)
        return
    skipped = f", {units.counted(result.skipped, 'duplicate')} skipped" if result.skipped else ""
    skipped += f", {units.counted(result.delayed, 'message')} delayed" if result.delayed else ""
    output.put_table(
        f"{units.counted(result.messages, 'message')} written to {name} in {result.seconds:g} s{skipped}",
        result.partitions,
        (
            ("partition", lambda row: str(row.partition), True),
            ("messages", lambda row: units.count(row.messages), True),
            ("first offset", lambda row: str(row.first), True),
            ("last offset", lambda row: str(row.last), True),
        ),
    )


def _copy_lines(
    topic: Topic, common: _Common, sender: _Sender, separator: bytes, result: WrittenLines
) -> None:
    """Write the lines of stdin, in constant memory; what was accepted is stored also when one fails."""
    with sender.writer(topic) as writer:
        progress = output.ProgressLine(lambda: units.counted(writer.written, "message"))
        try:
            for number, line in enumerate(_lines(topic.options.max_message_bytes), start=1):
                key, value = _split(line, separator, number) if separator else (common.key, line)
                seqno = None if sender.first is None else sender.first + number - 1
                writer.write(
                    value, key=key, headers=common.headers, partition=common.partition,
                    timestamp=common.timestamp, seqno=seqno, delay=common.delay,
                    deliver_at=common.deliver_at,
                )  # fmt: skip
                if not number % _FLUSH_LINES:
                    result.add(writer.flush())
                progress.update()
        finally:
            progress.clear()
            result.add(writer.flush())
            result.delayed = writer.written - result.messages


def _lines(limit: int) -> Iterator[bytes]:
    """The lines of stdin without their ends; one that is far too long fails before it fills the memory."""
    most = limit + KEY_BYTES_MAX + 1024
    while line := sys.stdin.buffer.readline(most):
        if len(line) == most and not line.endswith(b"\n"):
            raise MessageTooLarge(f"a line is over the topic's limit of {limit} bytes")
        yield line.removesuffix(b"\n")


def _split(line: bytes, separator: bytes, number: int) -> tuple[bytes, bytes]:
    key, found, value = line.partition(separator)
    if not found:
        raise InvalidOption(f"line {number} holds no {os.fsdecode(separator)!r}, so it has no key")
    return key, value


def _topic(store: Store, name: str, partition: int | None, value_bytes: int) -> Topic:
    """The topic, made if it is not there."""
    try:
        return store.topic(name)
    except UnknownTopic:
        _refuse_in_new_topic(name, partition, value_bytes)
        topic = store.create_topic(name, exists_ok=True)
        output.say(f"created topic {name} (1 partition)")
        return topic


def _refuse_in_new_store(store: str, name: str, partition: int | None, value_bytes: int) -> None:
    """Fail before a store is made for a message that it could not take."""
    if not os.path.exists(os.path.join(store, "state.db")):
        _refuse_in_new_topic(name, partition, value_bytes)


def _refuse_in_new_topic(name: str, partition: int | None, value_bytes: int) -> None:
    limit = TopicOptions().max_message_bytes
    if partition:
        raise InvalidOption(
            f"topic {name!r} is not there, and a new one has partition 0 only",
            hint=f"`penstock topic create {name} --partitions {partition + 1}` makes it first",
        )
    if value_bytes > limit:
        raise MessageTooLarge(f"a value of {value_bytes} bytes is over the limit of {limit} for a new topic")


def _headers(pairs: list[str]) -> dict[str, str] | None:
    headers = {}
    for pair in pairs:
        name, found, value = pair.partition("=")
        if not found or not name:
            raise InvalidOption(f"--header {pair!r} is not a header", hint="write it as NAME=VALUE")
        headers[name] = value
    return headers or None
