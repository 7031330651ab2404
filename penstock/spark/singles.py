"""Frames of one message each, decoded many at a time into lists that become Arrow columns.

An application that writes one message at a time leaves such frames until their segment is sealed and
repacked. Going through `Frame` and a record batch for each costs tens of microseconds; this loop knows
the two plain shapes (with a key, without) by heart and costs about one, checksums included.
"""

from __future__ import annotations

from struct import Struct

from penstock.checksum import crc32
from penstock.log.frame import RAW
from penstock.log.head import HEADER_BYTES, KEYS, Head

#: So many are put together, at most.
_ROWS_MOST = 8192
#: Larger ones are as quick by themselves.
_FRAME_BYTES_MOST = 64 * 1024

#: header CRC · body CRC · body length · lengths, flags and codec as one number · count and salt as one ·
#: base · written_at · created · the second and the fourth u32 of the body.
_HEAD = Struct("<4xIIIQQQqq8x4xI4xI")
_KEYED_SHAPE = HEADER_BYTES | KEYS << 16 | RAW << 48
_PLAIN_SHAPE = HEADER_BYTES | RAW << 48
_KEYED_AT = HEADER_BYTES + 16
_PLAIN_AT = HEADER_BYTES + 8


class Singles:
    """Neighbouring messages, column by column."""

    def __init__(self, first: int) -> None:
        #: Offset of the first message.
        self.first = first
        self.keys: list[bytes | None] = []
        self.values: list[bytes] = []
        self.created: list[int] = []
        self.written: list[int] = []
        self.bytes = 0

    def __len__(self) -> int:
        return len(self.values)


def is_plain(head: Head) -> bool:
    """Whether a frame of one message has one of the two shapes that `take_singles` knows."""
    return (
        head.size <= _FRAME_BYTES_MOST
        and head.header_length == HEADER_BYTES
        and not head.flags & ~KEYS
        and not head.may_ignore
        and head.codec == RAW
    )


def take_singles(data: bytes, at: int, *, offset: int, stop: int, salt: int) -> tuple[Singles, int]:
    """The plain single-message frames from byte `at` on, up to offset `stop`, and where they end.

    Stops at anything else: a larger frame, another shape, one that is damaged or goes on behind `data`.
    """
    taken = Singles(offset)
    keys, values, created, written = taken.keys, taken.values, taken.created, taken.written
    unpack, identity, last = _HEAD.unpack_from, 1 | salt << 32, len(data) - _HEAD.size
    begin, stop = at, min(stop, offset + _ROWS_MOST)
    while at <= last and offset < stop:
        header_crc, body_crc, length, shape, found, base, wrote, made, second, fourth = unpack(data, at)
        body_at = at + HEADER_BYTES
        end = body_at + length
        if (
            found != identity
            or base != offset
            or end > len(data)
            or crc32(data[at + 8 : body_at]) != header_crc
            or crc32(data[body_at:end]) != body_crc
        ):
            break
        if shape == _KEYED_SHAPE:
            value_at = at + _KEYED_AT + second
            keys.append(data[at + _KEYED_AT : value_at])
            values.append(data[value_at : value_at + fourth])
        elif shape == _PLAIN_SHAPE:
            keys.append(None)
            values.append(data[at + _PLAIN_AT : at + _PLAIN_AT + second])
        else:
            break
        created.append(made)
        written.append(wrote)
        offset += 1
        at = (end + 7) & ~7
    taken.bytes = at - begin
    return taken, at
