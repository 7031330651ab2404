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
from itertools import accumulate, chain, pairwise
from struct import Struct, iter_unpack

assert sys.byteorder == "little", "Penstock's files are little-endian and so must the machine be"

Buffer = bytes | bytearray | memoryview

_PAIR = Struct("<II")
_AT_ONCE = 64
_PADS = tuple(b"\0" * n for n in range(8))


def padded(data: bytes) -> bytes:
    """`data` filled with zeros up to a multiple of 8."""
    rest = len(data) & 7
    return data + _PADS[8 - rest] if rest else data


def round_up(n: int) -> int:
    return (n + 7) & ~7


#: The lengths of strings: one number when all are the same, as machine-made ones mostly are.
Lengths = int | list[int]


def measure(strings: Sequence[bytes]) -> Lengths:
    """How long the strings are. Raises `TypeError` if one of them is None."""
    lengths = list(map(len, strings))
    return lengths[0] if lengths.count(lengths[0]) == len(lengths) else lengths


def pack_offsets(count: int, lengths: Lengths) -> bytes:
    """The offsets of `count` strings of these lengths laid back to back."""
    if isinstance(lengths, int):
        return _PAIR.pack(0, lengths) if count == 1 else progression(count, lengths)
    return padded(array("I", accumulate(lengths, initial=0)).tobytes())


@lru_cache(maxsize=64)
def progression(count: int, step: int) -> bytes:
    """The offsets of `count` strings of the same length; common enough to be kept."""
    return padded(array("I", (step * i for i in range(count + 1))).tobytes())


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
    if not odd and begin == 0 and step and offsets.tobytes() == progression(count, step)[: 4 * count + 4]:
        return _cut_evenly(region, step)
    if begin:
        offsets = array("I", (offset - begin for offset in offsets))
    data = bytes(region)
    return [data[a:b] for a, b in pairwise(offsets)]


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


def pack_bits(flags: Iterable[bool]) -> bytes:
    """Flags as a bitmap, least significant bit first, as Arrow has them."""
    digits = "".join("1" if flag else "0" for flag in flags)
    return padded(int(digits[::-1] or "0", 2).to_bytes((len(digits) + 7) // 8, "little"))


def unpack_bits(body: Buffer, at: int, first: int, stop: int) -> list[bool]:
    """Flags `first` to `stop` of the bitmap that begins at byte `at`."""
    bits = int.from_bytes(body[at : at + (stop + 7) // 8], "little")
    return [digit == "1" for digit in f"{bits:0{stop}b}"[::-1][first:stop]]


def pack_numbers(code: str, numbers: Iterable[int]) -> bytes:
    """Fixed-width numbers: code "q" is i64, "I" u32, "H" u16."""
    return padded(array(code, numbers).tobytes())


def unpack_numbers(body: Buffer, code: str, at: int, first: int, stop: int) -> array[int]:
    numbers = array(code)
    width = numbers.itemsize
    numbers.frombytes(body[at + width * first : at + width * stop])
    return numbers
