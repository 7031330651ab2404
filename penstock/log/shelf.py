"""Frames that wait for a transaction's commit: in memory while they are few, in files when they are many.

The files lie in the partition's folder, laid out as segments, so that the commit only has to rename them.
Nothing here knows of stores or locks: a process that cannot see `state.db` stages in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from penstock.log import frame
from penstock.log.encode import Draft
from penstock.log.folder import Folder
from penstock.log.frame import Frame
from penstock.log.head import read_head
from penstock.log.segment import SEGMENT_HEADER_BYTES, SegmentHead, new_salt
from penstock.log.staged import STAGED, Piece
from penstock.options import KIB, MIB

#: A partition's share of a transaction up to this size is stored in the commit record.
INLINE_BYTES = 64 * KIB
#: A staged file is closed at this size, or at the topic's own size of a segment.
_FILE_BYTES_MOST = 64 * MIB
#: So much is handed to the disk at a time, so that the sync at the end waits less.
_WRITEBACK_BYTES = 8 * MIB


class Staged(NamedTuple):
    """Neighbouring frames without offsets: what will be a `Piece`."""

    file: str | None
    data: bytes
    count: int  # type: ignore[assignment]

    @property
    def size(self) -> int:
        """Bytes its frames take in a segment."""
        return self.piece(0, 0, 0).size

    def piece(self, tx: int, number: int, base: int) -> Piece:
        return Piece(tx, number, base, self.count, self.file, self.data)


class Shelf:
    """What a transaction writes to one partition: whole pieces, and one that still grows."""

    def __init__(self, folder: Folder, name: str, segment_bytes: int) -> None:
        self._folder = folder
        self._name = name
        self._limit = min(segment_bytes, _FILE_BYTES_MOST)
        self._done: list[Staged] = []
        self._growing: _Growing | None = None

    def add(self, draft: Draft) -> None:
        if self._growing is None:
            self._growing = _Growing(self._folder, f"{self._name}-{len(self._done):x}{STAGED}")
        self._growing.add(draft)
        if self._growing.size >= self._limit:
            self._end()

    def cut(self) -> None:
        """What comes next is a piece of its own."""
        self._end()

    def adopt(self, pieces: Iterable[Staged]) -> None:
        """Take pieces that another process has made, whole and durable, behind those there are."""
        self._end()
        self._done += pieces

    def finish(self) -> list[Staged]:
        """All pieces, durable."""
        self._end()
        if any(staged.file is not None for staged in self._done):
            self._folder.files.sync_dir(self._folder.path)
        return self._done

    def frames(self) -> Iterator[Frame]:
        """All frames again, to be routed elsewhere."""
        self._end()
        for staged in self._done:
            yield from _read(self._folder, staged)

    def discard(self) -> None:
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

    def add(self, draft: Draft) -> None:
        if self.file is None and self.size + draft.size > INLINE_BYTES:
            self._spill()
        header = draft.header(base=self._count, written_at=0, synced=0, salt=self._salt)
        self._heads.append(header)
        if self.file is None:
            self._frames.append(header + bytes(draft.body))
        else:
            self._folder.files.pwritev(self._fd, [header, draft.body], SEGMENT_HEADER_BYTES + self.size)
            self._begin_writeback()
        self.size += draft.size
        self._count += draft.count

    def end(self) -> Staged:
        """It is whole, and durable if it lies in a file."""
        if self.file is None:
            return Staged(None, b"".join(self._frames), self._count)
        self._folder.files.sync(self._fd)
        self.close()
        return Staged(self.file, b"".join(self._heads), self._count)

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


def _read(folder: Folder, staged: Staged) -> Iterator[Frame]:
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
