"""Frames of one message, decoded in a single loop.

A web application writes one message at a time; until its segment is sealed and repacked, each
message is a frame of its own. Going through `Frame` costs several microseconds a message; this
loop, which knows the two plain shapes by heart, costs about one, checksums included.
"""

from __future__ import annotations

from struct import Struct

from penstock.checksum import crc32
from penstock.log.frame import RAW
from penstock.log.head import HEADER_BYTES, KEYS
from penstock.message import Message
from penstock.options import KIB

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
