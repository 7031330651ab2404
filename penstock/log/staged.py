"""What a transaction brings into a partition, and how it gets there.

Frames are encoded and made durable before the transaction commits, at offsets counted from 0: small
ones lie in the commit record itself, large ones in a file beside the segments, laid out as a segment.
The commit gives them their offsets. Then whoever has the append lock brings them in:

    small pieces, and the first one into an empty segment    copied behind the last frame
    large pieces                                         headers set right in the file, which is then
                                                         renamed: it is the next segment

Every step can be repeated: what is there already is told by the offset at which the partition ends, and
a file that is gone from its place by the segment that it became. So anyone can finish what a process
that was killed began (docs/RECOVERY.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from penstock.errors import Corrupt
from penstock.log import segment
from penstock.log.columns import round_up
from penstock.log.encode import placed
from penstock.log.folder import Folder
from penstock.log.head import read_head
from penstock.log.segment import SEGMENT_HEADER_BYTES, SegmentHead, parse_head
from penstock.options import MIB

STAGED = ".staged"
#: Larger pieces become segments of their own; to copy them would hold the append lock too long.
ADOPT_BYTES = 16 * MIB
_COPY_BYTES = 8 * MIB


class End(NamedTuple):
    """Where a partition ends: the next offset, the place of its frame, and the time for what comes."""

    next: int
    segment: int
    byte: int
    last_written_at: int


class Piece(NamedTuple):
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


class Ledger(Protocol):
    """What the store remembers of committed transactions that are not yet whole in this partition."""

    def unfinished(self) -> list[Piece]:
        """All pieces still to be brought in, or to be made durable, by offset."""

    def move(self, pieces: Iterable[Piece]) -> None:
        """Store other offsets for pieces, durably."""

    def finish(self, tx: int) -> None:
        """The transaction is whole and durable in this partition."""


class NoLedger:
    """For a log without a store around it: there are no transactions."""

    def unfinished(self) -> list[Piece]:
        return []

    def move(self, pieces: Iterable[Piece]) -> None:
        raise AssertionError("no transactions")

    def finish(self, tx: int) -> None:
        raise AssertionError("no transactions")


def bring_in(folder: Folder, end: End, piece: Piece) -> End:
    """Append what is missing of a piece; return where the partition ends then.

    The append lock is held, and nothing lies behind `end`. What was copied is not yet durable; before a
    file becomes a segment, the caller makes durable what came before it.
    """
    if has_become_segment(folder, piece):
        return _as_segment(folder, piece)
    if becomes_segment(folder, end, piece):
        return _rename_in(folder, end, piece)
    assert end.next >= piece.base, "a gap before a transaction: the caller begins a segment there"
    return _copy_in(folder, end, piece)


def becomes_segment(folder: Folder, end: End, piece: Piece) -> bool:
    """Whether the piece is taken as a segment of its own.

    Not in the place of one without messages, which other processes have open under the same name.
    """
    if piece.file is None or end.next > piece.base:
        return False
    return has_become_segment(folder, piece) or (end.next > end.segment and piece.size > ADOPT_BYTES)


def has_become_segment(folder: Folder, piece: Piece) -> bool:
    return piece.file is not None and not folder.files.exists(folder.name(piece.file))


def remove_file(folder: Folder, piece: Piece) -> None:
    """A piece that was copied leaves its file behind."""
    if piece.file is not None and folder.files.exists(folder.name(piece.file)):
        folder.files.unlink(folder.name(piece.file))


def _copy_in(folder: Folder, end: End, piece: Piece) -> End:
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
                parts.append(files.pread(source, length, body_at))
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


def _rename_in(folder: Folder, end: End, piece: Piece) -> End:
    """Make the staged file the next segment."""
    files, now = folder.files, end.last_written_at
    assert piece.file is not None
    path = folder.name(piece.file)
    fd = files.open(path)
    try:
        head = parse_head(files.pread(fd, SEGMENT_HEADER_BYTES, 0))
        if head is None:
            raise Corrupt(path, 0, "damaged header of a staged file")
        byte = SEGMENT_HEADER_BYTES
        for each in piece.frames():
            # All before it in this file is durable, and was so before the file became a segment.
            header = placed(each.header, base=each.base, written_at=now, synced=each.byte, salt=head.salt)
            files.pwrite(fd, header, each.byte)
            byte = each.byte + each.size
        gap = end.next < piece.base
        head = SegmentHead(head.salt, 0, piece.base, folder.topic_id, folder.partition, now, gap)
        files.pwrite(fd, head.pack(), 0)
        files.truncate(fd, byte)
        files.sync(fd)
    finally:
        files.close(fd)
    files.rename(path, folder.segment_path(piece.base))
    files.sync_dir(folder.path)
    return End(piece.stop, piece.base, byte, now)


def _as_segment(folder: Folder, piece: Piece) -> End:
    """Where the partition ends when the staged file has become a segment already."""
    path = folder.segment_path(piece.base)
    try:
        head = segment.read_head(folder, piece.base)
    except FileNotFoundError:
        head = None
    if head is None:
        assert piece.file is not None
        raise Corrupt(folder.name(piece.file), 0, "a committed transaction's file is missing")
    fd = folder.files.open(path, write=False)
    try:
        return End(piece.stop, piece.base, folder.files.size(fd), head.created)
    finally:
        folder.files.close(fd)
