"""Lines of stdin as messages: plain ones, or whole messages as `penstock read --json` prints them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from penstock import Receipts, Topic
from penstock.cli import output
from penstock.cli.arguments import open_to_write
from penstock.cli.write_target import Common, Sender, check, refuse_in_new_store, topic_to_write
from penstock.errors import InvalidOption, MessageTooLarge
from penstock.exchange.message_json import GivenMessage, given_message
from penstock.parse import KEY_BYTES_MAX, MIB

#: Receipts are folded into the summary each time so many lines were written.
_FLUSH_LINES = 100_000


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
        """Count what was stored, by partition."""
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


class LineForm(NamedTuple):
    """What a line holds."""

    #: Between key and value; b"" when all of the line is the value.
    separator: bytes = b""
    #: Lines are whole messages in JSON.
    is_json: bool = False
    #: Such messages go into the partition they came from.
    keep_partition: bool = False

    def message(self, line: bytes, number: int, common: Common) -> GivenMessage:
        """The message of a line; what the call says of all messages counts where the line says nothing."""
        if self.separator:
            key, value = _split(line, self.separator, number)
            return GivenMessage(value, key, None, common.timestamp, common.partition)
        if not self.is_json:
            return GivenMessage(line, common.key, None, common.timestamp, common.partition)
        try:
            record = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidOption(
                f"line {number} is not JSON: {error}", hint="--format text takes lines as they are"
            ) from None
        given = given_message(record, f"line {number}")
        return given._replace(
            key=common.key if given.key is None else given.key,
            timestamp=given.timestamp if common.timestamp is None else common.timestamp,
            partition=given.partition if self.keep_partition else common.partition,
        )


def write_lines(store: str, name: str, common: Common, sender: Sender, form: LineForm, as_json: bool) -> None:
    """Write each line of stdin as a message, and print what became of them."""
    check(b"", common)
    if sys.stdin.isatty():
        output.say("each line becomes a message; Ctrl-D ends")
    refuse_in_new_store(store, name, common.partition, 0)
    result = WrittenLines(name)
    began = time.monotonic()
    with open_to_write(store, create=True) as opened:
        topic = topic_to_write(opened, name, common.partition, 0)
        try:
            _copy_lines(topic, common, sender, form, result)
        except BaseException:
            output.say(f"{output.counted(result.messages, 'message')} written before that")
            raise
    result.seconds = round(time.monotonic() - began, 3)
    if as_json:
        output.put_json(result)
        return
    skipped = f", {output.counted(result.skipped, 'duplicate')} skipped" if result.skipped else ""
    skipped += f", {output.counted(result.delayed, 'message')} delayed" if result.delayed else ""
    output.put_table(
        f"{output.counted(result.messages, 'message')} written to {name} in {result.seconds:g} s{skipped}",
        result.partitions,
        (
            ("partition", lambda row: str(row.partition), True),
            ("messages", lambda row: output.count(row.messages), True),
            ("first offset", lambda row: str(row.first), True),
            ("last offset", lambda row: str(row.last), True),
        ),
    )


def _copy_lines(topic: Topic, common: Common, sender: Sender, form: LineForm, result: WrittenLines) -> None:
    """Write the lines of stdin, in constant memory; what was accepted is stored also when one fails."""
    with sender.writer(topic) as writer:
        progress = output.ProgressLine(lambda: output.counted(writer.written, "message"))
        try:
            for number, line in enumerate(_lines(topic.options.max_message_bytes, form), start=1):
                if form.is_json and not line.strip():
                    continue
                message = form.message(line, number, common)
                seqno = None if sender.first is None else sender.first + number - 1
                writer.write(
                    message.value, key=message.key, headers=_merged(common.headers, message.headers),
                    partition=message.partition, timestamp=message.timestamp, seqno=seqno,
                    delay=common.delay, deliver_at=common.deliver_at,
                )  # fmt: skip
                if not number % _FLUSH_LINES:
                    result.add(writer.flush())
                progress.update()
        finally:
            progress.clear()
            result.add(writer.flush())
            result.delayed = writer.written - result.messages


def _merged(common: Mapping[str, str] | None, own: Mapping[str, str | bytes] | None) -> dict[str, Any] | None:
    return {**(common or {}), **own} if own else dict(common) if common else None


def _lines(limit: int, form: LineForm) -> Iterator[bytes]:
    """The lines of stdin without their ends; one that is far too long fails before it fills the memory."""
    most = (2 * limit + MIB) if form.is_json else limit + KEY_BYTES_MAX + 1024
    while line := sys.stdin.buffer.readline(most):
        if len(line) == most and not line.endswith(b"\n"):
            raise MessageTooLarge(f"a line is over the topic's limit of {limit} bytes")
        yield line.removesuffix(b"\n")


def _split(line: bytes, separator: bytes, number: int) -> tuple[bytes, bytes]:
    key, found, value = line.partition(separator)
    if not found:
        raise InvalidOption(f"line {number} holds no {os.fsdecode(separator)!r}, so it has no key")
    return key, value
