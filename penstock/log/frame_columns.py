"""Lists to columns and back: the inside of a frame's body.

A column of byte strings is `n + 1` u32 offsets and the strings back to back, which is Arrow's own
layout. Fixed-width columns come first, each padded to 8 bytes, then the strings:

    key offsets      u32[n+1]  with KEYS
    value offsets    u32[n+1]
    key nulls        bit[n]    with KEY_NULLS     a set bit means "present", as in Arrow
    value nulls      bit[n]    with VALUE_NULLS
    timestamps       i64[n]    with TIMES         else all equal the header's `created`
    written times    i64[n]    with WRITTEN       else all equal the header's `written_at`
    seqnos           i64[n]    with SEQNOS        else consecutive from the header's first
    producers        u32[n]    with PRODUCERS     index into the producer dictionary
    codecs           u16[n]    with CODECS        else all equal the header's `codec`
    header offsets   u32[n+1]  with HEADERS       which entries belong to message i
    header name offsets    u32[m+1]
    header value offsets   u32[m+1]
    header is text         bit[m]
    key bytes, value bytes, header names, header values, producer dictionary
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, chain, islice, repeat
from operator import sub
from struct import Struct, iter_unpack
from typing import Any, AnyStr, NamedTuple, Protocol, cast

assert sys.byteorder == "little", "Penstock's files are little-endian and so must the machine be"

Buffer = bytes | bytearray | memoryview

_PAIR = Struct("<II")
_AT_ONCE = 64
#: Offsets that come again and again are slices of tables of so many.
_TABLE = 10_240
#: Short strings are put together before they go into a body, which takes longer for each of them. What is
#: larger than this would be put into fresh memory, and that takes longer than all the rest.
_JOINED_MOST = 64 * 1024
#: Larger strings, and more headers, are rare enough to be counted each time.
_STEP_MOST, _HEADERS_MOST = 64 * 1024, 8
_DIGITS = b"0" + b"1" * 255
_PADS = tuple(b"\0" * n for n in range(8))


def padded(data: bytes) -> bytes:
    """`data` filled with zeros up to a multiple of 8."""
    rest = len(data) & 7
    return data + _PADS[8 - rest] if rest else data


def round_up(n: int) -> int:
    """Return the next multiple of eight."""
    return (n + 7) & ~7


#: The lengths of strings: one number when all are the same, as machine-made ones mostly are.
Lengths = int | list[int]


class PackedStrings(NamedTuple):
    """A column of strings as a body holds it."""

    #: From 0 on, one more than there are strings.
    offsets: Buffer
    #: The strings, one by one or many in one.
    parts: Iterable[Buffer]
    #: The bitmap of those that are there; empty when all are.
    nulls: bytes
    #: Bytes of all strings together.
    total: int


class ArrowColumn(Protocol):
    """A column that lies in Arrow's buffers (`arrow_input`): copied whole, not string by string.

    Strings and headers are such columns, lists, or tuples.
    """

    @property
    def size(self) -> int:
        """Bytes of all its strings."""

    def packed(self) -> Any:
        """Return the column as one Arrow array whose buffers can be copied as they are."""

    def take(self, places: Sequence[int]) -> Any:
        """Return the column's values at these places."""


def measure(strings: Sequence[bytes]) -> Lengths:
    """How long the strings are. Raises `TypeError` if one of them is None."""
    lengths = list(map(len, strings))
    return lengths[0] if lengths and lengths.count(lengths[0]) == len(lengths) else lengths


def total_of(count: int, lengths: Lengths) -> int:
    """Bytes of `count` strings of these lengths."""
    return count * lengths if isinstance(lengths, int) else sum(lengths)


def pack_strings(strings: Sequence[bytes | None], lengths: Lengths | None = None) -> PackedStrings:
    """Byte strings, some of which may be None, as a column; `lengths` where the caller knows them."""
    if not isinstance(strings, (list, tuple)):
        return cast(PackedStrings, cast(ArrowColumn, strings).packed())
    there, nulls = cast(Sequence[bytes], strings), b""
    try:
        if lengths is None:
            lengths = measure(there)
    except TypeError:  # None has no length: asking first would cost more than the whole packing
        nulls = pack_bits([string is not None for string in strings])
        there = [string or b"" for string in strings]
        lengths = measure(there)
    count = len(there)
    total = total_of(count, lengths)
    parts = (b"".join(there),) if total <= _JOINED_MOST else there
    return PackedStrings(pack_offsets(count, lengths), parts, nulls, total)


def pack_offsets(count: int, lengths: Lengths) -> bytes:
    """The offsets of `count` strings of these lengths laid back to back."""
    if isinstance(lengths, int):
        return _PAIR.pack(0, lengths) if count == 1 else progression(count, lengths)
    return padded(array("I", accumulate(lengths, initial=0)).tobytes())


def progression(count: int, step: int) -> bytes:
    """The offsets of `count` strings of the same length: a slice of a table that is made once."""
    if count >= _TABLE or step > _STEP_MOST:
        return padded(
            array("I", range(0, step * count + 1, step)).tobytes() if step else bytes(4 * count + 4)
        )
    return padded(_progressions(step)[: 4 * count + 4])


