"""Messages of one go-diskq segment, a piece at a time, each checked against both indexes.

A producer writes the time index, then the data, then the index, and syncs nothing. So a crash can leave,
behind the last message of the active segment, a time without data and data without an index: that was never
acknowledged, no reader of go-diskq sees it, and it is left out and noted. When the producer goes on it writes
behind what lies there, so unused bytes may also lie between two messages. Anything else is damage.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator
from typing import NamedTuple

from penstock.errors import Corrupt, UnknownFormat
from penstock.exchange.diskq_columns import decode_columns
from penstock.exchange.diskq_folder import DiskqSegment
from penstock.exchange.diskq_format import (
    DATA,
    INDEX,
    INDEX_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    TIME_INDEX,
    Encoding,
    IndexEntries,
    Misfit,
    Records,
    TimeEntries,
    are_neighbours,
    decode,
    fits,
    parse_index,
    parse_time_index,
    swapped,
)
from penstock.parse import MIB

#: So much is held in memory at a time; a single message may be larger.
_PIECE_MESSAGES = 16_384
_PIECE_BYTES = 8 * MIB
_HINT = "bring the file back from a copy, or move its segment away: its offsets then stay a gap"
Note = Callable[[str], None]


class Piece(NamedTuple):
    """Neighbouring messages: the offset of the first, and their columns."""

    first: int
    records: Records


class SegmentReader:
    """Reads one segment; a context manager, since it has three files open."""

    def __init__(self, segment: DiskqSegment, note: Note) -> None:
        self._segment = segment
        self._note = note
        self._data = open(segment.path + DATA, "rb", buffering=0)  # noqa: SIM115 - closed by __exit__
        self._index = open(segment.path + INDEX, "rb", buffering=0)  # noqa: SIM115
        self._times = open(segment.path + TIME_INDEX, "rb", buffering=0)  # noqa: SIM115
        self._data_bytes = os.fstat(self._data.fileno()).st_size
        #: Messages that are whole: fewer than the index names when the data ends before.
        self.count = segment.count
        #: Entries of the time index that were skipped because a later one is of the same offset.
        self._stale = 0
        self._unused = 0

    def __enter__(self) -> SegmentReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._data.close()
        self._index.close()
        self._times.close()

    def encoding(self) -> Encoding:
        """How its messages are written, told from the first; also what is wrong with its ends is said now."""
        self._check_ends()
        if not self.count:
            return Encoding.FIXED
        entries, times = self._entries(0, 1), self._time_entries(0, 1)
        record = self._read(entries.starts[0], entries.sizes[0])
        for encoding in Encoding:
            if fits(encoding, record, times.times[0]):
                return encoding
        raise self._misfit(INDEX, 0, entries, 0, "a message that is not what the indexes say of it")

    def largest(self) -> int:
        """Bytes of its largest message."""
        most = 0
        for first in range(0, self.count, _PIECE_MESSAGES):
            entries = self._entries(first, min(_PIECE_MESSAGES, self.count - first))
            most = max(most, max(entries.sizes))
            if most > self._data_bytes:
                place = entries.sizes.index(most)
                raise self._misfit(INDEX, first, entries, place, "a message that ends behind the data")
        return most

    def pieces(self, encoding: Encoding, first: int) -> Iterator[Piece]:
        """All messages from the offset `first` on."""
        at, base = max(first - self._segment.base, 0), self._segment.base
        end_before = self._end_of(at - 1) if at else 0
        while at < self.count:
            entries = self._entries(at, min(_PIECE_MESSAGES, self.count - at))
            entries = _fitting(entries, _PIECE_BYTES)
            self._check_entries(at, entries, end_before)
            times = self._time_entries(at, len(entries.offsets))
            yield Piece(base + at, self._records(encoding, at, entries, times))
            at += len(entries.offsets)
            end_before = entries.starts[-1] + entries.sizes[-1]
        if self._unused:
            self._note(f"{self._segment.path}{DATA}: {self._unused} bytes between messages are in no index")
        if self._stale:
            self._note(f"{self._segment.path}{TIME_INDEX}: {self._stale} entries are left from a crash")

    # The ends of the three files.

    def _check_ends(self) -> None:
        segment = self._segment
        self._refuse_foreign_order()
        self._note_torn(INDEX, os.fstat(self._index.fileno()).st_size % INDEX_ENTRY_BYTES)
        self._note_torn(TIME_INDEX, os.fstat(self._times.fileno()).st_size % TIME_ENTRY_BYTES)
        while self.count and self._end_of(self.count - 1) > self._data_bytes:
            self.count -= 1
            if not segment.active or segment.count - self.count > _PIECE_MESSAGES:
                raise self._damage(
                    DATA, self._data_bytes, "the index names messages that are not in the data, cut off"
                )
        if self.count < segment.count:
            if not self.count:
                raise self._damage(DATA, 0, f"no data for {segment.count} messages of the index: it ends")
            self._note(
                f"{segment.path}{DATA}: a torn tail: {segment.count - self.count} messages are cut off"
            )
        self._check_rest()
        self._check_times()

    def _check_times(self) -> None:
        entries = os.fstat(self._times.fileno()).st_size // TIME_ENTRY_BYTES
        if entries < self.count:
            missing = f"no times for {self.count - entries} messages: it ends"
            raise self._damage(TIME_INDEX, entries * TIME_ENTRY_BYTES, missing)
        behind = self._segment.base + self._segment.count
        if entries and self._read_times(entries - 1, 1).offsets[0] >= behind:
            self._note(f"{self._segment.path}{TIME_INDEX}: a torn tail: a time without a message")

    def _check_rest(self) -> None:
        """Check the data behind the last indexed message: at most one that was being written."""
        end = self._end_of(self.count - 1) if self.count else 0
        rest = self._data_bytes - end
        if not rest or self.count < self._segment.count:
            return
        head = self._read(end, min(rest, 64))
        length = int.from_bytes(head[:4], "little")
        body = int.from_bytes(self._read(end + 12 + length, 8), "little") if length < rest else 0
        is_one = rest <= 20 or length + 20 > rest or length + 20 + body >= rest
        if not self._segment.active or not is_one:
            raise self._damage(DATA, end, f"{rest} bytes of messages that the index does not name")
        self._note(
            f"{self._segment.path}{DATA}: a torn tail: {rest} bytes of a message that was not finished"
        )

    def _refuse_foreign_order(self) -> None:
        """Raise `UnknownFormat` for a file of another byte order, which is not a damaged one."""
        if not self._segment.count:
            return
        entry = self._entries(0, 1)
        offset, start, size = entry.offsets[0], entry.starts[0], entry.sizes[0]
        is_swapped = (
            swapped(offset) == self._segment.base and swapped(start) + swapped(size) <= self._data_bytes
        )
        if start + size > self._data_bytes and is_swapped:
            raise UnknownFormat(
                f"{self._segment.path}{INDEX} is big-endian", hint="go-diskq's files are little-endian"
            )

    def _note_torn(self, kind: str, over: int) -> None:
        if over and not self._segment.active:
            raise self._damage(kind, os.stat(self._segment.path + kind).st_size - over, "half an entry")
        if over:
            self._note(f"{self._segment.path}{kind}: a torn tail: {over} bytes are no whole entry")

    # Pieces.

    def _check_entries(self, at: int, entries: IndexEntries, end_before: int) -> None:
        """Check that offsets follow each other, and that messages lie one behind the other."""
        first = self._segment.base + at
        if entries.offsets != array("Q", range(first, first + len(entries.offsets))):
            place = next(n for n, offset in enumerate(entries.offsets) if offset != first + n)
            raise self._misfit(INDEX, at, entries, place, f"offset {entries.offsets[place]} out of turn")
        if entries.starts[-1] + entries.sizes[-1] > self._data_bytes:
            raise self._misfit(
                INDEX, at, entries, len(entries.sizes) - 1, "a message that ends behind the data"
            )
        if entries.starts[0] == end_before and are_neighbours(entries.starts, entries.sizes):
            return
        for place, (start, size) in enumerate(zip(entries.starts, entries.sizes, strict=True)):
            if start < end_before:
                raise self._misfit(
                    INDEX, at, entries, place, "a message that begins inside the one before it"
                )
            self._unused += start - end_before
            end_before = start + size

    def _records(self, encoding: Encoding, at: int, entries: IndexEntries, times: TimeEntries) -> Records:
        begin = entries.starts[0]
        data = self._read(begin, entries.starts[-1] + entries.sizes[-1] - begin)
        starts = array("Q", map(begin.__rsub__, entries.starts)) if begin else entries.starts
        try:
            records = decode_columns(data, starts, entries.sizes) if encoding is Encoding.FIXED else None
            records = records or decode(encoding, data, starts, entries.sizes)
        except Misfit as misfit:
            raise self._misfit(
                DATA, at, entries, misfit.place, "a message that is not as long as the index says"
            ) from None
        if array("q", records.times) != times.times or times.offsets != entries.offsets:
            self._refuse_times(at, entries, times, records)
        return records

    def _refuse_times(self, at: int, entries: IndexEntries, times: TimeEntries, records: Records) -> None:
        for place, (offset, time) in enumerate(zip(entries.offsets, records.times, strict=True)):
            if place >= len(times.times) or (times.offsets[place], times.times[place]) != (offset, time):
                raise self._misfit(TIME_INDEX, at, entries, place, "a time that is not the message's own")

    def _time_entries(self, at: int, count: int) -> TimeEntries:
        """Return those of `count` messages; where a crash left two of one offset, the later one counts."""
        wanted, offsets, times = self._segment.base + at, array("Q"), array("q")
        while len(times) < count:
            place, left = at + len(times), count - len(times)
            found = self._read_times(place + self._stale, left + 1)  # one more shows if the last is stale
            stale = _first_stale(found.offsets, wanted + len(times), left)
            if stale is None:
                offsets += found.offsets[:left]
                times += found.times[:left]
                break
            good, passed = stale
            offsets += found.offsets[:good]
            times += found.times[:good]
            self._stale += passed
        return TimeEntries(offsets, times)

    def _read_times(self, place: int, count: int) -> TimeEntries:
        at, size = place * TIME_ENTRY_BYTES, count * TIME_ENTRY_BYTES
        return parse_time_index(os.pread(self._times.fileno(), size, at))

    def _entries(self, at: int, count: int) -> IndexEntries:
        return parse_index(os.pread(self._index.fileno(), count * INDEX_ENTRY_BYTES, at * INDEX_ENTRY_BYTES))

    def _end_of(self, place: int) -> int:
        entry = self._entries(place, 1)
        return entry.starts[0] + entry.sizes[0]

    def _read(self, at: int, size: int) -> bytes:
        data = os.pread(self._data.fileno(), size, at)
        while len(data) < size and (more := os.pread(self._data.fileno(), size - len(data), at + len(data))):
            data += more
        return data

    # What is wrong.

    def _misfit(self, kind: str, at: int, entries: IndexEntries, place: int, what: str) -> Corrupt:
        sizes = {INDEX: INDEX_ENTRY_BYTES, TIME_INDEX: TIME_ENTRY_BYTES}
        byte = (at + place) * sizes[kind] if kind in sizes else entries.starts[place]
        return self._damage(kind, byte, what, self._segment.base + at + place)

    def _damage(self, kind: str, byte: int, what: str, offset: int | None = None) -> Corrupt:
        return Corrupt(
            self._segment.path + kind, byte, what, partition=self._segment.partition, first=offset,
            stop=None if offset is None else offset + 1, hint=_HINT,
        )  # fmt: skip


def _fitting(entries: IndexEntries, most_bytes: int) -> IndexEntries:
    """As many of the first messages as fit; one at least."""
    limit = entries.starts[0] + most_bytes
    if entries.starts[-1] + entries.sizes[-1] <= limit:
        return entries
    count = next((n for n, at in enumerate(entries.starts) if at + entries.sizes[n] > limit), 1) or 1
    return IndexEntries(entries.offsets[:count], entries.starts[:count], entries.sizes[:count])


def _first_stale(offsets: array[int], wanted: int, count: int) -> tuple[int, int] | None:
    """How many entries are good before one that is not, and how many to skip; None when all are good."""
    if not offsets:
        return None
    if offsets[0] < wanted:
        return 0, wanted - offsets[0]
    if offsets[-1] == wanted + len(offsets) - 1:
        return None
    for place in range(min(count, len(offsets) - 1)):
        if offsets[place] == wanted + place == offsets[place + 1]:
            return place, 1
    return None
