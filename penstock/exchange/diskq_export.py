"""A topic becomes a go-diskq folder, which go-diskq opens, reads and goes on writing.

Partitions, offsets, keys and times stay. A topic that was imported gets the settings and the segments it came
with, byte for byte; what was written to it since is put where go-diskq would have put it: behind the last
segment, and into a new one after the message that reaches the segment's size. Offsets that hold no message
end a segment, since go-diskq knows no gap inside of one.

All of it is written beside the target and renamed at the end: a folder is there whole, or not at all.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, BinaryIO, NamedTuple

from penstock.errors import AlreadyExists, InvalidOption
from penstock.exchange.diskq_folder import (
    GROUPS,
    PARTS,
    SEGMENT_BYTES_DEFAULT,
    SETTINGS,
)
from penstock.exchange.diskq_format import (
    DATA,
    INDEX,
    TIME_INDEX,
    Encoding,
    Records,
    encode,
    pack_index,
    pack_mark,
    pack_time_index,
    partition_name,
    segment_name,
)
from penstock.exchange.origin import read_origin
from penstock.message import Message, value_bytes
from penstock.store.topic import Topic
from penstock.topic.routing import by_diskq

logger = logging.getLogger("penstock.exchange")

_PARTIAL = ".partial"
#: Called with how many messages have been written.
Progress = Callable[[int], None]


class DiskqExported(NamedTuple):
    """What an export wrote."""

    path: str
    messages: int
    partitions: int
    segments: int
    groups: tuple[str, ...]
    #: What diskq cannot hold, and what became of it.
    notes: tuple[str, ...]


class _Plan(NamedTuple):
    """What the topic's origin says of the folder; a topic made here has none."""

    settings: str
    encoding: Encoding
    segment_bytes: int
    segments: list[list[int]]
    ends: list[int]
    groups: dict[str, dict[str, int | None]]


def export_diskq(
    topic: Topic[Any], path: str | os.PathLike[str], *, encoding: str | None = None,
    progress: Progress = lambda done: None,
) -> DiskqExported:  # fmt: skip
    """Write a topic as a go-diskq folder; see `Topic.export_diskq`."""
    target = os.path.abspath(os.fspath(path))
    if os.path.lexists(target) and (not os.path.isdir(target) or os.listdir(target)):
        raise AlreadyExists(f"{target} is there already", hint="export to a folder that is new or empty")
    raw: Topic = Topic(topic.open_topic)
    raw.open_topic.refresh()
    plan = _plan_of(raw, encoding)
    draft = f"{target}{_PARTIAL}"
    shutil.rmtree(draft, ignore_errors=True)
    os.makedirs(draft)
    run = _Export(raw, plan, draft, progress)
    try:
        run.write()
        _sync_tree(draft)
        os.rename(draft, target)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    raw.open_topic.files.sync_dir(os.path.dirname(target))
    notes = run.notes()
    for note in notes:
        logger.warning("%s", note)
    return DiskqExported(
        target, run.messages, len(raw.open_topic.numbers()), run.segments, tuple(run.groups), tuple(notes)
    )


def _count(topic: Topic) -> int:
    """How many partitions there are: 0 to N - 1, as diskq knows no others."""
    numbers = topic.open_topic.numbers()
    if numbers != tuple(range(len(numbers))) or numbers != tuple(sorted(topic.open_topic.active())):
        raise InvalidOption(
            f"partitions of topic {topic.name!r} were split, and diskq knows no such thing",
            hint="replay it into a topic of its own, and export that",
        )
    return len(numbers)


