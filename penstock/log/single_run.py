"""Frames of one message each that lie side by side and are as long as one another: a few calls cut them all.

Machines mostly write messages of one length. Looking at such frames one by one costs most of a microsecond
each; here one call cuts all headers, one all fields, and checksums are compared as columns. Nothing is
trusted: the first frame that is not exactly as it should be ends the run, and `single_frame` looks at it.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import chain, repeat
from struct import Struct
from typing import NamedTuple

from penstock.checksum import crc32
from penstock.codecs import RAW
from penstock.log.frame_header import HEADER_BYTES, KEYS

#: Header length, flags and codec of a frame's header as one number: of one message with a key, and without.
KEYED_SHAPE = HEADER_BYTES | KEYS << 16 | RAW << 48
PLAIN_SHAPE = HEADER_BYTES | RAW << 48

#: Fewer are as quick one by one.
EVEN_LEAST = 8
#: So many are put together, at most.
ROWS_MOST = 8192
_AT_ONCE = 16
_HALF, _WORD = Struct("<I"), Struct("<Q")
_LENGTH_AT, _KEY_LENGTH_AT = 12, HEADER_BYTES + 4
#: body length · shape · the second and the fourth u32 of the body.
_FIRST = Struct("<12xIQ40x4xI4xI")


class EvenRun(NamedTuple):
    """Neighbouring messages, column by column, and how many bytes each one's frame has."""

    keys: Sequence[bytes | None]
    values: Sequence[bytes]
    created: Sequence[int]
    written: Sequence[int]
    stride: int


class _Kind(NamedTuple):
    """What frames of a run have in common: their shape as one number, the lengths of a body's parts."""

    shape: int
    offsets: int
    key: int
    value: int

    @property
    def length(self) -> int:
        """Bytes of a body."""
        return self.offsets + self.key + self.value

    @property
    def stride(self) -> int:
        """Bytes from a frame to the next, which begins at a multiple of eight."""
        return HEADER_BYTES + self.length + -self.length % 8


def take_even(data: memoryview, at: int, *, offset: int, most: int, identity: int) -> EvenRun | None:
    """The even frames from byte `at` on, `most` of them at most, the first of which holds `offset`.

    `identity` is their count, which is one, and salt as one number. None when there are too few.
    """
    kind = _kind_of(data, at)
    count = 0 if kind is None else _reach(data, at, kind.stride, most)
    if kind is None or count < EVEN_LEAST:
        return None
    run = data[at : at + count * kind.stride]
    strings = _strings(run, kind)
    keys, values = strings[1::3], strings[2::3]
    sound = min(
        _sound_heads(run, kind, strings[0::3], range(offset, offset + count), identity),
        _sound_bodies(run, kind, keys, values),
    )
    words, each = run.cast("q"), kind.stride // 8
    written, created = words[5::each].tolist(), words[6::each].tolist()
    named: list[bytes] | list[None] = keys if kind.shape == KEYED_SHAPE else [None] * count
    return EvenRun(named[:sound], values[:sound], created[:sound], written[:sound], kind.stride)


def _kind_of(data: memoryview, at: int) -> _Kind | None:
    """The kind of the frame at `at`; None when there is none, or one of another shape."""
    if at + _FIRST.size > len(data):
        return None
    length, shape, second, fourth = _FIRST.unpack_from(data, at)
    if shape == KEYED_SHAPE:
        kind = _Kind(shape, 16, second, fourth)
    elif shape == PLAIN_SHAPE:
        kind = _Kind(shape, 8, 0, second)
    else:
        return None
    return kind if kind.length == length else None


def _strings(run: memoryview, kind: _Kind) -> list[bytes]:
    """Of each frame: what the header's checksum is of, key, value."""
    many, one = _cuts(kind)
    whole = len(run) - len(run) % many.size
    strings = list(chain.from_iterable(many.iter_unpack(run[:whole])))
    strings += chain.from_iterable(one.iter_unpack(run[whole:]))
    return strings


@lru_cache(maxsize=256)
def _cuts(kind: _Kind) -> tuple[Struct, Struct]:
    """What cuts many frames by one call, and what cuts one."""
    pad = kind.stride - HEADER_BYTES - kind.length
    fields = f"8x{HEADER_BYTES - 8}s{kind.offsets}x{kind.key}s{kind.value}s{pad}x"
    return Struct(f"<{fields * _AT_ONCE}"), Struct(f"<{fields}")


def _sound_heads(run: memoryview, kind: _Kind, heads: list[bytes], bases: range, identity: int) -> int:
    """How many headers are sound and as they should be, from the first on."""
    words, halves, each, count = run.cast("q"), run.cast("I"), kind.stride // 8, len(heads)
    return min(
        _agreeing(halves[1 :: 2 * each], array("I", map(crc32, heads)).tobytes()),
        _agreeing(halves[3 :: 2 * each], _HALF.pack(kind.length) * count),
        _agreeing(words[2::each], _WORD.pack(kind.shape) * count),
        _agreeing(words[3::each], _WORD.pack(identity) * count),
        _agreeing(words[4::each], _counting(bases.start, count)),
    )


@cache
def _lanes() -> tuple[bytes, bytes]:
    """As many ones as a run may have, eight bytes each, and the numbers from zero on."""
    return (array("Q", [1]) * ROWS_MOST).tobytes(), array("Q", range(ROWS_MOST)).tobytes()


def _counting(first: int, count: int) -> bytes:
    """The numbers from `first` on, eight bytes each: one sum for all of them."""
    ones, numbers = (int.from_bytes(lane[: 8 * count], "little") for lane in _lanes())
    return (first * ones + numbers).to_bytes(8 * count, "little")


def _sound_bodies(run: memoryview, kind: _Kind, keys: list[bytes], values: list[bytes]) -> int:
    """How many bodies are sound and have strings of the first one's lengths, from the first on."""
    words, halves, each = run.cast("q"), run.cast("I"), kind.stride // 8
    offsets = bytes(run[HEADER_BYTES : HEADER_BYTES + kind.offsets])
    checksums = map(crc32, values, map(crc32, keys, repeat(crc32(offsets))))
    sound = _agreeing(halves[2 :: 2 * each], array("I", checksums).tobytes())
    for at in range(0, kind.offsets, 8):
        column = words[(HEADER_BYTES + at) // 8 :: each]
        sound = min(sound, _agreeing(column, offsets[at : at + 8] * len(keys)))
    return sound


def _reach(data: memoryview, at: int, stride: int, most: int) -> int:
    """How many frames from `at` on seem to be like the first, by the low bytes of two of its lengths."""
    count = min(most, (len(data) - at) // stride)
    likely = at + (EVEN_LEAST - 1) * stride + _LENGTH_AT
    if count < EVEN_LEAST or data[likely] != data[at + _LENGTH_AT]:
        return 0  # mostly known by one look
    stop = at + count * stride
    lengths, keys = data[at + _LENGTH_AT : stop : stride], data[at + _KEY_LENGTH_AT : stop : stride]
    return min(_repeated(lengths.tobytes()), _repeated(keys.tobytes()))


def _repeated(column: bytes) -> int:
    """How many times the first byte comes before another one does."""
    return len(column) - len(column.lstrip(column[:1]))


def _agreeing(column: memoryview, expected: bytes) -> int:
    """How many numbers of a column are as expected, from the first on."""
    found, width = column.tobytes(), column.itemsize
    if found == expected:
        return len(column)
    places = range(0, len(expected), width)
    return next(at for at in places if found[at : at + width] != expected[at : at + width]) // width
