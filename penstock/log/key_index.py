"""Which offsets of one segment hold a key: read from its index file, or gathered in memory.

A sealed segment has an index file (`StoredKeys`). The active one, and a sealed one whose file is missing, are
read into memory (`GatheredKeys`). Gathering goes on where it stopped, never beyond what readers may see. It
remembers where messages are missing, so that a search by key says so as any other read would. Taking in the
same messages twice changes nothing: Ctrl-C may come at any moment.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, islice
from struct import Struct
from typing import NamedTuple

from penstock.checksum import crc32
from penstock.errors import Corrupt, OffsetTrimmed
from penstock.keys import Match
from penstock.log.cursor import Cursor
from penstock.log.folder import KEY_INDEX, Folder
from penstock.log.rows import FrameRows
from penstock.log.segment import SegmentHead
from penstock.log.segments import Segments
from penstock.message import Rows
from penstock.parse import MIB

_HEADER = Struct("<8sIHHIIQQIIQI4x")
_MAGIC = b"PSKKEYIX"
_VERSION = 1
_CHECKED_FROM = 12
_FILTER_LEAST, _BITS_A_KEY = 6, 16
_PROBES = 4
_GOLDEN = 0x9E3779B97F4A7C15
_64 = 2**64 - 1
_32 = 2**32 - 1

#: Which places of a segment hold a key; ascending, counted from its first offset.
Places = Sequence[int]


class Hole(NamedTuple):
    """Offsets that should hold messages and do not, and the error that says so."""

    first: int
    stop: int
    error: Corrupt


def key_hash(key: bytes) -> int:
    """64 bits of a key, for the filter only."""
    return crc32(key) * _GOLDEN & _64


def probes(hashed: int, power: int) -> list[tuple[int, int]]:
    """The (byte, bit) pairs that stand for a key in a filter of 2 to the `power` bits."""
    first, step, mask = hashed & _32, hashed >> 32 | 1, (1 << power) - 1
    bits = [first + number * step & mask for number in range(_PROBES)]
    return [(bit >> 3, 1 << (bit & 7)) for bit in bits]


def pack(head: SegmentHead, stop: int, places: Mapping[bytes, Places]) -> bytes:
    """The file for a segment that ends at `stop`, and holds each key at those places."""
    keys = sorted(places)
    power = max(_FILTER_LEAST, (_BITS_A_KEY * len(keys) - 1).bit_length())
    lists = [places[key] for key in keys]
    listed = array("I")
    for each in lists:
        listed.extend(each)
    place_bounds = array("I", accumulate(map(len, lists), initial=0))
    key_bounds = array("I", accumulate(map(len, keys), initial=0))
    rest = b"".join((listed.tobytes(), place_bounds.tobytes(), key_bounds.tobytes(), *keys))
    header = _HEADER.pack(
        _MAGIC, 0, _VERSION, power, head.generation, head.salt, head.base, stop,
        len(keys), len(listed), key_bounds[-1], crc32(rest),
    )  # fmt: skip
    front = bytearray(header + _filled(keys, power))
    front[8:_CHECKED_FROM] = crc32(front[_CHECKED_FROM:]).to_bytes(4, "little")
    return bytes(front) + rest


def _filled(keys: Sequence[bytes], power: int) -> bytearray:
    """A filter with these keys in it; the bits are those of `probes`, set without a list for each key."""
    filled, mask = bytearray(1 << power - 3), (1 << power) - 1
    for hashed in map(key_hash, keys):
        bit, step = hashed & _32, hashed >> 32 | 1
        for _ in range(_PROBES):
            filled[(bit & mask) >> 3] |= 1 << (bit & 7)
            bit += step
    return filled


class StoredKeys:
    """The key index of a sealed segment, mapped. `open` checks its front, `is_sound` the rest, once."""

    __slots__ = (
        "_bounds",
        "_check",
        "_keys",
        "_places",
        "_rest",
        "_texts",
        "base",
        "filter",
        "power",
        "stop",
    )

    #: A stored index is only ever made of a whole segment.
    holes: Sequence[Hole] = ()

    def __init__(self, data: memoryview) -> None:
        fields = _HEADER.unpack_from(data)
        self.power: int = fields[3]
        self.base: int = fields[6]
        self.stop: int = fields[7]
        count, messages = fields[8:10]
        at = _HEADER.size + (1 << self.power - 3)
        self.filter = data[_HEADER.size : at]
        self._rest: memoryview | None = data[at:]
        self._check: int = fields[11]
        ends = list(accumulate((4 * messages, 4 * count + 4, 4 * count + 4), initial=at))
        self._places = data[ends[0] : ends[1]].cast("I")
        self._bounds = data[ends[1] : ends[2]].cast("I")
        self._keys = data[ends[2] : ends[3]].cast("I")
        self._texts = data[ends[3] :]

    @classmethod
    def open(cls, folder: Folder, head: SegmentHead) -> StoredKeys | None:
        """The index of the segment with that head; None when it has no sound one of its own."""
        files = folder.files
        try:
            fd = files.open(folder.segment_path(head.base, KEY_INDEX), write=False)
        except FileNotFoundError:
            return None
        try:
            size = files.size(fd)
            data = memoryview(files.map(fd, size)) if size else memoryview(b"")
        finally:
            files.close(fd)
        return cls(data) if _is_of(data, head) else None

    @property
    def messages(self) -> int:
        """How many messages have a key."""
        return len(self._places)

    def is_sound(self) -> bool:
        """Whether keys and places are what was stored; looked at with the first search."""
        if self._rest is not None and crc32(self._rest) == self._check:
            self._rest = None
        return self._rest is None

    def found(self, match: Match) -> Iterator[tuple[bytes, Places]]:
        """Each key that is wanted, with its places."""
        numbers = range(len(self._keys) - 1)
        for key in match.keys:
            number = bisect_left(numbers, key, key=self._key)
            if number in numbers and self._key(number) == key:
                yield key, self._places[self._bounds[number] : self._bounds[number + 1]]
        for prefix in match.prefixes:
            for number in numbers[bisect_left(numbers, prefix, key=self._key) :]:
                key = self._key(number)
                if not key.startswith(prefix):
                    break
                yield key, self._places[self._bounds[number] : self._bounds[number + 1]]

    def _key(self, number: int) -> bytes:
        return bytes(self._texts[self._keys[number] : self._keys[number + 1]])


class KeyFilter:
    """Says quickly that an index does not hold what is wanted; a prefix always passes."""

    def __init__(self, match: Match) -> None:
        self._match = match
        self._probes: dict[int, list[list[tuple[int, int]]]] = {}

    def passes(self, table: StoredKeys) -> bool:
        """Whether a segment may hold a wanted key, by its stored filter."""
        if self._match.prefixes:
            return True
        power, filled = table.power, table.filter
        wanted = self._probes.get(power)
        if wanted is None:
            wanted = self._probes[power] = [probes(key_hash(key), power) for key in self._match.keys]
        for each in wanted:
            for byte, bit in each:
                if not filled[byte] & bit:
                    break
            else:
                return True
        return False


def _is_of(data: memoryview, head: SegmentHead) -> bool:
    """Whether the front of the file is sound, and speaks of that data."""
    if len(data) < _HEADER.size:
        return False
    fields = _HEADER.unpack_from(data)
    known = fields[0] == _MAGIC and fields[2] == _VERSION and _FILTER_LEAST <= fields[3] < 40
    ours = (fields[4], fields[5], fields[6]) == (head.generation, head.salt, head.base)
    behind_filter = _HEADER.size + (1 << fields[3] - 3 if known else 0)
    count, messages, text_bytes = fields[8:11]
    whole = len(data) == behind_filter + 4 * messages + 8 * (count + 1) + text_bytes
    return known and ours and whole and crc32(data[_CHECKED_FROM:behind_filter]) == fields[1]


_AT_ONCE_MESSAGES, _AT_ONCE_BYTES = 16_384, 4 * MIB


class GatheredKeys:
    """The keys of one segment's messages up to `stop`."""

    def __init__(self, segments: Segments, base: int) -> None:
        self.base = base
        #: Everything below was taken in.
        self.stop = base
        #: Where messages are missing that should be there.
        self.holes: list[Hole] = []
        self._cursor = Cursor(segments, base)
        self._places: dict[bytes, array[int]] = {}
        self._sorted: list[bytes] = []
        self._mutex = threading.Lock()

    @property
    def places(self) -> dict[bytes, array[int]]:
        """All keys, each with its places."""
        return self._places

    @property
    def messages(self) -> int:
        """How many messages have a key."""
        return sum(map(len, list(self._places.values())))

    def is_sound(self) -> bool:
        """Whether the index can be used: always, as it is made from the segment itself."""
        return True

    def fold(self, stop: int) -> GatheredKeys:
        """Take in what there is before `stop`; what retention took is skipped."""
        if self.stop < stop:
            with self._mutex:
                while self.stop < stop and self._step(stop):
                    pass
        return self

    def found(self, match: Match) -> Iterator[tuple[bytes, Places]]:
        """Each key that is wanted, with its places."""
        for key in match.keys:
            if key in self._places:
                yield key, self._places[key]
        for prefix in match.prefixes:
            keys = self._in_order()
            for number in range(bisect_left(keys, prefix), len(keys)):
                if not keys[number].startswith(prefix):
                    break
                yield keys[number], self._places[keys[number]]

    def _in_order(self) -> Sequence[bytes]:
        """All keys by their bytes; replaced when there are more, never changed."""
        with self._mutex:  # or they might grow under our eyes
            known = len(self._sorted)
            if known != len(self._places):
                self._sorted = sorted([*self._sorted, *islice(self._places, known, None)])
            return self._sorted

    def _step(self, stop: int) -> bool:
        """Take in some more; False when there is nothing."""
        cursor = self._cursor
        cursor.offset = self.stop
        try:
            rows = cursor.read(_AT_ONCE_MESSAGES, _AT_ONCE_BYTES, stop)
        except OffsetTrimmed as trimmed:
            self.stop = min(trimmed.first, stop)
            return True
        except Corrupt as error:
            beyond = stop if error.stop is None else min(error.stop, stop)
            self.holes.append(Hole(self.stop, beyond, error))
            self.stop = beyond
            return True
        for each in rows:
            self._take(each)
        self.stop = cursor.offset
        return bool(rows)

    def _take(self, rows: Rows) -> None:
        if isinstance(rows, FrameRows):
            keys = rows.frame.keys(rows.begin, rows.end)
        else:
            keys = [message.key for message in rows.messages()]
        places = self._places
        for place, key in enumerate(keys, rows.first - self.base):
            if key is None:
                continue
            known = places.get(key)
            if known is None:
                places[key] = array("I", (place,))
            elif known[-1] < place:
                known.append(place)
