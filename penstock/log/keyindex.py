"""The key index of a sealed segment: which offsets hold a key, and which keys begin in a certain way.

    0    8s   magic "PSKKEYIX"
    8    u32  CRC-32 of bytes 12 to the end of the filter
    12   u16  version
    14   u16  the filter has 2 to the power of this many bits, 64 at least
    16   u32  generation of the data
    20   u32  salt of the data
    24   u64  first offset
    32   u64  offset behind the last
    40   u32  distinct keys
    44   u32  messages with a key
    48   u64  bytes of all keys
    56   u32  CRC-32 of what follows the filter
    60        zeros

    filter        a Bloom filter over the keys, 16 bits a key or more, four of them set
    places        u32 a message with a key: its offset less the first; those of a key together, ascending
    place bounds  u32[keys + 1]  which places belong to key i
    key bounds    u32[keys + 1]  which bytes are key i
    keys          the keys back to back, in order of their bytes

Keys are found by their order, so a prefix is a range. The filter only says quickly that a key is not there:
a thousand segments are passed over in the time that a few take to be searched. What it lets pass is compared
with the real keys, so that hashes may collide.

The file is made at the seal, from the data alone, and worth nothing when it is missing, short, damaged, of
other data (by its salt), or of another generation of it: readers make their own then, a vacuum stores it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from struct import Struct
from typing import NamedTuple

from penstock.checksum import crc32
from penstock.errors import Corrupt
from penstock.keys import Match
from penstock.log.folder import KEY_INDEX, Folder
from penstock.log.segment import SegmentHead

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


class Sieve:
    """Says quickly that an index does not hold what is wanted; a prefix always passes."""

    def __init__(self, match: Match) -> None:
        self._match = match
        self._probes: dict[int, list[list[tuple[int, int]]]] = {}

    def passes(self, table: StoredKeys) -> bool:
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
