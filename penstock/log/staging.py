"""Frames that wait for a transaction's commit: in memory while they are few, in files when they are many.

The files lie in the partition's folder, laid out as segments, so that the commit only has to rename them.
Nothing here knows of stores or locks: a process that cannot see `state.db` stages in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from penstock.errors import Corrupt
from penstock.log import frame, segment
from penstock.log.folder import Folder
from penstock.log.frame import Frame
from penstock.log.frame_columns import round_up
from penstock.log.frame_encode import EncodedFrame, placed
from penstock.log.frame_header import read_head
from penstock.log.segment import SEGMENT_HEADER_BYTES, SegmentHead, new_salt, parse_head
from penstock.options import TopicOptions
from penstock.parse import KIB, MIB

STAGED = ".staged"
#: More than this of a transaction in one partition is not copied: that would hold the append lock too long.
#: Its files become segments of their own, but for those below a quarter of it.
ADOPT_BYTES = 16 * MIB
_COPY_BYTES = 8 * MIB


class End(NamedTuple):
    """Where a partition ends: the next offset, the place of its frame, and the time for what comes."""

    next: int
    segment: int
    byte: int
    last_written_at: int


class PlacedPiece(NamedTuple):
    """Neighbouring frames of one committed transaction for one partition."""

    tx: int
    number: int
    #: The offset of the first message.
    base: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here
    #: The staged file's name in the partition's folder; None when the frames are in `data`.
    file: str | None
    #: The frames back to back; with a file only their headers.
    data: bytes

    @property
    def stop(self) -> int:
        """The offset after the piece's last message."""
        return self.base + self.count

    def frames(self) -> Iterator[StagedFrame]:
        """Its frames in order, with the offsets the commit gave them."""
        at, byte, base = 0, SEGMENT_HEADER_BYTES, self.base
        while at < len(self.data):
            head = read_head(self.data, at)
            if head is None:
                raise Corrupt("state.db", at, f"damaged record of transaction {self.tx:x}")
            header = self.data[at : at + head.header_length]
            body = round_up(head.body_length)
            yield StagedFrame(header, base, head.count, byte, head.header_length + body)
            at += head.header_length if self.file is not None else head.size
            byte, base = byte + head.size, base + head.count

    @property
    def size(self) -> int:
        """Bytes its frames take in a segment."""
        return sum(each.size for each in self.frames())


class StagedFrame(NamedTuple):
    """One frame of a piece: its header as staged, its offset, and where it lies in the staged file."""

    header: bytes
    base: int
    count: int  # type: ignore[assignment]
    byte: int
    size: int


class Hold(NamedTuple):
    """A consumer that keeps messages from going: all it has not committed, or those younger than a limit."""

    consumer: str
    position: int
    #: None holds for ever (an important consumer).
    younger_than_ns: int | None


class PartitionState(Protocol):
    """What the store knows of a partition and its log cannot know; the store gives it to the log."""

    def options(self) -> TopicOptions:
        """The topic's options as they are now."""

    def require_topic(self) -> None:
        """Raise unless the topic is still there."""

    def is_split(self) -> bool:
        """Whether the partition has children: nobody appends to it any more."""

    def highest_position(self) -> int:
        """The highest offset that a consumer has committed: no offset below it is given again."""

    def holds(self) -> Sequence[Hold]:
        """Consumers that keep messages of the partition from going by their age."""

    def unfinished(self) -> Sequence[PlacedPiece]:
        """Pieces of committed transactions still to be appended here, or to be made durable, by offset."""

    def move(self, pieces: Iterable[PlacedPiece]) -> None:
        """Store other offsets for pieces, durably."""

    def finish(self, tx: int) -> None:
        """Take note that the transaction is whole and durable in this partition."""


def total_size(pieces: Iterable[PlacedPiece]) -> int:
    """Bytes that pieces take in segments together."""
    return sum(piece.size for piece in pieces)


def becomes_segment(folder: Folder, end: End, piece: PlacedPiece, share: int) -> bool:
    """Whether a piece, one of a share of so many bytes, is to be a segment of its own (`take_segment`).

    Not in the place of one without messages, which other processes have open under the same name.
    """
    if piece.file is None or end.next > piece.base:
        return False
    if has_become_segment(folder, piece):
        return True
    return end.next > end.segment and share > ADOPT_BYTES and piece.size > ADOPT_BYTES // 4


def has_become_segment(folder: Folder, piece: PlacedPiece) -> bool:
    """Whether the piece's file was renamed to a segment already."""
    return piece.file is not None and not folder.files.exists(folder.name(piece.file))


def is_missing(folder: Folder, piece: PlacedPiece) -> bool:
    """Whether the piece's file is gone, and has not become a segment."""
    return has_become_segment(folder, piece) and not folder.files.exists(folder.segment_path(piece.base))


