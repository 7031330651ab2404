"""The segment at the end, as readers have it.

It is mapped, anew whenever it has grown. Finding a place goes by a list of the frames seen so far, which
each process makes for itself by walking the headers once: 300 frames of 1000 messages take half a
millisecond, a full segment of 200,000 single messages a third of a second. Only bytes below the published
end are touched; those never change and are never cut off.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_right

from penstock.errors import Corrupt, TopicReplaced
from penstock.log import frame
from penstock.log.folder import Folder
from penstock.log.frame import Frame
from penstock.log.head import COMPRESSED, HEADER, MAGIC_BYTES, Head, read_head
from penstock.log.segment import SEGMENT_HEADER_BYTES, SegmentHead, parse_head
from penstock.options import KIB

#: A frame's header with the longest producer id and group.
_FRAME_HEADER_MOST = 64 * KIB


class ActiveFile:
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
