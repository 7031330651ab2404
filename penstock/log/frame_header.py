"""The header of a frame, 64 bytes, and where each column begins in the body behind it."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from penstock.checksum import crc32
from penstock.errors import UnknownFormat
from penstock.log.frame_columns import Buffer, round_up
from penstock.parse import FRAME_BYTES_MAX

MAGIC_BYTES = b"PSKF"
MAGIC = int.from_bytes(MAGIC_BYTES, "little")
HEADER = Struct("<IIIIHHHHIIQqqQ")
HEADER_BYTES = HEADER.size

# Flags a reader must understand.
KEYS = 1 << 0
KEY_NULLS = 1 << 1
VALUE_NULLS = 1 << 2
TIMES = 1 << 3
WRITTEN = 1 << 4
HEADERS = 1 << 5
PRODUCER = 1 << 6
SEQNOS = 1 << 7
PRODUCERS = 1 << 8
CODECS = 1 << 9
TRANSACTION = 1 << 10
COMPRESSED = 1 << 11
KNOWN = (1 << 12) - 1

# Kinds of control frames.
FENCE = 1
SEAL = 2
BIRTH = 3


class Head(NamedTuple):
    """A frame's fixed header, unpacked."""

    magic: int
    header_crc: int
    body_crc: int
    body_length: int
    header_length: int
    flags: int
    may_ignore: int
    codec: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here
    salt: int
    base: int
    written_at: int
    created: int
    synced: int

    @property
    def size(self) -> int:
        """Bytes from this frame's start to the next one's."""
        return round_up(self.header_length + self.body_length)

    @property
    def stop(self) -> int:
        """The offset after the frame's last message."""
        return self.base + self.count


def read_head(data: Buffer, at: int = 0) -> Head | None:
    """The header at `at` if one with the right checksum is there, else None.

    Raises `UnknownFormat` for a sound header with a flag this version does not know.
    """
    if len(data) - at < HEADER_BYTES:
        return None
    head = Head._make(HEADER.unpack_from(data, at))
    if head.magic != MAGIC or head.header_length < HEADER_BYTES or head.body_length > FRAME_BYTES_MAX:
        return None
    if crc32(data[at + 8 : at + head.header_length]) != head.header_crc:
        return None
    if head.flags & ~KNOWN:
        raise UnknownFormat(
            f"a frame uses feature bits {head.flags:#x}", hint="it was written by a newer Penstock: upgrade"
        )
    return head


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
        """Find where each column of a frame's body begins."""
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