def _plan_of(topic: Topic, encoding: str | None) -> _Plan:
    count = _count(topic)
    origin = read_origin(topic.open_topic)
    facts: dict[str, Any] = origin.facts if origin is not None and origin.kind == "diskq" else {}
    if origin is not None and not origin.whole:
        raise InvalidOption(
            f"topic {topic.name!r} is not whole: its import was cut short", hint="import it again to go on"
        )
    chosen = encoding or facts.get("encoding", Encoding.FIXED.value)
    if chosen not in set(Encoding):
        raise InvalidOption(f"encoding {chosen!r} is none of {', '.join(Encoding)}")
    text = facts.get("settings")
    settings = json.loads(text) if text else {}
    were = len(facts.get("segments", ()))
    if count != were:  # so it is also for a topic that was made here
        settings["partition_count"] = count
        text = json.dumps(settings, indent=2) + "\n"
    return _Plan(
        text or "",
        Encoding(chosen),
        settings.get("segment_size_bytes") or SEGMENT_BYTES_DEFAULT,
        [*facts.get("segments", ()), *([] for _ in range(count - were))],
        [*facts.get("ends", ()), *(0 for _ in range(count - were))],
        facts.get("groups", {}),
    )


class _Export:
    """One export."""

    def __init__(self, topic: Topic, plan: _Plan, folder: str, progress: Progress) -> None:
        self._topic, self._plan, self._folder, self._progress = topic, plan, folder, progress
        self.messages = self.segments = 0
        self.groups: list[str] = []
        self._headers = self._tombstones = self._empty = 0

    def write(self) -> None:
        if self._plan.settings:
            _write_file(os.path.join(self._folder, SETTINGS), self._plan.settings.encode())
        bounds = [log.bounds() for log in self._topic.open_topic.logs()]
        for number, bound in enumerate(bounds):
            self._write_partition(number, bound.start, bound.end)
        for each in self._topic.consumers():
            self._write_group(each.consumer, each.positions, [bound.start for bound in bounds])

    def notes(self) -> list[str]:
        topic = self._topic
        found = []
        if self._headers:
            found.append(f"{self._headers} messages had headers, which diskq cannot hold: they stayed behind")
        if self._tombstones:
            found.append(f"{self._tombstones} tombstones became messages with empty data")
        if self._empty:
            found.append(f"{self._empty} messages have empty data: go-diskq's reader stops at those")
        if topic.options.partitioner != "diskq" and len(topic.open_topic.numbers()) > 1:
            found.append(
                f"keys were placed by the partitioner {topic.options.partitioner!r}: "
                "go-diskq puts later messages of a key into another partition"
            )
        return found

    def _write_partition(self, number: int, start: int, end: int) -> None:
        folder = os.path.join(self._folder, PARTS, partition_name(number))
        os.makedirs(folder)
        bounds = [base for base in self._plan.segments[number] if base >= start]
        writer = _PartitionWriter(
            folder, self._plan, bounds, imported=self._plan.ends[number], first=min([start, *bounds[:1]])
        )
        try:
            for first, records in self._pieces(number, start, end):
                writer.add(first, records)
                self.messages += len(records.keys)
                self._progress(self.messages)
            writer.end(end)
        finally:
            writer.close()
        self.segments += writer.segments

    def _pieces(self, number: int, start: int, end: int) -> Iterator[tuple[int, Records]]:
        """Messages whose offsets follow each other."""
        for batch in self._topic.scan(partition=number, start={number: start}, stop={number: end}):
            messages = batch.messages()
            first = 0
            for place in range(1, len(messages) + 1):
                is_end = place == len(messages)
                if is_end or messages[place].offset != messages[place - 1].offset + 1:
                    part = messages[first:place]
                    yield part[0].offset, self._records(number, part)
                    first = place

    def _records(self, number: int, messages: list[Message]) -> Records:
        values = [value_bytes(message) for message in messages]
        tombstones = values.count(None)
        self._tombstones += tombstones
        self._empty += tombstones + values.count(b"")
        self._headers += sum(1 for message in messages if message.headers)
        return Records(
            [self._key(number, m.offset) if m.key is None else m.key for m in messages],
            [message.timestamp for message in messages],
            [value or b"" for value in values],
        )

    def _key(self, number: int, offset: int) -> bytes:
        """A key for a message without one: a UUID, as go-diskq takes, that leads to this partition."""
        attempt, count = 0, len(self._topic.open_topic.numbers())
        while True:
            name = f"{self._topic.id}/{number}/{offset}/{attempt}".encode()
            made = bytearray(blake2b(name, digest_size=16).digest())
            made[6], made[8] = made[6] & 0x0F | 0x40, made[8] & 0x3F | 0x80
            if by_diskq(key := made.hex().encode(), count) == number:
                return key
            attempt += 1

    def _write_group(self, name: str, positions: dict[int, int], starts: list[int]) -> None:
        """A consumer as a group: ours is the next to read, theirs the last one read."""
        self.groups.append(name)
        before = self._plan.groups.get(name)
        folder = os.path.join(self._folder, GROUPS, name)
        os.makedirs(folder)
        for number, start in enumerate(starts):
            position = positions.get(number, start)
            mark = before.get(str(number)) if before is not None else None
            has_read = position > start or (mark is not None and mark + 1 == position)
            if has_read or before is None or str(number) in before:
                _write_file(
                    os.path.join(folder, partition_name(number)), pack_mark(position - 1) if has_read else b""
                )


