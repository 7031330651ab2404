"""Frames of one message each, decoded many at a time into lists that become Arrow columns.

An application that writes one message at a time leaves such frames until their segment is sealed and
repacked. Going through `Frame` and a record batch for each costs tens of microseconds; this loop knows
the two plain shapes (with a key, without) by heart and costs about one, checksums included.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from struct import Struct
from typing import TYPE_CHECKING

from penstock.checksum import crc32
from penstock.codecs import RAW
from penstock.headers import Headers
from penstock.log.frame_columns import Buffer
from penstock.log.frame_header import HEADER_BYTES, KEYS, Head
from penstock.parse import KIB

if TYPE_CHECKING:
    from penstock.message import Message


#: So many have the bits that say which are text in one word.
_HEADERS_MOST = 64
_HEADERS_AT = Struct("<20xI")


@lru_cache(maxsize=64)
def _offsets(headers: int) -> Struct:
    """The fixed part of a body that holds one message, with a key and so many headers.

    Offsets of key, value, header entries, header names and header values, and which headers are text.
    """
    offsets = f"{headers + 1}I{4 * (1 - headers % 2)}x"
    return Struct(f"<IIIIII{offsets}{offsets}Q")


def parts(value: bytes | None, key: bytes | None, headers: Headers | None) -> list[bytes] | None:
    """The body of a frame with one message, key and headers, as the general way makes it, in a third of the
    time; None for what only that way can do.
    """
    if value is None or key is None or not headers or len(headers) > _HEADERS_MOST:
        return None
    made = [b"", key, value, *[name.encode() for name in headers]]
    is_text, bit = 0, 1
    for stored in headers.values():
        if isinstance(stored, str):
            is_text |= bit
            stored = stored.encode()
        made.append(stored)
        bit <<= 1
    count = len(headers)
    lengths = list(map(len, made))
    made[0] = _offsets(count).pack(
        0, len(key), 0, len(value), 0, count,
        *accumulate(lengths[3 : 3 + count], initial=0), *accumulate(lengths[3 + count :], initial=0),
        is_text,
    )  # fmt: skip
    return made


def fields(body: Buffer) -> tuple[bytes, bytes, dict[str, str | bytes]] | None:
    """Key, value and headers of the one message in a body; None for what only the general way can read."""
    (count,) = _HEADERS_AT.unpack_from(body)
    if not 1 <= count <= _HEADERS_MOST:  # the bits that say which are text take another room
        return None
    layout = _offsets(count)
    offsets = layout.unpack_from(body)
    strings = bytes(body[layout.size :])
    key_stop = offsets[1]
    value_stop = key_stop + offsets[3]
    names, bounds, is_text = offsets[6 : 7 + count], offsets[7 + count : 8 + 2 * count], offsets[-1]
    values_at = value_stop + names[count]
    headers: dict[str, str | bytes] = {}
    for number in range(count):
        stored = strings[values_at + bounds[number] : values_at + bounds[number + 1]]
        name = strings[value_stop + names[number] : value_stop + names[number + 1]].decode()
        headers[name] = stored.decode() if is_text >> number & 1 else stored
    return strings[:key_stop], strings[key_stop:value_stop], headers


#: Header CRC · body CRC · lengths and flags as one · count and salt as one · base · written_at ·
#: created · the second and fourth of the body's first offsets. What is left out follows from these.
_HEAD = Struct("<4xII4xQQQqq8x4xI4xI")
_LENGTH_SHAPE_COUNT = Struct("<IQI")
_SMALL_BYTES = 16 * KIB
_KEYED_SHAPE = HEADER_BYTES | KEYS << 16 | RAW << 48
_PLAIN_SHAPE = HEADER_BYTES | RAW << 48
_KEYED_AT = HEADER_BYTES + 16
_PLAIN_AT = HEADER_BYTES + 8


def is_one(data: memoryview, at: int) -> bool:
    """Whether a frame of one small message, and of a plain shape, seems to begin at `at`."""
    if len(data) - at < _HEAD.size:
        return False
    body_length, shape, count = _LENGTH_SHAPE_COUNT.unpack_from(data, at + 12)
    return bool(count == 1 and body_length < _SMALL_BYTES and shape in (_KEYED_SHAPE, _PLAIN_SHAPE))


def decode_run(
    data: bytes, at: int, *, topic: str, partition: int, offset: int, salt: int, limit: int
) -> tuple[list[Message], int]:
    """Messages of the plain single-message frames from `at` on, and where they end.

    Stops at anything else: a larger frame, an unknown shape, a damaged or unexpected one.
    """
    from penstock.message import Message  # executors do without

    unpack, identity, size = _HEAD.unpack_from, 1 | salt << 32, len(data)
    stop = size - _HEAD.size
    messages: list[Message] = []
    append = messages.append
    for expected in range(offset, offset + limit):
        if at > stop:
            break
        header_crc, body_crc, shape, found, base, written_at, created, first, second = unpack(data, at)
        if found != identity or base != expected:
            break
        body_at = at + 64
        if shape == _KEYED_SHAPE:
            key_at = at + _KEYED_AT
            value_at = key_at + first
            end = value_at + second
            key, value = data[key_at:value_at], data[value_at:end]
        elif shape == _PLAIN_SHAPE:
            value_at = at + _PLAIN_AT
            end = value_at + first
            key, value = None, data[value_at:end]
        else:
            break
        if end > size or crc32(data[at + 8 : body_at]) != header_crc or crc32(data[body_at:end]) != body_crc:
            break
        append(Message(topic, partition, base, key, value, created, written_at))
        at = (end + 7) & -8
    return messages, at


#: So many are put together, at most.
_ROWS_MOST = 8192
#: Larger ones are as quick by themselves.
_FRAME_BYTES_MOST = 64 * 1024

#: header CRC · body CRC · body length · lengths, flags and codec as one number · count and salt as one ·
#: base · written_at · created · the second and the fourth u32 of the body.
_COLUMN_HEAD = Struct("<4xIIIQQQqq8x4xI4xI")
_KEYED_SHAPE2 = HEADER_BYTES | KEYS << 16 | RAW << 48
_PLAIN_SHAPE2 = HEADER_BYTES | RAW << 48
_KEYED_AT2 = HEADER_BYTES + 16
_PLAIN_AT2 = HEADER_BYTES + 8


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
    unpack, identity, last = _COLUMN_HEAD.unpack_from, 1 | salt << 32, len(data) - _COLUMN_HEAD.size
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
        if shape == _KEYED_SHAPE2:
            value_at = at + _KEYED_AT2 + second
            keys.append(data[at + _KEYED_AT2 : value_at])
            values.append(data[value_at : value_at + fourth])
        elif shape == _PLAIN_SHAPE2:
            keys.append(None)
            values.append(data[at + _PLAIN_AT2 : at + _PLAIN_AT2 + second])
        else:
            break
        created.append(made)
        written.append(wrote)
        offset += 1
        at = (end + 7) & ~7
    taken.bytes = at - begin
    return taken, at
