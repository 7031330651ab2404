"""The bytes of go-diskq: entries of its indexes, and its messages in both encodings (docs/FORMAT.md).

    .index       24 bytes a message: u64 offset, u64 place in .data, u64 size
    .timeindex   16 bytes a message: u64 offset, i64 nanoseconds since 1970
    .data        messages back to back

    fixed        u32 key length | key | i64 nanoseconds | u64 data length | data
    varuint      uvarint key length | key | i64 nanoseconds | uvarint data length | data

All of it is little-endian, without magic, version or checksum. go-diskq itself writes `fixed`; its README
describes `varuint`, and programs written from that page wrote it. Nothing in a folder names the encoding, but
an index says how long each message is, and a time index when it was made: bytes that agree with both in one
encoding do not in the other.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Sequence
from enum import StrEnum
from itertools import accumulate
from operator import add
from struct import Struct
from typing import Any, NamedTuple

from penstock.uvarint import encode_uvarint

DATA, INDEX, TIME_INDEX = ".data", ".index", ".timeindex"
INDEX_ENTRY_BYTES, TIME_ENTRY_BYTES, MARK_BYTES = 24, 16, 8
#: What a message takes besides its key and its data, in the fixed encoding.
FIXED_BYTES = 20
_KEY_LENGTH = Struct("<I")
_TIME_AND_LENGTH = Struct("<qQ")
_TIME = Struct("<q")


class Encoding(StrEnum):
    """How lengths are written inside a message."""

    FIXED = "fixed"
    VARUINT = "varuint"


class IndexEntries(NamedTuple):
    """Neighbouring entries of an `.index` file, as columns."""

    offsets: array[int]
    starts: array[int]
    sizes: array[int]


class TimeEntries(NamedTuple):
    """Neighbouring entries of a `.timeindex` file, as columns."""

    offsets: array[int]
    times: array[int]


class Records(NamedTuple):
    """Neighbouring messages, as columns: lists, or Arrow arrays and an array of times."""

    keys: Any
    times: Sequence[int]
    values: Any


class Misfit(Exception):
    """The message at `place` of those asked for is not what its index entry says."""

    def __init__(self, place: int) -> None:
        super().__init__(place)
        self.place = place


def partition_name(number: int) -> str:
    """The folder of a partition (S004-17)."""
    return f"{number:06d}"


def segment_name(base: int) -> str:
    """The name of a segment's files, less their endings (S004-18)."""
    return f"{base:020d}"


def parse_index(data: bytes) -> IndexEntries:
    """Whole entries; bytes behind the last whole one are left alone."""
    numbers = _numbers("Q", data, INDEX_ENTRY_BYTES)
    return IndexEntries(numbers[0::3], numbers[1::3], numbers[2::3])


def parse_time_index(data: bytes) -> TimeEntries:
    """Whole entries; bytes behind the last whole one are left alone."""
    offsets = _numbers("Q", data, TIME_ENTRY_BYTES)
    return TimeEntries(offsets[0::2], _numbers("q", data, TIME_ENTRY_BYTES)[1::2])


def pack_index(first: int, start: int, sizes: Sequence[int]) -> bytes:
    """Entries of messages back to back: the first has offset `first` and lies at byte `start`."""
    count = len(sizes)
    entries = array("Q", bytes(INDEX_ENTRY_BYTES * count))
    entries[0::3] = array("Q", range(first, first + count))
    entries[1::3] = array("Q", list(accumulate(sizes, initial=start))[:count])
    entries[2::3] = array("Q", sizes)
    return _little(entries).tobytes()


def pack_time_index(first: int, times: Sequence[int]) -> bytes:
    """Entries of neighbouring messages, of which the first has offset `first`."""
    entries = array("q", bytes(TIME_ENTRY_BYTES * len(times)))
    entries[0::2] = array("q", range(first, first + len(times)))
    entries[1::2] = array("q", times)
    return _little(entries).tobytes()


def parse_mark(data: bytes) -> int:
    """The last offset that a group has read, from the 8 bytes of its file."""
    return int.from_bytes(data[:MARK_BYTES], "little")


def pack_mark(offset: int) -> bytes:
    """The 8 bytes of a group's file."""
    return offset.to_bytes(MARK_BYTES, "little")


def are_neighbours(starts: array[int], sizes: array[int]) -> bool:
    """Whether messages lie back to back, with nothing between them."""
    return array("Q", map(add, starts[:-1], sizes)) == starts[1:]