class _PartitionWriter:
    """Writes one partition's messages into segments, as go-diskq would have."""

    def __init__(self, folder: str, plan: _Plan, bounds: list[int], *, imported: int, first: int) -> None:
        self._folder, self._plan = folder, plan
        #: First offsets of segments that are known, from the next one on.
        self._bounds = list(bounds)
        #: Below this offset segments end where they ended when the topic was imported.
        self._imported = imported
        self.segments = 0
        self._next = self._bytes = 0
        self._files: tuple[BinaryIO, BinaryIO, BinaryIO] | None = None
        self._begin(first)

    def add(self, first: int, records: Records) -> None:
        encoded = encode(self._plan.encoding, records)
        at = 0
        while at < len(encoded):
            if first + at != self._next:
                self._begin(first + at)
            elif self._bounds and self._bounds[0] <= self._next:
                self._begin(self._next)
            stop, is_full = self._fitting(first, at, encoded)
            self._put(first + at, encoded[at:stop], records.times[at:stop])
            at = stop
            if is_full:
                self._begin(self._next)

    def end(self, end: int) -> None:
        """Begin the segments that hold nothing, and an active one behind offsets that hold no message."""
        for base in self._bounds:
            if base <= end:
                self._begin(base)
        if self._next < end:
            self._begin(end)

    def close(self) -> None:
        for file in self._files or ():
            file.close()
        self._files = None

    def _fitting(self, first: int, at: int, encoded: list[bytes]) -> tuple[int, bool]:
        """Up to which message the present segment goes on, and whether it is full then."""
        stop = len(encoded)
        if self._bounds:
            return min(stop, self._bounds[0] - first), False
        if first + at < self._imported:
            stop = min(stop, self._imported - first)
            return stop, False
        size = self._bytes
        for place in range(at, stop):
            size += len(encoded[place])
            if size >= self._plan.segment_bytes:
                return place + 1, True
        return stop, False

    def _put(self, first: int, encoded: list[bytes], times: Sequence[int]) -> None:
        assert self._files is not None
        data, index, time_index = self._files
        sizes = list(map(len, encoded))
        data.writelines(encoded)
        index.write(pack_index(first, self._bytes, sizes))
        time_index.write(pack_time_index(first, times))
        self._bytes += sum(sizes)
        self._next = first + len(encoded)

    def _begin(self, base: int) -> None:
        """A new segment; an empty one of the same name is used as it is."""
        while self._bounds and self._bounds[0] <= base:
            del self._bounds[0]
        if self._files is not None and not self._bytes and self._next == base:
            return
        self.close()
        path = os.path.join(self._folder, segment_name(base))
        self._files = open(path + DATA, "wb"), open(path + INDEX, "wb"), open(path + TIME_INDEX, "wb")  # noqa: SIM115
        self.segments += 1
        self._next, self._bytes = base, 0


def _write_file(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)


def _sync_tree(top: str) -> None:
    for folder, _, names in os.walk(top):
        for path in (*(os.path.join(folder, name) for name in names), folder):
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
