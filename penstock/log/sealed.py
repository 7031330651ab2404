"""A segment that no longer changes: mapped whole, with its index.

Checksums are checked by blocks of 1 MiB, once for each opened segment. Where a block fails, the
frames in it are checked one by one, so that damage costs only the frame it hit.
"""

from __future__ import annotations

import threading

from penstock.checksum import crc32
from penstock.errors import Corrupt
from penstock.log import frame, index
from penstock.log.folder import Folder
from penstock.log.frame import Frame
from penstock.log.head import COMPRESSED, HEADER, Head, read_head
from penstock.log.index import BLOCK_BYTES, Index
from penstock.log.segment import SEGMENT_HEADER_BYTES, parse_head

#: Parsed headers kept for single look-ups; they point into the mapping and cost little.
_FRAMES_KEPT = 1024
#: Of compressed ones fewer: each takes as much memory as its messages.
_UNPACKED_KEPT = 4


class SealedSegment:
    """A segment that no longer changes: mapped whole, with its index."""

    def __init__(self, folder: Folder, base: int) -> None:
        self.path = folder.segment_path(base)
        self._partition = folder.partition
        files = folder.files
        fd = files.open(self.path, write=False)
        try:
            size = files.size(fd)
            self.data = memoryview(files.map(fd, size)) if size else memoryview(b"")
        finally:
            files.close(fd)
        head = parse_head(self.data[:SEGMENT_HEADER_BYTES])
        self.salt = head.salt if head is not None else None
        self.generation = head.generation if head is not None else 0
        stored = index.load(folder, base, self.generation, self.salt or 0)
        self.index: Index = stored or index.build(self.data, base)
        # Which blocks were found sound. Building the index has checked every frame.
        self._checked = bytearray((0 if stored else 1,)) * len(self.index.blocks)
        self._checking: threading.Thread | None = None
        self._frames: dict[int, Frame] = {}

    def frame(self, number: int) -> Frame:
        """Frame `number` of the index, with its checksums checked; raises `Corrupt` where they fail."""
        at = self.index.bytes[number]
        end = at + self.index.sizes[number]
        if self._blocks_are_sound(at, end):
            head = Head._make(HEADER.unpack_from(self.data, at))
            return frame.read_frame(self.data, at, head)
        checked = read_head(self.data, at)
        if checked is not None:
            found = frame.read_frame(self.data, at, checked)
            if checked.base == self.index.offsets[number] and found.check_body():
                return found
        raise self.damage(number)

    def holding(self, offset: int) -> Frame | None:
        """The frame that holds `offset`; None when there is a gap. Frames found before are found quickly."""
        number = self.index.find(offset)
        found = self._frames.get(number)
        if found is None:
            if number < 0:
                return None
            found = self.frame(number)
            compressed = found.head.flags & COMPRESSED
            if len(self._frames) >= (_UNPACKED_KEPT if compressed else _FRAMES_KEPT):
                self._frames.clear()
            self._frames[number] = found
        return found if offset < found.head.stop else None

    def damage(self, number: int) -> Corrupt:
        """The error for a frame that cannot be read, naming the offsets that are lost with it."""
        offsets = self.index.offsets
        stop = offsets[number + 1] if number + 1 < len(offsets) else self.index.stop
        return Corrupt(
            self.path, self.index.bytes[number], "a damaged frame",
            partition=self._partition, first=offsets[number], stop=stop,
        )  # fmt: skip

    def end_of(self, number: int) -> int:
        """Where frame `number` ends, or for -1 where the first one begins."""
        if number < 0:
            return SEGMENT_HEADER_BYTES
        return self.index.bytes[number] + self.index.sizes[number]

    def check_ahead(self) -> None:
        """Begin to check the whole segment in a thread, while the one before it is being read.

        One checksum over all of it lets go of the interpreter once, so it costs the reader nothing.
        """
        if self._checking is None and not all(self._checked):
            self._checking = threading.Thread(target=self._check_whole, name="penstock-check", daemon=True)
            self._checking.start()

    def _check_whole(self) -> None:
        if crc32(self.data[: self.index.data_bytes]) == self.index.whole:
            self._checked = bytearray(b"\1") * len(self.index.blocks)

    def ends_in_damage(self) -> bool:
        """Whether bytes that are no frame lie behind the last one."""
        return bool(bytes(self.data[self.index.data_bytes :]).strip(b"\0"))

    def _blocks_are_sound(self, begin: int, end: int) -> bool:
        if self._checking is not None:
            self._checking.join()
            self._checking = None
        sound = True
        for block in range(begin // BLOCK_BYTES, -(-end // BLOCK_BYTES)):
            if not self._checked[block]:
                at = block * BLOCK_BYTES
                stop = min(at + BLOCK_BYTES, self.index.data_bytes)
                if crc32(self.data[at:stop]) == self.index.blocks[block]:
                    self._checked[block] = 1
                else:
                    sound = False
        return sound
