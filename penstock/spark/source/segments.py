"""Segment files as an executor reads them: by what was planned, without locks, records or `state.db`.

Between planning and reading a segment may have been sealed and repacked, or removed by retention. The
plan holds all the same: offsets never move, a removed file can be opened for a minute under its new
name, and planned byte positions are used only on a file that still has the bytes they were taken from.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from typing import NamedTuple

from penstock.clock import Clock
from penstock.errors import Corrupt, NotAStore, OffsetTrimmed, PenstockError, TopicReplaced
from penstock.files import Files
from penstock.lake.cut import Stretch
from penstock.log import frame, segment_index
from penstock.log.folder import DATA, DELETED, Folder
from penstock.log.frame import Frame
from penstock.log.frame_header import read_head
from penstock.log.segment import SEGMENT_HEADER_BYTES, parse_head
from penstock.log.segment_index import Index
from penstock.log.single_frame import Singles, is_plain, take_singles
from penstock.parse import MIB
from penstock.spark.source.plan import SegmentRange, Slice, instead

logger = logging.getLogger("penstock.spark")

#: Single-message frames are decoded from copies of this size: slicing bytes is quicker than slicing views.
_CHUNK_BYTES = MIB


class FramePart(NamedTuple):
    """Messages `first` to `stop` of a frame."""

    frame: Frame
    first: int
    stop: int

    @property
    def bytes(self) -> int:
        """The size of the frame's data."""
        return self.frame.weight


def parts(planned: Slice) -> Iterator[FramePart | Singles | Stretch]:
    """Everything of a slice, in order, each byte of it checked; what an archive has instead is only named.

    Raises `Corrupt` where bytes are damaged, `OffsetTrimmed` when retention has removed them for good,
    `TopicReplaced` when the topic was dropped, `NotAStore` when this machine does not see the folder.
    """
    folder = _PlannedFolder(planned)
    try:
        for piece in planned.pieces:
            if isinstance(piece, Stretch):
                yield _of_slice(planned, piece)
                continue
            try:
                segment = _Segment(folder, planned, piece)
            except OffsetTrimmed as error:
                archived = instead(planned, max(planned.start, piece.base), min(planned.stop, piece.stop))
                if archived:
                    yield from archived
                    continue
                if not planned.may_skip:
                    raise
                logger.warning("passed over: %s", error)
                continue
            yield from segment.parts()
    finally:
        folder.close()


def _of_slice(planned: Slice, piece: Stretch) -> Stretch:
    return piece._replace(base=max(planned.start, piece.base), stop=min(planned.stop, piece.stop))


class _PlannedFolder(Folder):
    """A partition's folder in which segments removed a moment ago can still be found."""

    def __init__(self, planned: Slice) -> None:
        super().__init__(
            planned.folder, topic_id=planned.topic_id, partition=planned.partition, files=Files(),
            clock=Clock(), read_only=True,
        )  # fmt: skip
        self._removed: dict[int, str] = {}

    def segment_path(self, base: int, kind: str = DATA) -> str:
        if kind == DATA and base in self._removed:
            return self._removed[base]
        return super().segment_path(base, kind)

    def find_removed(self, base: int) -> bool:
        """Whether retention has left the segment under another name, for scans such as ours."""
        prefix = f"{base:020d}{DATA}."
        for name in self.files.listdir(self.path) if self.files.exists(self.path) else ():
            if name.startswith(prefix) and name.endswith(DELETED):
                self._removed[base] = self.name(name)
                return True
        return False