def remove_file(folder: Folder, piece: PlacedPiece) -> None:
    """Remove the file of a piece that was copied."""
    if piece.file is not None and folder.files.exists(folder.name(piece.file)):
        folder.files.unlink(folder.name(piece.file))


def copy_in(folder: Folder, end: End, piece: PlacedPiece) -> End:
    """Append what is missing of a piece; return where the partition ends then. It is not yet durable.

    The append lock is held, and nothing lies behind `end`.
    """
    assert end.next >= piece.base, "a gap before a transaction: the caller begins a segment there"
    files, now = folder.files, end.last_written_at
    source = -1 if piece.file is None else files.open(folder.name(piece.file), write=False)
    target = files.open(folder.segment_path(end.segment))
    try:
        head = parse_head(files.pread(target, SEGMENT_HEADER_BYTES, 0))
        if head is None:
            raise Corrupt(folder.segment_path(end.segment), 0, "damaged segment header")
        inline = memoryview(piece.data)
        parts: list[bytes | bytearray | memoryview] = []
        at = byte = end.byte
        for each in piece.frames():
            if each.base < end.next and each.base + each.count <= end.next:
                continue  # it is there: a process that died brought it in
            parts.append(placed(each.header, base=each.base, written_at=now, synced=0, salt=head.salt))
            body_at, length = each.byte + len(each.header), each.size - len(each.header)
            if source < 0:
                body_at -= SEGMENT_HEADER_BYTES
                parts.append(inline[body_at : body_at + length])
            else:
                # A file that was cut short costs the messages that it lacks, not those behind them.
                parts.append(files.pread(source, length, body_at).ljust(length, b"\0"))
            byte += each.size
            if byte - at >= _COPY_BYTES:
                files.pwritev(target, parts, at)
                parts, at = [], byte
        if parts:
            files.pwritev(target, parts, at)
    finally:
        files.close(target)
        if source >= 0:
            files.close(source)
    return End(piece.stop, end.segment, byte, now)


def take_segment(folder: Folder, end: End, piece: PlacedPiece) -> End:
    """Make the staged file the next segment, if it is not that already; return where the partition ends then.

    The append lock is held, nothing lies behind `end`, and the caller made durable what lies before it.
    """
    return _as_segment(folder, piece) if has_become_segment(folder, piece) else _rename_in(folder, end, piece)


def _rename_in(folder: Folder, end: End, piece: PlacedPiece) -> End:
    files, now = folder.files, end.last_written_at
    assert piece.file is not None
    path = folder.name(piece.file)
    fd = files.open(path)
    try:
        head = parse_head(files.pread(fd, SEGMENT_HEADER_BYTES, 0))
        salt = head.salt if head is not None else new_salt()  # a damaged header is made again
        byte = SEGMENT_HEADER_BYTES
        for each in piece.frames():
            # All before it in this file is durable, and was so before the file became a segment.
            header = placed(each.header, base=each.base, written_at=now, synced=each.byte, salt=salt)
            files.pwrite(fd, header, each.byte)
            byte = each.byte + each.size
        gap = end.next < piece.base
        head = SegmentHead(salt, 0, piece.base, folder.topic_id, folder.partition, now, gap)
        files.pwrite(fd, head.pack(), 0)
        files.truncate(fd, byte)
        files.sync(fd)
    finally:
        files.close(fd)
    files.rename(path, folder.segment_path(piece.base))
    files.sync_dir(folder.path)
    return End(piece.stop, piece.base, byte, now)


def _as_segment(folder: Folder, piece: PlacedPiece) -> End:
    """Where the partition ends when the staged file has become a segment already."""
    path = folder.segment_path(piece.base)
    try:
        head = segment.read_head(folder, piece.base)
    except FileNotFoundError:
        head = None
    if head is None:
        assert piece.file is not None
        raise Corrupt(
            folder.name(piece.file), 0, "a committed transaction's file is missing",
            partition=folder.partition, first=piece.base, stop=piece.stop,
        )  # fmt: skip
    fd = folder.files.open(path, write=False)
    try:
        return End(piece.stop, piece.base, folder.files.size(fd), head.created)
    finally:
        folder.files.close(fd)


#: A partition's share of a transaction up to this size is stored in the commit record.
INLINE_BYTES = 64 * KIB
#: A staged file is closed at this size, or at the topic's own size of a segment.
_FILE_BYTES_MOST = 64 * MIB
#: So much is handed to the disk at a time, so that the sync at the end waits less.
_WRITEBACK_BYTES = 8 * MIB


