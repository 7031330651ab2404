"""What a process sees of a partition: its bounds, and its segments opened for reading.

Readers take no lock. They never look beyond the published end, so they never meet a frame that is
still being written.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from penstock.errors import Corrupt, OffsetTrimmed, TopicReplaced
from penstock.files import read_whole
from penstock.log import lost, records
from penstock.log.descriptors import AWAKE
from penstock.log.folder import Folder, file_bytes
from penstock.log.frame import Frame
from penstock.log.mapped_segment import MappedActive, MappedSealed
from penstock.log.recovery import survey
from penstock.log.segment import read_head
from penstock.message import Message
from penstock.options import TopicOptions


class Bounds(NamedTuple):
    """What can be read now: offsets from `start` up to `end`, which lies at `byte` of `segment`."""

    start: int
    end: int
    segment: int
    byte: int
    dropped: bool


class Segments:
    """One process's eyes on one partition; used by any number of cursors and threads."""

    def __init__(
        self, folder: Folder, options: TopicOptions, topic: str, recover: Callable[[], None] | None
    ) -> None:
        self.folder = folder
        self.topic = topic
        self._options = options
        self._recover = recover
        self._seen = (b"", Bounds(0, 0, 0, 0, False))
        self._surveyed: tuple[tuple[int, int], Bounds] | None = None
        self._bases: list[int] = []
        self._sealed: OrderedDict[int, MappedSealed] = OrderedDict()
        self._active: MappedActive | None = None

    def bounds(self) -> Bounds:
        """What is there at this moment, also what has expired and was not removed yet."""
        folder = self.folder
        raw = folder.read_tail_bytes()
        seen, bounds = self._seen
        if raw == seen and raw:
            return bounds
        tail = records.parse_tail(raw) or folder.read_tail()
        if tail is None or not tail[0].boot == tail[1].boot == folder.boot or tail[0].dropped:
            if self._recover is None:
                return self._survey()
            self._recover()
            tail = folder.read_tail()
            assert tail is not None
        shown, durable = tail
        shows = shown if self._options.sync == "os" else durable
        bounds = Bounds(shown.start, shows.end, shows.segment, shows.byte, shown.dropped)
        self._seen = raw, bounds  # one assignment: other threads see both or neither
        return bounds

    def readable_from(self, offset: int) -> Bounds:
        """What can be read at this moment; raises `TopicReplaced`, and `OffsetTrimmed` below the start."""
        bounds = self.bounds()
        if bounds.dropped:
            raise TopicReplaced(f"topic {self.topic!r} was dropped", hint="open it anew by its name")
        if offset < bounds.start:
            raise self.trimmed(offset, bounds.start)
        return bounds

    def trimmed(self, offset: int, first: int) -> OffsetTrimmed:
        """The error for an offset that retention took."""
        return OffsetTrimmed(
            f"offset {offset} of {self.topic!r} partition {self.folder.partition} is gone: "
            f"the first one left is {first}",
            partition=self.folder.partition, offset=offset, first=first,
        )  # fmt: skip

    def segment_of(self, offset: int, bounds: Bounds) -> int:
        """The first offset of the segment in which `offset` lies."""
        bases = self._bases
        if not bases or bases[-1] < bounds.segment or offset < bases[0]:
            bases = self._bases = self.folder.segments()
        if bounds.segment and offset >= bounds.segment:
            return bounds.segment
        at = bisect_right(bases, offset) - 1
        return bases[max(at, 0)] if bases else 0

    def next_segment(self, base: int) -> int | None:
        """The segment behind `base`, or None when it is the last."""
        at = bisect_right(self._bases, base)
        if at == len(self._bases):
            self._bases = self.folder.segments()
            at = bisect_right(self._bases, base)
        return self._bases[at] if at < len(self._bases) else None

    def bases_from(self, offset: int, bounds: Bounds) -> list[int]:
        """The segment in which `offset` lies and those behind it, as far as one may read."""
        first = self.segment_of(offset, bounds)
        bases = self._bases
        return bases[bisect_left(bases, first) : bisect_right(bases, bounds.segment)]

    def bases(self) -> list[int]:
        """Return the first offset of every segment, from the folder's listing."""
        self._bases = self.folder.segments()
        return self._bases

    def sealed(self, base: int) -> MappedSealed:
        """The sealed segment, mapped; raises `FileNotFoundError` when it was vacuumed away."""
        segment = self._sealed.get(base)
        if segment is None:
            segment = MappedSealed(self.folder, base)
            self._sealed[base] = segment
            while len(self._sealed) > AWAKE.mapped_most():
                self._sealed.popitem(last=False)
        else:
            try:
                self._sealed.move_to_end(base)
            except KeyError:
                pass  # another thread pushed it out meanwhile; ours stays mapped
        return segment

    def active(self, base: int) -> MappedActive:
        """The segment at the end; raises `FileNotFoundError` when it is gone, or not the end any more."""
        active = self._active
        if active is None or active.base != base:
            active = MappedActive(self.folder, base)
            if active.head.generation and self._surveyed is None:
                raise FileNotFoundError(f"{active.path} was sealed and repacked meanwhile")
            self._active = active
        return active

    def message(self, offset: int) -> Message | None:
        """The message at `offset`, by the shortest way; None when it lies outside the bounds or in a gap.

        Raises `Corrupt` when it is damaged or was lost.
        """
        bounds = self.bounds()
        if not bounds.start <= offset < bounds.end:
            return None
        base = self.segment_of(offset, bounds)
        try:
            if base == bounds.segment:
                found: Frame | None = self.active(base).frame(offset, bounds.byte)
            else:
                found = self.sealed(base).holding(offset)
        except FileNotFoundError:
            self.refuse_missing(base, bounds, offset)
            return self.message(offset)
        if found is None:
            self.refuse_lost(offset, offset + 1)
            return None
        return found.message(self.topic, self.folder.partition, offset - found.head.base)

    def refuse_missing(self, base: int, before: Bounds, offset: int) -> None:
        """Raise for a segment that is missing; return if others moved on, so that a second look helps."""
        self.forget()
        if base == before.segment and self.bounds() == before:
            path = self.folder.segment_path(base)
            raise Corrupt(
                path, 0, "a missing segment", partition=self.folder.partition, first=offset, stop=before.end
            )

    def refuse_missing_active(self, before: Bounds) -> None:
        """Raise `Corrupt` when the active segment is missing, or a repacked one lies in its place.

        A segment was not there: if it was another one, or others moved on meanwhile, one looks again.
        """
        try:
            head = read_head(self.folder, before.segment)
            is_there = head is None or not head.generation
        except FileNotFoundError:
            is_there = False
        if not is_there:
            self.refuse_missing(before.segment, before, before.start)

    def refuse_unexplained_gap(self, offset: int, following: int) -> None:
        """Raise `Corrupt` unless offsets were left out on purpose before the segment at `following`."""
        try:
            head = read_head(self.folder, following)
        except FileNotFoundError:
            self.forget()  # vacuumed away meanwhile: the next look says so
            return
        if head is not None and not head.behind_gap:
            raise Corrupt(
                self.folder.segment_path(offset), 0, "a missing segment",
                partition=self.folder.partition, first=offset, stop=following,
            )  # fmt: skip
        self.refuse_lost(offset, following)

    def refuse_lost(self, first: int, stop: int) -> None:
        """Raise `Corrupt` when some of these offsets, which no segment holds, were acknowledged once."""
        lost.refuse(self.folder, first, stop)

    def forget(self) -> None:
        """Drop what is cached, after segments were removed or replaced."""
        self._sealed.clear()
        self._bases = []

    def rest(self) -> None:
        """Give descriptors back; segments are opened again when they are read."""
        self._sealed.clear()
        self._active = None

    def close(self) -> None:
        """Close every open segment."""
        self.forget()
        self._active = None

    def _survey(self) -> Bounds:
        """Find the bounds from the segments, for a read-only store that nobody opened since the start."""
        bases = self.folder.segments()
        shown = self.folder.read_shown()
        if not bases:
            return Bounds(0, 0, 0, 0, False)
        looked_at = bases[-1], file_bytes(self.folder, bases[-1])
        if self._surveyed is None or self._surveyed[0] != looked_at:
            data = read_whole(self.folder.files, self.folder.segment_path(bases[-1]))
            found = survey(data, bases[-1])
            durable = self.folder.read_durable()
            start = shown.start if shown is not None else bases[0]
            end = max(found.next, durable.end if durable is not None else 0)  # what is gone is missed
            dropped = shown is not None and shown.dropped
            self._surveyed = looked_at, Bounds(start, end, bases[-1], found.byte, dropped)
        return self._surveyed[1]
