"""A frame's header: 64 bytes that say what follows, checked before any of it is believed.

0   u32  magic "PSKF"           never zero, so that preallocated zeros are no frame
4   u32  CRC-32 of the header from byte 8 on
8   u32  CRC-32 of the body
12  u32  body length
16  u16  header length          64 and extensions, a multiple of 8
18  u16  flags a reader must understand
20  u16  flags a reader may ignore
22  u16  codec of all values, or the kind of a control frame
24  u32  count of messages      0: a control frame
28  u32  salt of the segment    bytes of an older file in its place are no frame
32  u64  offset of the first message
40  i64  written_at             given under the lock
48  i64  created                the timestamp of all, unless TIMES
56  u64  synced                 the byte of this segment known durable when this was written
64       extensions, in this order: PRODUCER, TRANSACTION, COMPRESSED
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from penstock.checksum import crc32
from penstock.errors import UnknownFormat
from penstock.log.columns import Buffer, round_up
from penstock.options import FRAME_BYTES_MAX

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