class _Segment:
    """One segment, mapped; read from `start` up to `stop`."""

    def __init__(self, folder: _PlannedFolder, planned: Slice, piece: SegmentRange) -> None:
        self._folder = folder
        self._base = piece.base
        self._start = max(planned.start, piece.base)
        self._stop = min(planned.stop, piece.stop)
        fd = _open(folder, planned, piece)
        try:
            self._path = folder.segment_path(piece.base)
            head = parse_head(folder.files.pread(fd, SEGMENT_HEADER_BYTES, 0))
            if head is None:
                raise Corrupt(self._path, 0, "a damaged segment header", partition=planned.partition)
            if head.topic_id != planned.topic_id:
                raise _dropped(planned)
            # A repacked file has other bytes than the plan speaks of, and is whole.
            size = folder.files.size(fd)
            size = min(size, piece.bytes) if head.generation == 0 else size
            self._data = memoryview(folder.files.map(fd, size)) if size else memoryview(b"")
        finally:
            folder.files.close(fd)
        self._head = head
        self._chunk = b""
        self._chunk_at = 0

    def parts(self) -> Iterator[FramePart | Singles]:
        data, salt = self._data, self._head.salt
        offset, at = self._find()
        while offset < self._stop and at < len(data):
            head = read_head(data, at)
            if head is None or head.salt != salt or head.base != offset or at + head.size > len(data):
                if not bytes(data[at:]).strip(b"\0"):
                    return  # zeros that were reserved, and offsets that were never given out
                offset, at = self._behind_damage(at, offset)
                continue
            if head.count == 1 and offset >= self._start and is_plain(head):
                singles, at = self._singles(at, offset)
                if singles is not None:
                    yield singles
                    offset += len(singles)
                    continue
            if head.stop > self._start and head.count:
                found = frame.read_frame(data, at, head)
                if not found.check_body():
                    raise self._damage(at, offset, segment_index.build(data, self._base))
                first = max(self._start - head.base, 0)
                yield FramePart(found, first, min(head.stop, self._stop) - head.base)
            at, offset = at + head.size, head.stop

    def _find(self) -> tuple[int, int]:
        """First offset and byte of a frame at or before the start: by the index, else the first of all."""
        if self._start > self._base:
            stored = segment_index.load(self._folder, self._base, self._head.generation, self._head.salt)
            if stored is not None and (number := stored.find(self._start)) >= 0:
                return stored.offsets[number], stored.bytes[number]
        return self._base, SEGMENT_HEADER_BYTES

    def _singles(self, at: int, offset: int) -> tuple[Singles | None, int]:
        """Single-message frames from `at` on, and where they end; None when there is none."""
        end = self._chunk_at + len(self._chunk)
        if not self._chunk_at <= at < end or (end - at < _CHUNK_BYTES // 2 and end < len(self._data)):
            self._chunk, self._chunk_at = bytes(self._data[at : at + _CHUNK_BYTES]), at
        singles, behind = take_singles(
            self._chunk, at - self._chunk_at, offset=offset, stop=self._stop, salt=self._head.salt
        )
        return (singles if len(singles) else None), self._chunk_at + behind

    def _behind_damage(self, at: int, offset: int) -> tuple[int, int]:
        """Where to go on when the damage at `at` ends before the start; raises `Corrupt` when it does not."""
        sound = segment_index.build(self._data, self._base)
        number = sound.find(self._start)
        if number >= 0 and sound.bytes[number] > at:
            return sound.offsets[number], sound.bytes[number]
        raise self._damage(at, offset, sound)

    def _damage(self, at: int, offset: int, sound: Index) -> Corrupt:
        following = next((first for first in sound.offsets if first > offset), self._stop)
        error = Corrupt(
            self._path, at, "a damaged frame", partition=self._folder.partition, first=offset, stop=following
        )
        error.hint = "startingOffsets and endingOffsets can leave these offsets out"
        return error


def _open(folder: _PlannedFolder, planned: Slice, piece: SegmentRange) -> int:
    """The segment's file, perhaps under the name that retention gave it."""
    for _ in range(2):
        try:
            return folder.files.open(folder.segment_path(piece.base), write=False)
        except FileNotFoundError:
            if not folder.find_removed(piece.base):
                break
    raise _missing(planned, piece)


def _missing(planned: Slice, piece: SegmentRange) -> PenstockError:
    """Return the error that says why a planned segment is missing."""
    if not os.path.exists(os.path.join(planned.store, "state.db")):
        return NotAStore(
            f"{socket.gethostname()} does not see the store {planned.store}",
            hint="executors read the files themselves: they must see the folder under the same path",
        )
    if not os.path.isdir(planned.folder):
        return _dropped(planned)
    error = OffsetTrimmed(
        f"retention removed offsets {piece.base} to {piece.stop - 1} of {planned.topic!r} partition "
        f"{planned.partition} while the query was running",
        partition=planned.partition, offset=max(planned.start, piece.base), first=piece.stop,
    )  # fmt: skip
    error.hint = (
        "run the query again; it then begins at what is left"
        if planned.table is None
        else "run the query again; it then takes from the table what was archived meanwhile"
    )
    return error


def _dropped(planned: Slice) -> TopicReplaced:
    return TopicReplaced(
        f"topic {planned.topic!r} was dropped after the query was planned", hint="run the query again"
    )
