"""Segments mapped for reading: the active one, frame by frame as it grows, and sealed ones, by their index.

Checksums of a sealed segment are checked by blocks of 1 MiB, once for each opened segment. Where a block
fails, the frames in it are checked one by one, so that damage costs only the frame it hit.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_right
from collections.abc import Sequence

from penstock.errors import Corrupt, TopicReplaced
from penstock.log import frame, segment_index
from penstock.log.block_checks import BlockChecks
from penstock.log.folder import Folder
from penstock.log.frame import Frame
from penstock.log.frame_header import COMPRESSED, HEADER, MAGIC_BYTES, Head, read_head
from penstock.log.segment import SEGMENT_HEADER_BYTES, SegmentHead, parse_head
from penstock.log.segment_index import Index
from penstock.parse import KIB

#: A frame's header with the longest producer id and group.
_FRAME_HEADER_MOST = 64 * KIB


class MappedActive:
    """The active segment, opened for reading; shared by threads."""

    def __init__(self, folder: Folder, base: int) -> None:
        self.base = base
        self.path = folder.segment_path(base)
        self.partition = folder.partition
        self._files = folder.files
        self.fd = folder.files.open(self.path, write=False)
        head = parse_head(self._files.pread(self.fd, SEGMENT_HEADER_BYTES, 0))
        if head is None:  # the frames tell what it said
            first = read_head(self._files.pread(self.fd, _FRAME_HEADER_MOST, SEGMENT_HEADER_BYTES))
            if first is None:
                raise Corrupt(self.path, 0, "damaged segment header", partition=folder.partition)
            head = SegmentHead(first.salt, 0, base, folder.topic_id, folder.partition, first.written_at)
        if head.topic_id != folder.topic_id:
            raise TopicReplaced("the topic was dropped and created anew", hint="open it anew by its name")
        self.head: SegmentHead = head
        self._mutex = threading.Lock()
        self._map = memoryview(b"")
        self._walked = SEGMENT_HEADER_BYTES
        self._offsets = array("Q")
        self._stops = array("Q")
        self._starts = array("Q")
        self._sound = bytearray()  # frames whose body was checked
        self._unpacked: tuple[int, Frame | None] = -1, None  # the last compressed one that was asked for

    def __del__(self) -> None:
        if getattr(self, "fd", -1) >= 0:
            self._files.close(self.fd)

    def mapped(self, end_byte: int) -> memoryview:
        """The file up to the published end, without copying it."""
        if len(self._map) < end_byte:
            with self._mutex:
                self._grow(end_byte)
        return self._map[:end_byte]

    def locate(self, offset: int, end_byte: int) -> tuple[int, int]:
        """The (first offset, byte) of the frame that holds `offset`; `Corrupt` when damage took it."""
        number = self._find(offset, end_byte)
        if number >= 0 and offset < self._stops[number]:
            return self._offsets[number], self._starts[number]
        raise self.damage(offset, end_byte)

    def frame(self, offset: int, end_byte: int) -> Frame:
        """The frame that holds `offset`, checked, pointing into the mapped file."""
        number = self._find(offset, end_byte)
        if number < 0 or offset >= self._stops[number]:
            raise self.damage(offset, end_byte)
        last, unpacked = self._unpacked
        if last == number and unpacked is not None:
            return unpacked
        found = frame.read_frame(self._map, self._starts[number], self._head(number))
        if not self._sound[number]:
            if not found.check_body():
                raise self.damage(offset, end_byte)
            self._sound[number] = 1
        if found.head.flags & COMPRESSED:
            self._unpacked = number, found
        return found

    def frame_starts(self, offsets: Sequence[int], end_byte: int) -> list[int]:
        """The bytes at which the frames begin that hold these offsets, in their order; each was checked."""
        if end_byte > self._walked:
            self._walk(end_byte)
        known, sound = self._offsets, self._sound
        starts: list[int] = []
        first, count = known[0] if known else 0, len(known)
        for offset in offsets:
            number = offset - first  # right at once where every frame holds one message
            if not 0 <= number < count or known[number] != offset:
                number = bisect_right(known, offset) - 1
            if number < 0 or not sound[number] or offset >= self._stops[number]:
                self.frame(offset, end_byte)  # checks it, or says what is wrong
            starts.append(self._starts[number])
        return starts

    def first_written_since(self, written_at: int, end_byte: int) -> Frame | None:
        """The first frame written at or after that time."""
        self._walk(end_byte)
        low, high = 0, len(self._offsets)
        while low < high:
            middle = (low + high) // 2
            if Head._make(HEADER.unpack_from(self._map, self._starts[middle])).written_at < written_at:
                low = middle + 1
            else:
                high = middle
        return self.frame(self._offsets[low], end_byte) if low < len(self._offsets) else None

    def damage(self, offset: int, end_byte: int) -> Corrupt:
        """The error for an offset whose frame is not sound, naming what is lost with it."""
        number = self._find(offset, end_byte)
        following = self._offsets[number + 1] if number + 1 < len(self._offsets) else None
        inside = number >= 0 and offset < self._stops[number]
        byte = self._starts[number] if inside else self._end_of(number)
        return Corrupt(
            self.path, byte, "a damaged frame", partition=self.partition, first=offset, stop=following
        )

    def _end_of(self, number: int) -> int:
        if number < 0:
            return SEGMENT_HEADER_BYTES
        return self._starts[number] + self._head(number).size

    def _head(self, number: int) -> Head:
        """A header that was checked before."""
        return Head._make(HEADER.unpack_from(self._map, self._starts[number]))

    def _find(self, offset: int, end_byte: int) -> int:
        if end_byte > self._walked:
            self._walk(end_byte)
        return bisect_right(self._offsets, offset) - 1

    def _walk(self, end_byte: int) -> None:
        """Take up the frames that were added since the last time."""
        with self._mutex:
            self._grow(end_byte)
            at = self._resumed()
            while at < end_byte:
                head = read_head(self._map, at)
                if head is None or head.salt != self.head.salt:
                    at = self._next_sound(at, end_byte)
                    continue
                if head.count:
                    self._stops.append(head.stop)
                    self._starts.append(at)
                    self._sound.append(0)
                    self._offsets.append(head.base)
                at += head.size
            self._walked = at

    def _resumed(self) -> int:
        """Where to walk on; Ctrl-C may have come in the middle of the last walk, and of a frame's entry."""
        count = len(self._offsets)
        if len(self._stops) > count:
            del self._stops[count:], self._starts[count:], self._sound[count:]
        return max(self._walked, self._end_of(count - 1))

    def _grow(self, end_byte: int) -> None:
        """Map the file anew when it has grown; slices of the older mapping stay valid."""
        if len(self._map) >= end_byte:
            return
        try:
            self._map = self._mapped_whole()
        except ValueError:  # sealed just now: what was reserved behind the last frame was cut off
            self._map = self._mapped_whole()

    def _mapped_whole(self) -> memoryview:
        return memoryview(self._files.map(self.fd, self._files.size(self.fd)))

    def _next_sound(self, byte: int, end_byte: int) -> int:
        """Where the first sound header behind damage at `byte` is."""
        data = bytes(self._map[byte:end_byte])
        at = data.find(MAGIC_BYTES, 8)
        while at >= 0:
            head = read_head(data, at) if at % 8 == 0 else None
            if head is not None and head.salt == self.head.salt:
                return byte + at
            at = data.find(MAGIC_BYTES, at + 4)
        return end_byte


#: Parsed headers kept for single look-ups; they point into the mapping and cost little.
_FRAMES_KEPT = 1024
#: Of compressed ones fewer: each takes as much memory as its messages.
_UNPACKED_KEPT = 4


class MappedSealed:
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
        stored = segment_index.load(folder, base, self.generation, self.salt or 0)
        self.index: Index = stored or segment_index.build(self.data, base)
        #: Building the index has checked every frame.
        self.blocks = BlockChecks(self.data, self.index, are_sound=stored is None)
        self._frames: dict[int, Frame] = {}

    def frame(self, number: int) -> Frame:
        """Frame `number` of the index, with its checksums checked; raises `Corrupt` where they fail."""
        at = self.index.bytes[number]
        end = at + self.index.sizes[number]
        if self.blocks.are_sound(at, end):
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

    def ends_in_damage(self) -> bool:
        """Whether bytes that are no frame lie behind the last one."""
        return bool(bytes(self.data[self.index.data_bytes :]).strip(b"\0"))
