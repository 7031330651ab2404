"""A place in a partition that moves forward as it reads.

Sealed segments are read from their mapping, frame by frame, without copying; the active one, and
small frames that are not repacked yet, in chunks that one loop decodes. Nothing is skipped in
silence: what retention took is `OffsetTrimmed`, what is damaged is `Corrupt`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain

from penstock.errors import Corrupt
from penstock.files import speak
from penstock.log import frame, single_frame
from penstock.log.frame import Frame, require_zstd
from penstock.log.frame_header import COMPRESSED, read_head
from penstock.log.key_retention import KeyFloors, KeyRetention, unexpired_runs
from penstock.log.mapped_segment import MappedSealed
from penstock.log.rows import FrameRows, MessageRows, rows_that_fit
from penstock.log.segment import SEGMENT_HEADER_BYTES
from penstock.log.segments import Bounds, Segments
from penstock.message import Rows
from penstock.parse import KIB, MIB

_CHUNK_BYTES = MIB
#: What has expired is read in steps of this size, to be skipped.
_SKIP_MESSAGES, _SKIP_BYTES = 4096, MIB
#: Who has read so much in a row will read on: what comes next may be checked ahead.
_FAR_BYTES = 4 * MIB
#: Sealed segments with smaller frames than this are decoded like active ones, by the tight loop.
_TINY_FRAME_BYTES = 2 * KIB


class Cursor:
    """A place in a partition that moves forward as it reads; with key retention it skips what has expired."""

    def __init__(
        self, segments: Segments, offset: int, retention: KeyRetention | None = None, *, far: bool = False
    ) -> None:
        self._segments = segments
        self._retention = retention
        self.offset = offset
        #: How much was read in a row; whoever says that much will be has no need to show it.
        self._bytes_read = _FAR_BYTES if far else 0
        #: The segment for which all was begun that can be checked ahead.
        self._ahead = -1
        # Where the next frame begins: (segment, its generation, first offset, byte).
        self._near: tuple[int, int, int, int] | None = None
        # A compressed frame that was used in part: unpacking it again for the next part would take long.
        self._begun: Frame | None = None

    def read(self, max_messages: int, max_bytes: int, stop: int | None = None) -> list[Rows]:
        """What comes next, up to the limits (one message at least); empty at the end.

        Raises `OffsetTrimmed` when retention overtook this place, `Corrupt` where bytes are damaged,
        `TopicReplaced` when the topic was dropped. The cursor does not move then.
        """
        retention, max_bytes = self._retention, max(max_bytes, 1)
        if retention is not None and retention.age.retention_ns is not None:
            retention.age.refuse(self.offset)
        while rows := self._read(max_messages, max_bytes, stop):
            if retention is None:
                return rows
            floors = retention.floors()
            if rows[0].first >= floors.highest:
                return rows
            unexpired = [run for each in rows for run in unexpired_runs(each, floors)]
            if unexpired:
                return unexpired
            self._skip_expired(floors, stop)
        return []

    def _skip_expired(self, floors: KeyFloors, stop: int | None) -> None:
        """Go to the next message that has not expired, in larger steps than may be read at once."""
        while rows := self._read(_SKIP_MESSAGES, _SKIP_BYTES, stop):
            unexpired = next(chain.from_iterable(unexpired_runs(each, floors) for each in rows), None)
            if unexpired is not None:
                self.offset = unexpired.first
                return

    def _read(self, max_messages: int, max_bytes: int, stop: int | None) -> list[Rows]:
        """What comes next, expired or not."""
        while True:
            bounds = self._segments.readable_from(self.offset)
            end = bounds.end if stop is None else min(stop, bounds.end)
            if self.offset >= end:
                return []
            base = self._segments.segment_of(self.offset, bounds)
            try:
                if base == bounds.segment:
                    rows = self._read_active(bounds, end, max_messages, max_bytes)
                else:
                    rows = self._read_sealed(base, end, max_messages, max_bytes)
            except FileNotFoundError:
                self._segments.refuse_missing(base, bounds, self.offset)  # else vacuumed or repacked under us
                continue
            except OSError as error:
                speak(error)
            if rows:
                self.offset = rows[-1].stop
                return rows
            following = self._segments.next_segment(base)
            if following is None or following >= end:
                self._segments.refuse_lost(self.offset, end)
                return []
            if following > self.offset:
                self._segments.refuse_unexplained_gap(self.offset, following)
            self.offset = following

    def _read_sealed(self, base: int, end: int, max_messages: int, max_bytes: int) -> list[Rows]:
        segment = self._segments.sealed(base)
        if self._bytes_read >= _FAR_BYTES:
            self._check_ahead(segment, base, end)
        if segment.index.average_frame_bytes() < _TINY_FRAME_BYTES:
            return self._read_small_frames(segment, end, max_messages, max_bytes)
        rows: list[Rows] = []
        topic, partition = self._segments.topic, self._segments.folder.partition
        most = max_bytes
        for found in self._frames(segment):
            base, count, size = found.head.base, found.head.count, found.weight
            is_all_wanted = base >= self.offset and base + count <= end and count <= max_messages
            if is_all_wanted and size <= max_bytes:
                rows.append(FrameRows(topic, partition, found, 0, count))
                max_messages -= count
                max_bytes -= size
                continue
            if rows and size > max_bytes:
                break
            first = self.offset - base if not rows else 0
            taken = self._take(found, first, min(base + count, end) - base, max_messages, max_bytes)
            if taken is None:
                break
            rows.append(taken)
            max_messages -= len(taken)
            max_bytes -= size
            if taken.stop < base + count:
                break
        self._bytes_read += most - max_bytes
        return rows

    def _check_ahead(self, segment: MappedSealed, base: int, end: int) -> None:
        """Have checked meanwhile what comes next: half of what is left here, then the next segment."""
        if self._ahead == base or end < segment.index.stop:
            return
        here = segment.end_of(segment.index.find(self.offset) - 1)
        if segment.blocks.check_ahead((here + segment.index.data_bytes) // 2):
            return
        self._ahead = base
        following = self._segments.next_segment(base)
        if following is not None and following < min(end, self._segments.bounds().segment):
            with suppress(FileNotFoundError):
                self._segments.sealed(following).blocks.check_ahead(0)

    def _frames(self, segment: MappedSealed) -> Iterator[Frame]:
        """Frames from this cursor's offset on; raises `Corrupt` where one is missing between them."""
        number = max(segment.index.find(self.offset), 0)
        expected = self.offset
        while number < len(segment.index.offsets):
            found = self._frame_or_stop(segment, number, expected)
            if found is None:
                return
            base, stop = found.head.base, found.head.stop
            if stop > expected:
                if base > expected:
                    if expected > self.offset:
                        return
                    raise Corrupt(
                        segment.path, segment.end_of(number - 1), "a damaged frame",
                        partition=self._segments.folder.partition, first=expected, stop=base,
                    )  # fmt: skip
                yield found
                expected = stop
            number += 1
        if expected == self.offset and segment.ends_in_damage():
            following = self._segments.next_segment(segment.index.base)
            if following is not None and following > expected:
                raise Corrupt(
                    segment.path, segment.index.data_bytes, "a damaged frame",
                    partition=self._segments.folder.partition, first=expected, stop=following,
                )  # fmt: skip

    def _frame_or_stop(self, segment: MappedSealed, number: int, expected: int) -> Frame | None:
        """The frame; None when it is damaged but sound ones before it were read and come first."""
        try:
            return self._as_begun(segment.frame(number))
        except Corrupt:
            if expected > self.offset:
                return None
            raise

    def _read_small_frames(
        self, segment: MappedSealed, end: int, max_messages: int, max_bytes: int
    ) -> list[Rows]:
        """Read a sealed segment that is not repacked yet as the active one is read: in chunks."""
        offsets, starts = segment.index.offsets, segment.index.bytes
        number = max(segment.index.find(self.offset), 0)
        if offsets and segment.salt is not None and offsets[number] <= self.offset:
            rows, _, _ = self._decode(
                segment.data, starts[number], offsets[number], segment.salt, end, max_messages, max_bytes
            )
            if rows:
                return rows
        found = next(self._frames(segment), None)
        if found is None:
            return []
        base, stop = found.head.base, min(found.head.stop, end)
        taken = self._take(found, self.offset - base, stop - base, max_messages, max_bytes)
        return [taken] if taken is not None else []

    def _read_active(self, bounds: Bounds, end: int, max_messages: int, max_bytes: int) -> list[Rows]:
        active = self._segments.active(bounds.segment)
        near, file = self._near, (active.base, active.head.generation)
        if near is not None and near[:2] == file and near[2] == self.offset:
            first, byte = near[2:]
        elif self.offset == active.base:
            first, byte = active.base, SEGMENT_HEADER_BYTES
        else:
            first, byte = active.locate(self.offset, bounds.byte)
        data = active.mapped(bounds.byte)
        rows, offset, at = self._decode(data, byte, first, active.head.salt, end, max_messages, max_bytes)
        if not rows and max_messages > 0:
            raise active.damage(self.offset, bounds.byte)  # it was said to be there
        self._near = (*file, offset, at)
        return rows

    def _decode(
        self, data: memoryview, at: int, offset: int, salt: int, end: int, max_messages: int, max_bytes: int
    ) -> tuple[list[Rows], int, int]:
        """Rows from the frames from byte `at` on, the first of which begins with `offset`.

        Also the offset and byte of the first frame that was not used up.
        """
        rows: list[Rows] = []
        while max_messages > 0 and max_bytes > 0 and offset < end:
            if offset >= self.offset and single_frame.is_one(data, at):
                chunk = data[at : at + min(max_bytes, _CHUNK_BYTES)]
                messages, used = single_frame.decode_run(
                    chunk, 0, topic=self._segments.topic, partition=self._segments.folder.partition,
                    offset=offset, salt=salt, limit=min(max_messages, end - offset),
                )  # fmt: skip
                if messages:
                    rows.append(MessageRows(messages))
                    max_messages -= len(messages)
                    max_bytes -= used
                    at, offset = at + used, messages[-1].offset + 1
                    continue
            head = read_head(data, at)
            if head is None or head.salt != salt or head.base != offset:
                break
            size = head.size
            if at + size > len(data):
                break
            found = self._as_begun(frame.read_frame(data, at, head))
            weight = found.weight
            if rows and weight > max_bytes:
                break
            if not found.check_body():
                break
            if head.count:
                begin = max(self.offset - head.base, 0)
                taken = self._take(found, begin, min(head.stop, end) - head.base, max_messages, max_bytes)
                if taken is None:
                    break
                rows.append(taken)
                max_messages -= len(taken)
                max_bytes -= weight
                if taken.stop < head.stop:
                    break
            at, offset = at + size, head.stop
        return rows, offset, at

    def _take(
        self, found: Frame, first: int, stop: int, max_messages: int, max_bytes: int
    ) -> FrameRows | None:
        stop = min(stop, first + max_messages)
        if stop <= first:
            return None
        if found.weight > max_bytes:
            stop = rows_that_fit(found, first, stop, max_bytes)
        is_begun = found.head.flags & COMPRESSED and stop < found.head.count
        self._begun = found if is_begun else None
        return FrameRows(self._segments.topic, self._segments.folder.partition, found, first, stop)

    def _as_begun(self, found: Frame) -> Frame:
        """A frame that was unpacked before, in place of one found again; else the one found."""
        if not found.head.flags & COMPRESSED:
            return found
        require_zstd()  # a missing library is said before the cursor moves
        begun = self._begun
        return begun if begun is not None and begun.head == found.head else found
