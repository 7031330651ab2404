"""Frames of one message each: encoded one by one and decoded in runs, faster than `Frame` can.

An application that writes one message at a time leaves such frames until their segment is sealed and
repacked. Going through columns, `Frame` and a record batch for each costs tens of microseconds; what is here
knows only the plain shapes (with a key or without; with a key and headers) and costs about one, checksums
included. The bytes are the same.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate, repeat
from struct import Struct
from typing import TYPE_CHECKING

from penstock.checksum import crc32
from penstock.codecs import RAW
from penstock.headers import Headers
from penstock.log.frame_columns import Buffer
from penstock.log.frame_header import HEADER_BYTES, HEADERS, KEYS, Head
from penstock.log.single_run import EVEN_LEAST, KEYED_SHAPE, PLAIN_SHAPE, ROWS_MOST, EvenRun, take_even
from penstock.parse import KIB

if TYPE_CHECKING:
    from penstock.message import Message


#: So many have the bits that say which are text in one word.
_HEADERS_MOST = 64
_HEADERS_AT = Struct("<20xI")
_PLAIN = Struct("<II")
_KEYED = Struct("<IIII")


@lru_cache(maxsize=64)
def _offsets(headers: int) -> Struct:
    """The fixed part of a body that holds one message, with a key and so many headers.

    Offsets of key, value, header entries, header names and header values, and which headers are text.
    """
    offsets = f"{headers + 1}I{4 * (1 - headers % 2)}x"
    return Struct(f"<IIIIII{offsets}{offsets}Q")


#: The body of a frame of one message, in parts, and the flags that say what is in it.
SingleBody = tuple[list[bytes], int]


def encode(
    value: bytes | None, key: bytes | None, headers: Headers | None, *, has_key: bool
) -> SingleBody | None:
    """Encode the body of a frame with one message, in a third of the time that `frame_encode` takes.

    None for what only that can do: a tombstone, headers without a key, very many headers, or a column of
    keys (`has_key`) without one.
    """
    if value is None or (has_key and key is None):
        return None
    if headers is None:
        if key is None:
            return [_PLAIN.pack(0, len(value)), value], 0
        return [_KEYED.pack(0, len(key), 0, len(value)), key, value], KEYS
    if key is None or not headers or len(headers) > _HEADERS_MOST:
        return None
    count = len(headers)
    names, name_ends = _names(tuple(headers))
    values, is_text = _values(list(headers.values()))
    offsets = _offsets(count).pack(
        0, len(key), 0, len(value), 0, count, *name_ends, *accumulate(map(len, values), initial=0), is_text
    )
    return [offsets, key, value, names, *values], KEYS | HEADERS


@lru_cache(maxsize=256)
def _names(names: tuple[str, ...]) -> tuple[bytes, tuple[int, ...]]:
    """Names of headers back to back, and their offsets: mostly those of the message before."""
    encoded = [name.encode() for name in names]
    return b"".join(encoded), tuple(accumulate(map(len, encoded), initial=0))


def _values(given: list[str | bytes]) -> tuple[list[bytes], int]:
    """Values of headers as bytes, and a bit for each that is text."""
    try:
        return list(map(str.encode, given)), (1 << len(given)) - 1  # type: ignore[arg-type]
    except TypeError:  # some are bytes
        are_text = [isinstance(value, str) for value in given]
        values = [value.encode() if isinstance(value, str) else value for value in given]
        return values, sum(bit << place for place, bit in enumerate(are_text))


def fields(body: Buffer) -> tuple[bytes, bytes, dict[str, str | bytes]] | None:
    """Key, value and headers of the one message in a body; None for what only `Frame` can read."""
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


#: So much is looked at frame by frame before it is seen whether the next ones are even.
_CHUNK_BYTES = 256 * KIB
#: Larger ones are as quick by themselves: as messages, as columns.
_SMALL_BYTES, _COLUMNS_BYTES_MOST = 16 * KIB, 64 * KIB

#: header CRC · body CRC · body length · lengths, flags and codec as one number · count and salt as one ·
#: base · written_at · created · the second and the fourth u32 of the body.
_HEAD = Struct("<4xIIIQQQqq8x4xI4xI")
_LENGTH_SHAPE_COUNT = Struct("<IQI")
_KEYED_AT = HEADER_BYTES + _KEYED.size
_PLAIN_AT = HEADER_BYTES + _PLAIN.size


def is_one(data: memoryview, at: int) -> bool:
    """Whether a frame of one small message, and of a plain shape, seems to begin at `at`."""
    if len(data) - at < _HEAD.size:
        return False
    body_length, shape, count = _LENGTH_SHAPE_COUNT.unpack_from(data, at + 12)
    return bool(count == 1 and body_length < _SMALL_BYTES and shape in (KEYED_SHAPE, PLAIN_SHAPE))


def is_plain(head: Head) -> bool:
    """Whether a frame of one message has one of the two shapes that `take_singles` knows."""
    return (
        head.size <= _COLUMNS_BYTES_MOST
        and head.header_length == HEADER_BYTES
        and not head.flags & ~KEYS
        and not head.may_ignore
        and head.codec == RAW
    )


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

    def add(self, run: EvenRun) -> None:
        """Add the messages that come next."""
        self.keys += run.keys
        self.values += run.values
        self.created += run.created
        self.written += run.written


def take_singles(data: Buffer, at: int, *, offset: int, stop: int, salt: int) -> tuple[Singles, int]:
    """The plain single-message frames from byte `at` on, up to offset `stop`, and where they end.

    Stops at anything else: a larger frame, another shape, one that is damaged or goes on behind `data`.
    """
    taken, begin, view = Singles(offset), at, memoryview(data)
    stop, identity = min(stop, offset + ROWS_MOST), 1 | salt << 32
    while offset < stop:
        even = None
        if stop - offset >= EVEN_LEAST:
            even = take_even(view, at, offset=offset, most=stop - offset, identity=identity)
        if even is not None and even.values:
            taken.add(even)
            at += len(even.values) * even.stride
        else:
            chunk = bytes(view[at : at + _CHUNK_BYTES])
            used = _take_each(taken, chunk, stop, identity)
            if not used:
                break
            at += used
        offset = taken.first + len(taken)
    taken.bytes = at - begin
    return taken, at


def _take_each(taken: Singles, data: bytes, stop: int, identity: int) -> int:
    """Add the frames that `data` begins with one by one, whatever their lengths; where they end."""
    keys, values, created, written = taken.keys, taken.values, taken.created, taken.written
    unpack, size, offset = _HEAD.unpack_from, len(data), taken.first + len(taken)
    at, last = 0, size - _HEAD.size
    while at <= last and offset < stop:
        header_crc, body_crc, length, shape, found, base, wrote, made, second, fourth = unpack(data, at)
        body_at = at + HEADER_BYTES
        end = body_at + length
        if (
            found != identity
            or base != offset
            or end > size
            or crc32(data[at + 8 : body_at]) != header_crc
            or crc32(data[body_at:end]) != body_crc
        ):
            break
        if shape == KEYED_SHAPE:
            value_at = at + _KEYED_AT + second
            keys.append(data[at + _KEYED_AT : value_at])
            values.append(data[value_at : value_at + fourth])
        elif shape == PLAIN_SHAPE:
            keys.append(None)
            values.append(data[at + _PLAIN_AT : at + _PLAIN_AT + second])
        else:
            break
        created.append(made)
        written.append(wrote)
        offset += 1
        at = (end + 7) & ~7
    return at


def decode_run(
    data: Buffer, at: int, *, topic: str, partition: int, offset: int, salt: int, limit: int
) -> tuple[list[Message], int]:
    """Messages of the plain single-message frames from `at` on, `limit` at most, and where they end.

    Stops at anything else: a larger frame, an unknown shape, a damaged or unexpected one.
    """
    from penstock.message import Message  # executors do without

    taken, end = take_singles(data, at, offset=offset, stop=offset + limit, salt=salt)
    offsets = range(offset, offset + len(taken))
    columns = taken.keys, taken.values, taken.created, taken.written
    return list(map(Message, repeat(topic), repeat(partition), offsets, *columns)), end
