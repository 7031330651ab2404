"""Waiting messages as bytes: `u64 due | 16-byte id | uvarint topic | uvarint attempts | uvarint data`.

`due` is when the record is due in its file, which decides its place there. Where the message waits on after
that (a wait between two rungs), the data begins with the milliseconds that are left, as a uvarint; mostly
that is one 0.

Batches are encoded and decoded as columns where they are alike: a thousand records of one topic and one
length cost a tenth of a thousand single ones.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from penstock.delay import uvarint
from penstock.delay.ladder import checked_wait
from penstock.errors import InvalidOption, MessageTooLarge, WrongType
from penstock.options import KIB, MIB

_HEAD = struct.Struct("<Q16s")
ID_BYTES = 16
TOPIC_BYTES_MAX = 4 * KIB
DATA_BYTES_MAX = 16 * MIB
ATTEMPTS_MAX = 2**63 - 1
#: So much is covered by one checksum, unless a single record is longer.
BLOCK_BYTES = 256 * KIB

R = TypeVar("R")
#: Called with (due, rest, id, topic, attempts, data, byte); `due` is the final one, `rest` what of it is
#: waited for after the record was due in its file.
Make = Callable[[int, int, bytes, str, int, bytes, int], R]


class Entry(NamedTuple):
    """A message to be stored: due in so many milliseconds from now."""

    wait_ms: int
    #: 16 bytes that tell messages apart; a UUID mostly. Nobody looks at them here.
    id: bytes
    #: Whom it is for; any text.
    topic: str
    #: How often it was tried.
    attempts: int
    data: bytes


class Record(NamedTuple):
    """A waiting message, as it is seen without taking it."""

    #: When it is to be handed out, in milliseconds since 1970.
    due: int
    id: bytes
    topic: str
    attempts: int
    data: bytes


class Block(NamedTuple):
    """Records that lie under one checksum, without their due time."""

    records: int
    size: int
    #: What lies between the due times: id, then lengths and topic, then data, for each record.
    ids: Sequence[bytes]
    middles: Sequence[bytes]
    datas: Sequence[bytes]

    def at(self, due: int) -> bytes:
        """The block as it is written when all its records are due at one time."""
        parts = zip(repeat(due.to_bytes(8, "little")), self.ids, self.middles, self.datas, strict=False)
        return b"".join(chain.from_iterable(parts))

    def begins(self) -> Iterator[int]:
        """Where each record begins, from the beginning of the block."""
        at = 0
        for middle, data in zip(self.middles, self.datas, strict=True):
            yield at
            at += _HEAD.size + len(middle) + len(data)


def check(entries: Sequence[Entry]) -> None:
    """Refuse what cannot be stored; nothing was stored then."""
    if not entries:
        return
    waits, ids, topics, attempts, datas = zip(*entries, strict=True)
    for wait in set(waits):
        checked_wait("wait", wait)
    if set(map(type, ids)) != {bytes} or set(map(len, ids)) != {ID_BYTES}:
        raise InvalidOption("an id is not 16 bytes", hint="uuid.uuid4().bytes makes one")
    for topic in set(topics):
        if not isinstance(topic, str):
            raise WrongType(f"a topic is a str, not {type(topic).__name__}")
        if len(_utf8(topic)) > TOPIC_BYTES_MAX:
            raise InvalidOption(f"a topic of {len(_utf8(topic))} bytes: {TOPIC_BYTES_MAX} are allowed")
    for number in set(attempts):
        if type(number) is not int or not 0 <= number <= ATTEMPTS_MAX:
            raise InvalidOption(f"attempts={number!r} is not a count")
    if set(map(type, datas)) != {bytes}:
        raise WrongType("data takes bytes")
    if max(map(len, datas)) > DATA_BYTES_MAX:
        raise MessageTooLarge(f"data of {max(map(len, datas))} bytes: {DATA_BYTES_MAX} are allowed")


def blocks(entries: Sequence[Entry], rests: Sequence[int]) -> list[Block]:
    """Checked entries of one rung as blocks; `rests` is what each waits beyond that rung."""
    ids: list[bytes] = list(map(itemgetter(1), entries))
    datas: list[bytes] = list(map(itemgetter(4), entries))
    middles = _middles(entries, rests, datas)
    sizes = [_HEAD.size + len(middle) + len(data) for middle, data in zip(middles, datas, strict=True)]
    return [
        Block(stop - begin, size, ids[begin:stop], middles[begin:stop], datas[begin:stop])
        for begin, stop, size in _spans(sizes)
    ]


def _middles(entries: Sequence[Entry], rests: Sequence[int], datas: list[bytes]) -> list[bytes]:
    """Topic, attempts, length and rest of each record."""
    lengths = list(map(len, datas))
    kinds = list(zip(map(itemgetter(2), entries), map(itemgetter(3), entries), lengths, rests, strict=True))
    made: dict[tuple[str, int, int, int], bytes] = {kind: _middle(*kind) for kind in set(kinds)}
    return list(map(made.__getitem__, kinds))


def _middle(topic: str, attempts: int, length: int, rest: int) -> bytes:
    name, left = _utf8(topic), uvarint.encode(rest)
    return b"".join((
        uvarint.encode(len(name)), name, uvarint.encode(attempts), uvarint.encode(len(left) + length), left,
    ))  # fmt: skip


def _spans(sizes: list[int]) -> Iterator[tuple[int, int, int]]:
    """(first, stop, bytes) of runs that are as long as a block may be."""
    total = sum(sizes)
    if total <= BLOCK_BYTES:
        yield 0, len(sizes), total
        return
    begin = total = 0
    for place, size in enumerate(sizes):
        if total and total + size > BLOCK_BYTES:
            yield begin, place, total
            begin, total = place, 0
        total += size
    yield begin, len(sizes), total


def decode(data: bytes, at: int, count: int | None, make: Make[R]) -> list[R]:
    """The records of whole, checked blocks that lie from byte `at` of their file on.

    `count` is how many there are, when that is known. ValueError: the bytes are not just whole records.
    """
    try:
        if count is not None and count > 1 and (alike := _decode_alike(data, at, count, make)) is not None:
            return alike
        return _decode_each(data, at, make)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise ValueError("not a sequence of records") from error


def _decode_alike(data: bytes, at: int, count: int, make: Make[R]) -> list[R] | None:
    """The same for records that differ only in due time, id and data, and not in length."""
    topic, attempts, rest, begin, stop = _parse_middle(data, _HEAD.size)
    if stop * count != len(data):
        return None
    each = struct.Struct(f"<Q16s{begin - _HEAD.size}s{stop - begin}s")
    dues: Iterable[Any]
    dues, ids, middles, datas = zip(*each.iter_unpack(data), strict=True)
    if middles.count(middles[0]) != count:
        return None
    if rest:
        dues = [due + rest for due in dues]
    places = range(at, at + len(data), stop)
    return list(map(make, dues, repeat(rest), ids, repeat(topic), repeat(attempts), datas, places))


def _decode_each(data: bytes, at: int, make: Make[R]) -> list[R]:
    found: list[R] = []
    add, unpack, head = found.append, _HEAD.unpack_from, _HEAD.size
    place, stop = 0, len(data)
    while place < stop:
        due, record_id = unpack(data, place)
        topic, attempts, rest, begin, end = _parse_middle(data, place + head)
        if end > stop:
            raise ValueError("a record goes beyond the end")
        add(make(due + rest, rest, record_id, topic, attempts, data[begin:end], at + place))
        place = end
    return found


def _parse_middle(data: bytes, at: int) -> tuple[str, int, int, int, int]:
    """(topic, attempts, rest, first byte of the data, byte behind it) of the record whose id ends at `at`."""
    length, at = uvarint.decode(data, at)
    stop = at + length
    topic = data[at:stop].decode()
    attempts, at = uvarint.decode(data, stop)
    length, at = uvarint.decode(data, at)
    stop = at + length
    rest, at = uvarint.decode(data, at)
    if at > stop:
        raise ValueError("a record without its rest")
    return topic, attempts, rest, at, stop


def _utf8(topic: str) -> bytes:
    try:
        return topic.encode()
    except UnicodeEncodeError:
        raise InvalidOption("a topic holds a lone surrogate and cannot be stored as UTF-8") from None