class StagedPiece(NamedTuple):
    """Neighbouring frames without offsets: what will be a `PlacedPiece`."""

    file: str | None
    data: bytes
    count: int  # type: ignore[assignment]

    @property
    def size(self) -> int:
        """Bytes its frames take in a segment."""
        return self.piece(0, 0, 0).size

    def piece(self, tx: int, number: int, base: int) -> PlacedPiece:
        """Return the piece with the place that a transaction gives it."""
        return PlacedPiece(tx, number, base, self.count, self.file, self.data)


class StagingArea:
    """What a transaction writes to one partition: whole pieces, and one that still grows."""

    def __init__(self, folder: Folder, name: str, segment_bytes: int) -> None:
        self._folder = folder
        self._name = name
        self._limit = min(segment_bytes, _FILE_BYTES_MOST)
        self._done: list[StagedPiece] = []
        self._growing: _Growing | None = None

    def add(self, encoded: EncodedFrame) -> None:
        """Add a frame to the file that grows, and begin another one when it is full."""
        if self._growing is None:
            self._growing = _Growing(self._folder, f"{self._name}-{len(self._done):x}{STAGED}")
        self._growing.add(encoded)
        if self._growing.size >= self._limit:
            self._end()

    def cut(self) -> None:
        """End the piece that grows: what comes next is a piece of its own."""
        self._end()

    def adopt(self, pieces: Iterable[StagedPiece]) -> None:
        """Take pieces that another process has made, whole and durable, behind those there are."""
        self._end()
        self._done += pieces

    def finish(self) -> list[StagedPiece]:
        """Make all pieces durable, and return them."""
        self._end()
        if any(staged.file is not None for staged in self._done):
            self._folder.files.sync_dir(self._folder.path)
        return self._done

    def frames(self) -> Iterator[Frame]:
        """Return all frames, to be routed elsewhere."""
        self._end()
        for staged in self._done:
            yield from _read(self._folder, staged)

    def discard(self) -> None:
        """Delete all that was staged."""
        if self._growing is not None:
            self._growing.close()
        names = [staged.file for staged in self._done]
        names.append(self._growing.file if self._growing is not None else None)
        for name in names:
            if name is not None:
                with suppress(OSError):  # gone with its topic; or it goes with a vacuum, a day later
                    self._folder.files.unlink(self._folder.name(name))
        self._done, self._growing = [], None

    def _end(self) -> None:
        if self._growing is not None:
            self._done.append(self._growing.end())
            self._growing = None


class _Growing:
    """A piece that still grows: in memory, and once it is larger in a file."""

    def __init__(self, folder: Folder, name: str) -> None:
        self._folder = folder
        self._name = name
        self._salt = new_salt()
        self._fd = -1
        self._heads: list[bytes] = []
        self._frames: list[bytes] = []
        self._count = 0
        self._handed_over = 0
        self.size = 0
        self.file: str | None = None

    def add(self, encoded: EncodedFrame) -> None:
        if self.file is None and self.size + encoded.size > INLINE_BYTES:
            self._spill()
        header = encoded.header(base=self._count, written_at=0, synced=0, salt=self._salt)
        self._heads.append(header)
        if self.file is None:
            self._frames.append(header + bytes(encoded.body))
        else:
            self._folder.files.pwritev(self._fd, [header, encoded.body], SEGMENT_HEADER_BYTES + self.size)
            self._begin_writeback()
        self.size += encoded.size
        self._count += encoded.count

    def end(self) -> StagedPiece:
        """Return the finished piece, which is durable if it lies in a file."""
        if self.file is None:
            return StagedPiece(None, b"".join(self._frames), self._count)
        self._folder.files.sync(self._fd)
        self.close()
        return StagedPiece(self.file, b"".join(self._heads), self._count)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._folder.files.close(fd)

    def _spill(self) -> None:
        folder = self._folder
        self.file = self._name
        self._fd = folder.files.open(folder.name(self._name), create=True)
        head = SegmentHead(self._salt, 0, 0, folder.topic_id, folder.partition, 0)
        folder.files.pwritev(self._fd, [head.pack(), *self._frames], 0)
        self._frames = []

    def _begin_writeback(self) -> None:
        if self.size - self._handed_over >= _WRITEBACK_BYTES:
            self._folder.files.start_writeback(self._fd, self._handed_over, self.size - self._handed_over)
            self._handed_over = self.size


def _read(folder: Folder, staged: StagedPiece) -> Iterator[Frame]:
    """The frames of a piece, as they were staged."""
    fd = -1 if staged.file is None else folder.files.open(folder.name(staged.file), write=False)
    try:
        for each in staged.piece(0, 0, 0).frames():
            if fd < 0:
                at = each.byte - SEGMENT_HEADER_BYTES
                data = staged.data[at : at + each.size]
            else:
                data = folder.files.pread(fd, each.size, each.byte)
            head = read_head(data)
            assert head is not None, "it was encoded by this process"
            yield frame.read_frame(data, 0, head)
    finally:
        if fd >= 0:
            folder.files.close(fd)