@lru_cache(maxsize=64)
def _progressions(step: int) -> bytes:
    return array("I", range(0, step * _TABLE, step)).tobytes() if step else bytes(4 * _TABLE)


def repeated_offsets(lengths: tuple[int, ...], count: int) -> bytes:
    """Offsets of strings of these lengths, `count` times one after the other."""
    if len(lengths) == 1:
        return progression(count, lengths[0])
    if count > _TABLE or len(lengths) > _HEADERS_MOST or sum(lengths) > _STEP_MOST:
        return padded(array("I", accumulate(lengths * count, initial=0)).tobytes())
    return padded(_repetitions(lengths)[: 4 * (count * len(lengths) + 1)])


@lru_cache(maxsize=16)
def _repetitions(lengths: tuple[int, ...]) -> bytes:
    return array("I", accumulate(lengths * _TABLE, initial=0)).tobytes()


def ones(count: int) -> bytes:
    """A bitmap of so many flags that are all set."""
    return padded(((1 << count) - 1).to_bytes((count + 7) // 8, "little"))


def unpack_offsets(body: Buffer, at: int, count: int) -> array[int]:
    """The `count + 1` offsets that begin at byte `at`."""
    offsets = array("I")
    offsets.frombytes(body[at : at + 4 * (count + 1)])
    return offsets


def unpack_strings(body: Buffer, offsets_at: int, strings_at: int, first: int, stop: int) -> Sequence[bytes]:
    """Strings `first` to `stop` of a column, as bytes objects."""
    count = stop - first
    offsets = unpack_offsets(body, offsets_at + 4 * first, count)
    begin, end = offsets[0], offsets[-1]
    region = body[strings_at + begin : strings_at + end]
    if count == 1:
        return (bytes(region),)
    step, odd = divmod(end - begin, count)
    if not odd and step and is_progression(offsets, step):
        return _cut_evenly(region, step)
    return cut(bytes(region), offsets)


def cut(strings: AnyStr, offsets: array[int]) -> list[AnyStr]:
    """The strings that lie back to back in `strings`; the first begins where the first offset says."""
    begin = offsets[0]
    bounds = list(map(sub, offsets, repeat(begin))) if begin else offsets.tolist()
    return [strings[a:b] for a, b in zip(bounds, islice(bounds, 1, None), strict=False)]


def is_progression(offsets: array[int], step: int) -> bool:
    """Whether each of the offsets is `step` more than the one before."""
    first, odd = divmod(offsets[0], step)
    stop = first + len(offsets)
    if odd or stop > _TABLE or step > _STEP_MOST:
        return offsets == array("I", range(offsets[0], offsets[0] + step * len(offsets), step))
    return offsets.tobytes() == _progressions(step)[4 * first : 4 * stop]


@lru_cache(maxsize=64)
def _strings(step: int) -> Struct:
    """Many strings of one length, cut by a single call."""
    return Struct(f"{step}s" * _AT_ONCE)


def _cut_evenly(region: Buffer, step: int) -> list[bytes]:
    """Strings of the same length: several times quicker than slicing one by one."""
    whole = len(region) - len(region) % (step * _AT_ONCE)
    strings = list(chain.from_iterable(_strings(step).iter_unpack(region[:whole])))
    strings += chain.from_iterable(iter_unpack(f"{step}s", region[whole:]))
    return strings


def pack_bits(flags: Sequence[bool]) -> bytes:
    """Flags as a bitmap, least significant bit first, as Arrow has them."""
    digits = bytes(flags).translate(_DIGITS)
    return padded(int(digits[::-1] or b"0", 2).to_bytes((len(digits) + 7) // 8, "little"))


def unpack_bits(body: Buffer, at: int, first: int, stop: int) -> list[bool]:
    """Flags `first` to `stop` of the bitmap that begins at byte `at`."""
    bits = int.from_bytes(body[at : at + (stop + 7) // 8], "little")
    return [digit == "1" for digit in f"{bits:0{stop}b}"[::-1][first:stop]]


def are_set(body: Buffer, at: int, first: int, stop: int) -> bool:
    """Whether all flags `first` to `stop` of the bitmap that begins at byte `at` are set."""
    bits = int.from_bytes(body[at + first // 8 : at + (stop + 7) // 8], "little") >> first % 8
    wanted = (1 << stop - first) - 1
    return bits & wanted == wanted


def pack_numbers(code: str, numbers: Iterable[int]) -> bytes:
    """Fixed-width numbers: code "q" is i64, "I" u32, "H" u16."""
    return padded(array(code, numbers).tobytes())


def unpack_numbers(body: Buffer, code: str, at: int, first: int, stop: int) -> array[int]:
    """Return numbers `first` to `stop` of a column of fixed width."""
    numbers = array(code)
    width = numbers.itemsize
    numbers.frombytes(body[at + width * first : at + width * stop])
    return numbers
