"""Where each column of a frame begins in its body (see `columns`)."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from penstock.log.columns import Buffer, round_up
from penstock.log.head import (
    CODECS,
    HEADERS,
    KEY_NULLS,
    KEYS,
    PRODUCERS,
    SEQNOS,
    TIMES,
    VALUE_NULLS,
    WRITTEN,
    Head,
)

_OFFSET = Struct("<I")


class Layout(NamedTuple):
    """The byte in the body at which each column begins; meaningless for a column that is absent."""

    key_offsets: int
    value_offsets: int
    key_nulls: int
    value_nulls: int
    times: int
    written: int
    seqnos: int
    producers: int
    codecs: int
    header_offsets: int
    header_name_offsets: int
    header_value_offsets: int
    header_is_text: int
    keys: int
    values: int
    header_names: int
    header_values: int
    dictionary: int

    @classmethod
    def of(cls, head: Head, body: Buffer) -> Layout:
        n, flags = head.count, head.flags
        offsets, bits, numbers = round_up(4 * (n + 1)), round_up((n + 7) // 8), 8 * n
        if not flags & ~KEYS:  # plain messages, which most are
            values_at = offsets if flags else 0
            keys = end = values_at + offsets
            values = keys + (_last_offset(body, 0, n) if flags else 0)
            return cls(
                0, values_at, end, end, end, end, end, end, end, end, end, end, end, keys, values, 0, 0, 0
            )
        key_offsets = 0
        value_offsets = key_offsets + (offsets if flags & KEYS else 0)
        key_nulls = value_offsets + offsets
        value_nulls = key_nulls + (bits if flags & KEY_NULLS else 0)
        times = value_nulls + (bits if flags & VALUE_NULLS else 0)
        written = times + (numbers if flags & TIMES else 0)
        seqnos = written + (numbers if flags & WRITTEN else 0)
        producers = seqnos + (numbers if flags & SEQNOS else 0)
        codecs = producers + (round_up(4 * n) if flags & PRODUCERS else 0)
        header_offsets = codecs + (round_up(2 * n) if flags & CODECS else 0)
        names = stored = is_text = keys = header_offsets
        name_bytes = value_bytes = 0
        if flags & HEADERS:
            m = _last_offset(body, header_offsets, n)
            names = header_offsets + offsets
            stored = names + round_up(4 * (m + 1))
            is_text = stored + round_up(4 * (m + 1))
            keys = is_text + round_up((m + 7) // 8)
            name_bytes = _last_offset(body, names, m)
            value_bytes = _last_offset(body, stored, m)
        values = keys + (_last_offset(body, key_offsets, n) if flags & KEYS else 0)
        header_names = values + _last_offset(body, value_offsets, n)
        header_values = header_names + name_bytes
        return cls(
            key_offsets, value_offsets, key_nulls, value_nulls, times, written, seqnos, producers, codecs,
            header_offsets, names, stored, is_text, keys, values, header_names, header_values,
            header_values + value_bytes,
        )  # fmt: skip


def _last_offset(body: Buffer, at: int, count: int) -> int:
    last: int = _OFFSET.unpack_from(body, at + 4 * count)[0]
    return last
