"""Bodies are deleted after their messages; a process that dies in between leaves a list of what is to go.

    1  the objects that go with a trim are listed in `bodies.going`, durably, with the start they belong to
    2  the partition's start is moved
    3  the objects are deleted
    4  the list goes

A list whose start was never reached is forgotten: its trim did not happen. One whose objects could not be
deleted, because their place did not answer, stays for the next vacuum. Only one vacuum is at a partition.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from penstock import references
from penstock.errors import Corrupt, OffsetTrimmed, PenstockError
from penstock.files import read_whole, replace
from penstock.log.cursor import Cursor
from penstock.log.folder import Folder
from penstock.log.log import Log
from penstock.log.rows import FrameRows
from penstock.message import Rows
from penstock.parse import MIB
from penstock.references import Reference
from penstock.topic.bodies import TopicBodies

_MESSAGES, _BYTES = 10_000, 16 * MIB


class Referring(NamedTuple):
    """A message whose body lies outside the log."""

    partition: int
    offset: int
    reference: Reference


class BodyObject(NamedTuple):
    """An object that holds bodies: the number of its place, and its name there."""

    place: int
    name: str


def references_between(
    log: Log, first: int, stop: int, *, passing_damage: bool = True
) -> Iterator[Referring]:
    """Messages from `first` to `stop` with a body outside, in order; nothing is fetched.

    What is gone is skipped, and so is damage unless it shall raise `Corrupt`: a caller that deletes bodies
    without a message must have seen every message. Messages that key retention has ended count for as long
    as they lie there: their bodies go with them.
    """
    offset = first
    while offset < stop:
        try:
            rows = Cursor(log.segments, offset, far=True).read(_MESSAGES, _BYTES, stop)
        except (Corrupt, OffsetTrimmed) as error:
            if isinstance(error, Corrupt) and not passing_damage:
                raise
            behind = error.stop if isinstance(error, Corrupt) else error.first
            if behind is None or behind <= offset:
                return
            offset = behind
            continue
        if not rows:
            return
        for each in rows:
            yield from _of_rows(each)
        offset = rows[-1].stop


def gone_with(log: Log, first: int, start: int) -> list[BodyObject]:
    """Objects that no message refers to any more once the partition begins at `start` instead of `first`.

    A pack goes with the last of its messages. They lie side by side, and each knows how far the last one
    may be, so only what comes right behind `start` has to be looked at besides.
    """
    until: dict[BodyObject, int] = {}
    for referring in references_between(log, first, start):
        reference = referring.reference
        until[BodyObject(reference.place, reference.name)] = referring.offset + reference.left
    farthest = max(until.values(), default=-1)
    alive = {
        BodyObject(each.reference.place, each.reference.name)
        for each in references_between(log, start, min(farthest + 1, log.bounds().end))
    }
    return [each for each in until if each not in alive]


def _of_rows(rows: Rows) -> Iterator[Referring]:
    if isinstance(rows, FrameRows):
        frame, first, stop = rows.frame, rows.begin, rows.end
        numbers = frame.codec_numbers(first, stop)
        if references.CODEC not in numbers:
            return
        values = frame.values(first, stop)
        for offset, number, stored in zip(range(rows.first, rows.stop), numbers, values, strict=True):
            if number == references.CODEC and stored is not None:
                yield Referring(rows.partition, offset, references.unpack(stored))
        return
    for message in rows.messages():
        if (found := message.reference) is not None:
            yield Referring(message.partition, message.offset, found)


logger = logging.getLogger("penstock.retention")

GOING = "bodies.going"


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """Objects that go when the partition begins at `start`."""

    start: int
    objects: list[tuple[int, str]]


_decoder = msgspec.json.Decoder(list[Entry])


class BodyTrim:
    """The list of bodies to delete of one partition. Its housekeeping lock is held."""

    def __init__(self, folder: Folder, bodies: TopicBodies) -> None:
        self._folder = folder
        self._bodies = bodies
        self._path = folder.name(GOING)
        self._entries = self._read()

    def add(self, start: int, objects: Sequence[BodyObject], present_start: int) -> None:
        """List what goes with a trim to `start`, durably."""
        self._forget_beyond(present_start)
        if objects:
            self._entries.append(Entry(start, [(each.place, each.name) for each in objects]))
            self._write()

    def delete(self, start: int) -> tuple[int, int]:
        """Delete what is listed, now that the partition begins at `start`: how many went, how many stay."""
        if not self._entries:
            return 0, 0
        self._forget_beyond(start)
        by_place: dict[int, list[str]] = {}
        for entry in self._entries:
            for place, name in entry.objects:
                by_place.setdefault(place, []).append(name)
        stores, count = self._bodies.stores(), 0
        left: list[tuple[int, str]] = []
        for place, names in by_place.items():
            try:  # a place that is not the topic's own has the body of a message brought here: not ours
                count += stores[place].delete(names) if place in stores else 0
            except PenstockError as error:
                logger.warning("%d bodies could not be deleted, they go later: %s", len(names), error)
                left += [(place, name) for name in names]
        self._entries = [Entry(start, left)] if left else []
        self._write()
        return count, len(left)

    def _forget_beyond(self, start: int) -> None:
        self._entries = [entry for entry in self._entries if entry.start <= start]

    def _read(self) -> list[Entry]:
        data = read_whole(self._folder.files, self._path)
        try:
            return _decoder.decode(data) if data else []
        except msgspec.DecodeError as error:
            logger.warning("%s cannot be read, its bodies are left to the sweep: %s", self._path, error)
            return []

    def _write(self) -> None:
        files = self._folder.files
        if not self._entries:
            if files.exists(self._path):
                files.unlink(self._path)
            return
        replace(files, self._path, msgspec.json.encode(self._entries))
        files.sync_dir(self._folder.path)
