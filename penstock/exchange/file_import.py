"""Records of files become messages, each exactly once: a record's place in its file is its seqno (S001-47).

The producer is the file: its path, size, time and first bytes. So an import that was killed, or is started
twice, stores nothing twice, and a file that has changed since is another one. What comes from stdin has no
name of its own, and is sent under a producer only when one is given.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, BinaryIO, Protocol

from penstock.errors import InvalidOption, MessageTooLarge, PenstockError, WrongType
from penstock.exchange.records import FileRecord, Refuse, refuse_all
from penstock.exchange.text_lines import Lines
from penstock.message import Receipts
from penstock.parse import MIB
from penstock.store.topic import Topic
from penstock.topic.writer import Writer

#: Stands for stdin, and for stdout.
DASH = "-"
_BATCH_RECORDS, _BATCH_BYTES = 20_000, 8 * MIB
_HEAD_BYTES = 4096
#: What a topic raises for a message that it does not take.
_NOT_TAKEN = InvalidOption, MessageTooLarge, WrongType
Progress = Callable[[int], None]


@dataclass
class FileImported:
    """What an import of files stored."""

    messages: int = 0
    #: Records that had been stored before.
    skipped: int = 0
    #: Records that are none, or that the topic does not take: each was named, and left out.
    bad: int = 0

    def add(self, receipts: Receipts) -> None:
        """Count what was stored, and what was there."""
        for run in receipts.runs:
            if run.duplicate:
                self.skipped += run.count
            else:
                self.messages += run.count


class RecordReader(Protocol):
    """Reads records of one format from lines."""

    def begin(self, lines: Lines) -> bool:
        """Read what stands before the first record; False when that is not there, or not yet."""

    def records(self, lines: Lines, refuse: Refuse = refuse_all) -> Iterator[FileRecord]:
        """Yield all records from where `lines` stands; refuse what is not one."""


def import_lines(
    topic: Topic[Any], path: str, reader: RecordReader, *, producer: str | None = None,
    progress: Progress = lambda done: None,
) -> FileImported:  # fmt: skip
    """Bring the records of a text file, or of stdin, into a topic; return when they are on disk.

    Raises `InvalidOption` naming the line where one is none; what came before it is stored.
    """
    producer = producer or file_producer(path)
    with opened(path) as file:
        lines = Lines(file, shown_name(path))
        if not reader.begin(lines):
            raise InvalidOption(f"{shown_name(path)} is empty: it has no line with the names of columns")
        with RecordSink(topic, producer, progress) as sink:
            lines.skip_to(sink.first_to_send())
            sink.store(reader.records(lines))
    return sink.done


class RecordSink:
    """Stores records under one producer, or under none; messages that name a partition go there."""

    def __init__(
        self, topic: Topic[Any], producer: str | None, progress: Progress = lambda done: None,
        refuse: Refuse | None = None,
    ) -> None:  # fmt: skip
        self._topic = topic
        self._producer = producer
        self._progress = progress
        #: Called for a record that the topic does not take; None raises.
        self._refuse = refuse
        #: By partition, since the seqnos of a writer never go back; None lets the topic choose.
        self._writers: dict[int | None, Writer[Any]] = {}
        self.done = FileImported()

    def __enter__(self) -> RecordSink:
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers.values():
            writer.close()

    def first_to_send(self) -> int:
        """From where a file is to be sent again: with one partition all before its last record is stored.

        With several a crash may have stored a later record and not an earlier one: then all are sent, and
        those that are there are skipped.
        """
        if self._producer is None or len(self._topic.open_topic.numbers()) > 1:
            return 0
        return self._writer(None).last_seqno() or 0

    def last_stored(self) -> int:
        """The highest number that is stored, in any partition; -1 for none."""
        last = None if self._producer is None else self._writer(None).last_seqno()
        return -1 if last is None else last

    def store(self, records: Iterable[FileRecord]) -> None:
        """Store records in batches, each on disk before the next is read, also those before a bad one."""
        batch: list[FileRecord] = []
        size = 0
        try:
            for record in records:
                batch.append(record)
                size += len(record.message.value or b"")
                if len(batch) >= _BATCH_RECORDS or size >= _BATCH_BYTES:
                    self._store(batch)
                    batch, size = [], 0
        except PenstockError as error:
            self._store(batch)
            error.add_note(f"{self.done.messages} messages were stored before that")
            raise
        self._store(batch)

    def store_table(self, table: Any, first: int) -> None:
        """Store an Arrow table of messages by columns; `first` is the number of its first row."""
        writer = self._writer(None)
        numbers = None if self._producer is None else range(first, first + table.num_rows)
        writer.write_many(table, seqnos=numbers)
        self.done.add(writer.flush())
        self._progress(self.done.messages)

    def _store(self, batch: Sequence[FileRecord]) -> None:
        try:
            self._store_all(batch)
        except _NOT_TAKEN as error:
            if self._refuse is None:
                raise
            if len(batch) == 1:
                self._refuse(InvalidOption(f"{batch[0].where}: {error}", hint=error.hint))
                return
            middle = len(batch) // 2  # nothing of a call is stored unless all of it can be
            self._store(batch[:middle])
            self._store(batch[middle:])

    def _store_all(self, batch: Sequence[FileRecord]) -> None:
        by_partition: dict[int | None, list[FileRecord]] = {}
        for record in batch:
            by_partition.setdefault(record.message.partition, []).append(record)
        for partition, found in by_partition.items():
            writer = self._writer(partition)
            self._write(writer, partition, found)
            self.done.add(writer.flush())
        self._progress(self.done.messages)

    def _write(self, writer: Writer[Any], partition: int | None, found: Sequence[FileRecord]) -> None:
        messages = [record.message for record in found]
        headers = [message.headers for message in messages]
        times = [message.timestamp for message in messages]
        now = time.time_ns()
        has_times = any(each is not None for each in times)
        writer.write_many(
            [message.value for message in messages],
            keys=[message.key for message in messages],
            headers=headers if any(headers) else None,
            timestamps=[now if each is None else each for each in times] if has_times else None,
            partition=partition,
            seqnos=None if self._producer is None else [record.seqno for record in found],
        )

    def _writer(self, partition: int | None) -> Writer[Any]:
        writer = self._writers.get(partition)
        if writer is None:
            writer = self._writers[partition] = self._topic.writer(producer_id=self._producer)
        return writer


def file_producer(path: str) -> str | None:
    """The producer that stands for a file as it is now; None for stdin."""
    if path == DASH:
        return None
    with opened(path) as file:
        found = os.fstat(file.fileno())
        head = file.read(_HEAD_BYTES)
    facts = f"{os.path.realpath(path)}\0{found.st_size}\0{found.st_mtime_ns}\0".encode() + head
    return f"file:{blake2b(facts, digest_size=16).hexdigest()}"


@contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """A file to be read from its first byte; `-` is stdin."""
    if path == DASH:
        yield sys.stdin.buffer
        return
    try:
        file = open(path, "rb", buffering=MIB)  # noqa: SIM115 - closed below
    except OSError as error:
        raise InvalidOption(f"{path} cannot be read: {error.strerror}") from error
    with file:
        yield file


def shown_name(path: str) -> str:
    """The file as messages to people name it."""
    return "stdin" if path == DASH else path