def decode(encoding: Encoding, data: bytes, starts: Sequence[int], sizes: Sequence[int]) -> Records:
    """Messages of `data` at these places; raises `Misfit` for the first that is none."""
    return _DECODERS[encoding](data, starts, sizes)


def encode(encoding: Encoding, records: Records) -> list[bytes]:
    """Each message as its bytes."""
    key_length, data_length = _LENGTHS[encoding]
    return [
        key_length(len(key)) + key + _TIME.pack(time) + data_length(len(value)) + value
        for key, time, value in zip(records.keys, records.times, records.values, strict=True)
    ]


def fits(encoding: Encoding, record: bytes, time: int) -> bool:
    """Whether one message, with the time its index names, is in this encoding."""
    try:
        return decode(encoding, record, (0,), (len(record),)).times == [time]
    except Misfit:
        return False


def swapped(number: int) -> int:
    """A u64 read in the other byte order."""
    return int.from_bytes(number.to_bytes(8, "little"), "big")


def _decode_fixed(data: bytes, starts: Sequence[int], sizes: Sequence[int]) -> Records:
    number, heads_of = int.from_bytes, _TIME_AND_LENGTH.unpack_from
    lengths = [number(data[at : at + 4], "little") for at in starts]
    try:
        heads = [heads_of(data, at + 4 + length) for at, length in zip(starts, lengths, strict=True)]
    except struct.error:
        raise Misfit(_first_misfit(data, starts, sizes, lengths)) from None
    times, bodies = zip(*heads, strict=True) if heads else ((), ())
    expected = [key + body + FIXED_BYTES for key, body in zip(lengths, bodies, strict=True)]
    if expected != list(sizes):
        raise Misfit(_first_misfit(data, starts, sizes, lengths))
    return Records(
        [data[at + 4 : at + 4 + length] for at, length in zip(starts, lengths, strict=True)],
        list(times),
        [
            data[at + FIXED_BYTES + length : at + size]
            for at, length, size in zip(starts, lengths, sizes, strict=True)
        ],
    )


def _first_misfit(data: bytes, starts: Sequence[int], sizes: Sequence[int], lengths: Sequence[int]) -> int:
    for place, (at, size, length) in enumerate(zip(starts, sizes, lengths, strict=True)):
        if length + FIXED_BYTES > size or at + size > len(data):
            return place
        if length + FIXED_BYTES + _TIME_AND_LENGTH.unpack_from(data, at + 4 + length)[1] != size:
            return place
    raise AssertionError("one of them did not fit")


def _decode_varuint(data: bytes, starts: Sequence[int], sizes: Sequence[int]) -> Records:
    keys: list[bytes] = []
    times: list[int] = []
    values: list[bytes] = []
    for place, (at, size) in enumerate(zip(starts, sizes, strict=True)):
        stop = at + size
        key_length, key_at = _uvarint(data, at, stop, place)
        time_at = key_at + key_length
        if time_at + _TIME.size > stop:
            raise Misfit(place)
        length, value_at = _uvarint(data, time_at + _TIME.size, stop, place)
        if value_at + length != stop or stop > len(data):
            raise Misfit(place)
        keys.append(data[key_at:time_at])
        times.append(_TIME.unpack_from(data, time_at)[0])
        values.append(data[value_at:stop])
    return Records(keys, times, values)


def _uvarint(data: bytes, at: int, stop: int, place: int) -> tuple[int, int]:
    """A number of 7 bits a byte, lowest first, and the byte behind it."""
    value = shift = 0
    for byte in data[at : min(stop, at + 10)]:
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise Misfit(place)


_Decoder = Callable[[bytes, Sequence[int], Sequence[int]], Records]
_Length = Callable[[int], bytes]
_DECODERS: dict[Encoding, _Decoder] = {
    Encoding.FIXED: _decode_fixed,
    Encoding.VARUINT: _decode_varuint,
}
_LENGTHS: dict[Encoding, tuple[_Length, _Length]] = {
    Encoding.FIXED: (_KEY_LENGTH.pack, Struct("<Q").pack),
    Encoding.VARUINT: (encode_uvarint, encode_uvarint),
}


def _numbers(kind: str, data: bytes, entry_bytes: int) -> array[int]:
    numbers = array(kind)
    numbers.frombytes(data[: len(data) - len(data) % entry_bytes])
    return _little(numbers)


def _little(numbers: array[int]) -> array[int]:
    """From little-endian to this machine's order, or back."""
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
