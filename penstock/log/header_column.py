"""Headers of many messages as columns of a frame's body, and back.

What most programs send is alike from message to message: the same names, often the same values. Such headers
are encoded once, found by comparing bytes, and made once for all messages that have them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise
from operator import sub
from typing import NamedTuple, cast

from penstock.headers import NO_HEADERS, Headers, SharedHeaders, dicts_of
from penstock.log.frame_columns import (
    ArrowColumn,
    Buffer,
    are_set,
    cut,
    is_progression,
    ones,
    pack_bits,
    pack_offsets,
    pack_strings,
    progression,
    repeated_offsets,
    unpack_bits,
    unpack_offsets,
    unpack_strings,
)
from penstock.log.frame_header import Layout

_NOTHING: Mapping[str, str | bytes] = {}


class PackedHeaders(NamedTuple):
    """A column of headers as a body holds it."""

    #: Bounds of each message's entries, offsets of names and of values, and which values are text.
    columns: tuple[Buffer, Buffer, Buffer, Buffer]
    names: Iterable[Buffer]
    values: Iterable[Buffer]


def pack_headers(headers: Sequence[Mapping[str, str | bytes] | None]) -> PackedHeaders:
    """Headers of each message, of which some may be None or empty, as a column.

    Those that all messages have alike are encoded once, and so are names that all have alike.
    """
    if not isinstance(headers, (list, tuple)):
        return cast(PackedHeaders, cast(ArrowColumn, headers).packed())
    count, first = len(headers), headers[0]
    if first and first == headers[-1] and headers.count(first) == count:
        return _pack_equal_headers(first, count)
    there = [each or _NOTHING for each in headers]
    bounds = list(map(len, there))
    names = list(chain.from_iterable(there))
    entries = len(names)
    try:
        given = list(chain.from_iterable(map(dict.values, there)))  # type: ignore[arg-type]
    except TypeError:  # mappings of another kind
        given = [value for each in there for value in each.values()]
    encoded, flags = _encoded(given)
    stored = pack_strings(encoded)
    is_text = ones(entries) if flags is None else pack_bits(flags)
    alike = list(there[0])
    if alike and bounds.count(len(alike)) == count and names == alike * count:
        shared = [name.encode() for name in alike]
        name_parts: Iterable[Buffer] = (b"".join(shared) * count,)
        offsets: Buffer = repeated_offsets(tuple(map(len, shared)), count)
        begins = progression(count, len(alike))
    else:
        named = pack_strings([name.encode() for name in names])
        name_parts, offsets = named.parts, named.offsets
        begins = pack_offsets(count, bounds)
    return PackedHeaders((begins, offsets, stored.offsets, is_text), name_parts, stored.parts)


def _pack_equal_headers(headers: Mapping[str, str | bytes], count: int) -> PackedHeaders:
    entries = len(headers)
    names = [name.encode() for name in headers]
    values, flags = _encoded(list(headers.values()))
    columns = (
        progression(count, entries),
        repeated_offsets(tuple(map(len, names)), count),
        repeated_offsets(tuple(map(len, values)), count),
        ones(entries * count) if flags is None else pack_bits(flags * count),
    )
    return PackedHeaders(columns, (b"".join(names) * count,), (b"".join(values) * count,))


def _encoded(values: list[str | bytes]) -> tuple[list[bytes], list[bool] | None]:
    """Values of headers as bytes, and which of them are text; None when all are."""
    try:
        return list(map(str.encode, values)), None  # type: ignore[arg-type]
    except TypeError:
        flags = [isinstance(value, str) for value in values]
        return [value.encode() if isinstance(value, str) else value for value in values], flags


def unpack_headers(body: Buffer, at: Layout, first: int, stop: int) -> Sequence[Headers]:
    """The headers of messages `first` to `stop` of a body that has some."""
    count = stop - first
    bounds = unpack_offsets(body, at.header_offsets + 4 * first, count)
    begin, end = bounds[0], bounds[-1]
    if begin == end:
        return [NO_HEADERS] * count
    stored = _Stored(body, at)
    each, odd = divmod(end - begin, count)
    if odd or not is_progression(bounds, each):
        pairs = stored.pairs(begin, end)
        return [dict(pairs[a - begin : b - begin]) if b > a else NO_HEADERS for a, b in pairwise(bounds)]
    if not _is_repeated(body, at.header_name_offsets, at.header_names, begin, end, each):
        pairs = stored.pairs(begin, end)
        return [dict(pairs[place : place + each]) for place in range(0, len(pairs), each)]
    if stored.are_alike(begin, end, each):
        return [SharedHeaders(stored.pairs(begin, begin + each))] * count
    return dicts_of(stored.names(begin, begin + each), stored.values(begin, end))


class _Stored:
    """All headers of a body, side by side."""

    __slots__ = ("_at", "_body")

    def __init__(self, body: Buffer, at: Layout) -> None:
        self._body = body
        self._at = at

    def pairs(self, begin: int, end: int) -> list[tuple[str, str | bytes]]:
        """Names and values `begin` to `end`."""
        return list(zip(self.names(begin, end), self.values(begin, end), strict=True))

    def names(self, begin: int, end: int) -> list[str]:
        """Names `begin` to `end`."""
        return self._texts(self._at.header_name_offsets, self._at.header_names, begin, end)

    def values(self, begin: int, end: int) -> Sequence[str | bytes]:
        """Values `begin` to `end`, text as text."""
        at = self._at
        if are_set(self._body, at.header_is_text, begin, end):
            return self._texts(at.header_value_offsets, at.header_values, begin, end)
        stored = unpack_strings(self._body, at.header_value_offsets, at.header_values, begin, end)
        is_text = unpack_bits(self._body, at.header_is_text, begin, end)
        return [value.decode() if text else value for value, text in zip(stored, is_text, strict=True)]

    def are_alike(self, begin: int, end: int, each: int) -> bool:
        """Whether values `begin` to `end` are the first `each` of them, again and again."""
        at, body = self._at, self._body
        if not _is_repeated(body, at.header_value_offsets, at.header_values, begin, end, each):
            return False
        if are_set(body, at.header_is_text, begin, end):
            return True
        is_text = unpack_bits(body, at.header_is_text, begin, end)
        return is_text == is_text[:each] * ((end - begin) // each)

    def _texts(self, offsets_at: int, strings_at: int, begin: int, end: int) -> list[str]:
        """Strings that are text: plain one is decoded in one go, and then cut."""
        offsets = unpack_offsets(self._body, offsets_at + 4 * begin, end - begin)
        whole = bytes(self._body[strings_at + offsets[0] : strings_at + offsets[-1]])
        if whole.isascii():
            return cut(whole.decode(), offsets)
        return list(map(bytes.decode, cut(whole, offsets)))


def _is_repeated(body: Buffer, offsets_at: int, strings_at: int, first: int, stop: int, each: int) -> bool:
    """Whether strings `first` to `stop` are the first `each` of them, again and again."""
    offsets = unpack_offsets(body, offsets_at + 4 * first, stop - first)
    begin, times = offsets[0], (stop - first) // each
    step = offsets[each] - begin
    if offsets[-1] - begin != step * times:
        return False
    region = bytes(body[strings_at + begin : strings_at + offsets[-1]])
    return region == region[:step] * times and _are_repeated(offsets, first, each, step)


def _are_repeated(offsets: array[int], first: int, each: int, step: int) -> bool:
    """Whether strings that end to end repeat themselves are also cut alike."""
    if offsets[0] * each != first * step:
        return list(map(sub, offsets[each:], offsets)).count(step) == len(offsets) - each
    # All that lie before are alike too, it seems: then one comparison tells.
    lengths = tuple(map(sub, offsets[1 : each + 1], offsets))
    expected = repeated_offsets(lengths, (first + len(offsets) - 1) // each)
    return offsets.tobytes() == expected[4 * first : 4 * (first + len(offsets))]
