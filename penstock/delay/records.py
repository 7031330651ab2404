"""Waiting messages as bytes: `u64 due | 16-byte id | uvarint topic | uvarint attempts | uvarint data`.

In a chain of one delay `due` is the planned time of the message and the data is the caller's, byte for
byte. On the ladder `due` is when the record is due in its file, and the data begins with a number of ours,
the rest: the milliseconds that the message waits after that.

Batches are encoded and decoded as columns where they are alike: a thousand records of one topic and one
length cost a tenth of a thousand single ones.

Ids are UUIDs of version 7 (RFC 9562), so that they sort by the time they were made:

    48 bits ms since 1970 | 4 bits version (7) | 12 bits | 2 bits variant (2) | 62 bits

The 74 free bits are random for one id; those of a batch count up from a random number, so that the ids of a
batch are different and in order.
"""

from __future__ import annotations

import os
import random
import struct
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, count, repeat
from operator import add, countOf
from typing import Any, NamedTuple, TypeVar

from penstock.delay.ladder import WAIT_MAX_MS, checked_wait
from penstock.errors import InvalidOption, MessageTooLarge, WrongType
from penstock.parse import KIB, MIB, all_are
from penstock.uvarint import decode_uvarint, encode_uvarint

_DUE = struct.Struct("<Q")
_HEAD = struct.Struct("<Q16s")
TOPIC_BYTES_MAX = 4 * KIB
#: A topic of so many characters fits, whatever they are.
_TOPIC_CHARACTERS = TOPIC_BYTES_MAX // 4
DATA_BYTES_MAX = 16 * MIB
ATTEMPTS_MAX = 2**63 - 1
#: So much is covered by one checksum, unless a single record is longer.
BLOCK_BYTES = 256 * KIB
ID_BYTES = 16
_FREE_BITS = 74
_LOW_BITS = 62
_LOW = (1 << _LOW_BITS) - 1
_MARKS = (7 << 76) | (2 << _LOW_BITS)
#: Seeded by the system, once: asking it for each id lets other threads run, which costs milliseconds.
_random = random.Random()
os.register_at_fork(after_in_child=_random.seed)
#: Above this a count could leave the free bits; nobody makes so many at a time.
_FIRST_MAX = (1 << _FREE_BITS) - (1 << 40)

R = TypeVar("R")
#: Called with (due, rest, id, topic, attempts, data, byte); `due` is the final one, `rest` what of it is
#: waited for after the record was due in its file.
Make = Callable[[int, int, bytes, str, int, bytes, int], R]


class NewRecord(NamedTuple):
    """A message to be stored: due in so many milliseconds from now."""

    wait_ms: int
    #: 16 bytes that tell messages apart; a UUID mostly. Nobody looks at them here.
    id: bytes
    #: Whom it is for; any text.
    topic: str
    #: How often it was tried.
    attempts: int
    data: bytes


class WaitingRecord(NamedTuple):
    """A waiting message, as it is seen without taking it."""

    #: When it is to be delivered, in milliseconds since 1970.
    due: int
    id: bytes
    topic: str
    attempts: int
    data: bytes


class Block(NamedTuple):
    """Records under one checksum, as columns; when they are due is known when they are written."""

    ids: Sequence[bytes]
    #: What lies between a record's id and its own data.
    middles: Sequence[bytes]
    datas: Sequence[bytes]
    #: The bytes of all of it.
    size: int
    #: When each record is due, ascending; None when all their waits begin with the writing.
    dues: Sequence[int] | None = None

    def at(self, due: int) -> bytes:
        """The block as it is written when all its records are due at one time."""
        ids, middles, datas, _, _ = self
        if len(ids) == 1:
            return b"".join((_DUE.pack(due), ids[0], middles[0], datas[0]))
        return self._joined([_DUE.pack(due)] * len(ids))

    def written(self, due: int, floor: int) -> tuple[bytes, int, int]:
        """The bytes, and when the first and the last record are due.

        That is at their own times, or else at `due`, but never before `floor`.
        """
        if self.dues is None:
            if due < floor:
                due = floor
            return self.at(due), due, due
        dues = self.dues if self.dues[0] >= floor else [max(each, floor) for each in self.dues]
        packed: list[bytes] = []
        while len(packed) < len(dues):  # mostly there are few different times
            each = dues[len(packed)]
            packed += [_DUE.pack(each)] * (bisect_right(dues, each, len(packed)) - len(packed))
        return self._joined(packed), dues[0], dues[-1]

    def begins(self) -> Iterable[int]:
        """Where each record begins, from the beginning of the block."""
        return [0, *_ends(self.middles, map(len, self.datas))[:-1]]

    def _joined(self, dues: list[bytes]) -> bytes:
        parts: list[bytes] = [b""] * (4 * len(dues))
        parts[0::4], parts[1::4], parts[2::4], parts[3::4] = dues, self.ids, self.middles, self.datas
        return b"".join(parts)


class RecordColumns(NamedTuple):
    """Records to be stored, column by column: what is alike is seen, and done, at once."""

    waits: Sequence[int]
    ids: Sequence[bytes]
    topics: Sequence[str]
    attempts: Sequence[int]
    datas: Sequence[bytes]
    lengths: Sequence[int]
    #: When each wait began, in ms since 1970, ascending; None: they begin now.
    begun: Sequence[int] | None = None

    def take(self, places: Sequence[int]) -> RecordColumns:
        """Those at some places, in that order."""
        waits, ids, topics, attempts, datas, lengths, begun = self
        return RecordColumns(
            _at(waits, places), _at(ids, places), _at(topics, places), _at(attempts, places),
            _at(datas, places), _at(lengths, places), None if begun is None else _at(begun, places),
        )  # fmt: skip


def _at(column: Sequence[R], places: Sequence[int]) -> list[R]:
    return [column[place] for place in places]


def columns(entries: Iterable[NewRecord]) -> RecordColumns | None:
    """The entries as columns; None when there are none."""
    rows = list(entries)
    if not rows:
        return None
    waits, ids, topics, attempts, datas = zip(*rows, strict=True)
    return RecordColumns(waits, ids, topics, attempts, datas, tuple(map(len, datas)))


def some_columns(entries: Iterable[NewRecord]) -> RecordColumns:
    """The entries, of which there are some, as columns."""
    found = columns(entries)
    assert found is not None
    return found


def check(entries: RecordColumns) -> None:
    """Refuse what cannot be stored; nothing was stored then."""
    for wait in _distinct(entries.waits):
        checked_wait("wait", wait)
    if not all_are(bytes, entries.ids) or countOf(map(len, entries.ids), ID_BYTES) != len(entries.ids):
        raise InvalidOption("an id is not 16 bytes", hint="penstock.delay.records.uuid7 makes one")
    for topic in _distinct(entries.topics):
        if not isinstance(topic, str):
            raise WrongType(f"a topic is a str, not {type(topic).__name__}")
        if len(_utf8(topic)) > TOPIC_BYTES_MAX:
            raise InvalidOption(f"a topic of {len(_utf8(topic))} bytes: {TOPIC_BYTES_MAX} are allowed")
    for number in _distinct(entries.attempts):
        if type(number) is not int or not 0 <= number <= ATTEMPTS_MAX:
            raise InvalidOption(f"attempts={number!r} is not a count")
    if not all_are(bytes, entries.datas):
        raise WrongType("data takes bytes")
    if max(entries.lengths) > DATA_BYTES_MAX:
        raise MessageTooLarge(f"data of {max(entries.lengths)} bytes: {DATA_BYTES_MAX} are allowed")


def check_one(entry: NewRecord) -> None:
    """Refuse a message that cannot be stored."""
    wait_ms, id, topic, attempts, data = entry
    if (
        type(id) is bytes and len(id) == ID_BYTES
        and type(topic) is str and len(topic) <= _TOPIC_CHARACTERS
        and type(attempts) is int and 0 <= attempts <= ATTEMPTS_MAX
        and type(data) is bytes and len(data) <= DATA_BYTES_MAX
        and type(wait_ms) is int and 0 <= wait_ms <= WAIT_MAX_MS
    ):  # fmt: skip
        return  # the usual case, quickly seen; else find out what is wrong, if anything is
    check(some_columns([entry]))


def one_block(id: bytes, topic: str, attempts: int, data: bytes, rest: int | None) -> Block:
    """A block of one checked record; `rest` is None in a chain of one delay."""
    middle = _middle(topic, attempts, len(data), rest)
    return Block((id,), (middle,), (data,), _HEAD.size + len(middle) + len(data))


def blocks(entries: RecordColumns, rung_ms: int | None) -> list[Block]:
    """Checked entries as blocks: of a chain of one delay, or of a rung, where each says how much is left."""
    waits, ids, topics, attempts, datas, lengths, begun = entries
    if len(_distinct(waits)) == len(_distinct(topics)) == len(_distinct(attempts)) == 1:
        rest = None if rung_ms is None else waits[0] - rung_ms
        by_length = {length: _middle(topics[0], attempts[0], length, rest) for length in _distinct(lengths)}
        middles = list(map(by_length.__getitem__, lengths))
    else:
        rests = [None if rung_ms is None else wait - rung_ms for wait in waits]
        kinds = tuple(zip(topics, attempts, lengths, rests, strict=True))
        by_kind = {kind: _middle(*kind) for kind in set(kinds)}
        middles = list(map(by_kind.__getitem__, kinds))
    dues = None
    if rung_ms is None and begun is not None:
        dues = list(accumulate(map(add, begun, waits), max))
    ends = _ends(middles, lengths)
    whole = Block(ids, middles, datas, ends[-1], dues)
    return [whole] if whole.size <= BLOCK_BYTES else list(_split(whole, ends))


def _ends(middles: Iterable[bytes], lengths: Iterable[int]) -> list[int]:
    """Where each record ends, from the beginning of the first one, by how long its data is."""
    strings = accumulate(map(add, map(len, middles), lengths))
    return list(map(add, strings, count(_HEAD.size, _HEAD.size)))


@lru_cache(maxsize=1024)
def _middle(topic: str, attempts: int, length: int, rest: int | None) -> bytes:
    """What lies between a record's id and its own data."""
    name, left = _utf8(topic), b"" if rest is None else encode_uvarint(rest)
    return b"".join((
        encode_uvarint(len(name)), name, encode_uvarint(attempts), encode_uvarint(len(left) + length), left,
    ))  # fmt: skip


def _split(block: Block, ends: Sequence[int]) -> Iterator[Block]:
    """Parts that are as long as a block may be, but have one record at least; `ends` is where each ends."""
    ids, middles, datas, _, dues = block
    begin = written = 0
    while begin < len(ids):
        stop = max(bisect_right(ends, written + BLOCK_BYTES, begin), begin + 1)
        part = slice(begin, stop)
        yield Block(ids[part], middles[part], datas[part], ends[stop - 1] - written, dues and dues[part])
        begin, written = stop, ends[stop - 1]


def decode(data: bytes, at: int, count: int | None, has_rests: bool, make: Make[R]) -> list[R]:
    """The records of whole, checked blocks that lie from byte `at` of their file on.

    `count` is how many there are, when that is known. ValueError: the bytes are not just whole records.
    """
    try:
        if count is not None and count > 1:
            alike = _decode_alike(data, at, count, has_rests, make)
            if alike is not None:
                return alike
        return _decode_each(data, at, has_rests, make)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise ValueError("not a sequence of records") from error


def are_records(data: bytes, floor: int, has_rests: bool) -> bool:
    """Whether bytes without a checksum are records: they parse just so, and their times ascend."""
    try:
        dues = decode(data, 0, None, has_rests, lambda due, rest, *_: due - rest)
    except ValueError:
        return False
    return bool(dues) and dues[0] >= floor and dues == sorted(dues)


def _decode_alike(data: bytes, at: int, count: int, has_rests: bool, make: Make[R]) -> list[R] | None:
    """Records that differ only in due time, id and data, not in length; None when these are not so."""
    topic, attempts, behind = _parse_kind(data, _HEAD.size)
    begin, stop, rest = _parse_data(data, behind, has_rests)
    if stop * count != len(data):
        return None
    fields = _alike(begin - _HEAD.size, stop - begin, count).unpack(data)
    dues: Iterable[Any]
    dues, ids, middles, datas = fields[0::4], fields[1::4], fields[2::4], fields[3::4]
    if middles.count(middles[0]) != count:
        return None
    if rest:
        dues = [due + rest for due in dues]
    places = range(at, at + len(data), stop)
    return list(map(make, dues, repeat(rest), ids, repeat(topic), repeat(attempts), datas, places))


@lru_cache(maxsize=8)
def _alike(middle: int, length: int, count: int) -> struct.Struct:
    """So many records of one shape as one struct: half the time of one after another."""
    return struct.Struct("<" + f"Q16s{middle}s{length}s" * count)


def _decode_each(data: bytes, at: int, has_rests: bool, make: Make[R]) -> list[R]:
    found: list[R] = []
    append, unpack, starts, head = found.append, _HEAD.unpack_from, data.startswith, _HEAD.size
    place, stop = 0, len(data)
    before, topic, attempts = b"", "", 0
    while place < stop:
        due, record_id = unpack(data, place)
        begin = place + head
        if not before or not starts(before, begin):  # mostly topic and attempts are those of the one before
            topic, attempts, behind = _parse_kind(data, begin)
            before = data[begin:behind]
        begin, end, rest = _parse_data(data, begin + len(before), has_rests)
        if end > stop:
            raise ValueError("a record goes beyond the end")
        append(make(due + rest, rest, record_id, topic, attempts, data[begin:end], at + place))
        place = end
    return found


def _parse_kind(data: bytes, at: int) -> tuple[str, int, int]:
    """(topic, attempts, byte behind them) of the record whose id ends at a byte."""
    length, at = decode_uvarint(data, at)
    stop = at + length
    attempts, behind = decode_uvarint(data, stop)
    return data[at:stop].decode(), attempts, behind


def _parse_data(data: bytes, at: int, has_rests: bool) -> tuple[int, int, int]:
    """(first byte of the data, byte behind it, rest) of the record whose data's length begins at a byte."""
    length = data[at]
    if length < 0x80:
        at += 1
    else:
        high = data[at + 1]
        if high < 0x80:  # by hand what is most frequent
            length, at = length & 0x7F | high << 7, at + 2
        else:
            length, at = decode_uvarint(data, at)
    stop = at + length
    if not has_rests:
        return at, stop, 0
    rest, at = decode_uvarint(data, at)
    if at > stop:
        raise ValueError("a record without its rest")
    return at, stop, rest


def _distinct(values: Sequence[R]) -> Collection[R]:
    """Each value once; mostly all are the same, which is found faster than by hashing them."""
    return values[:1] if values.count(values[0]) == len(values) else set(values)


def _utf8(topic: str) -> bytes:
    try:
        return topic.encode()
    except UnicodeEncodeError:
        raise InvalidOption("a topic holds a lone surrogate and cannot be stored as UTF-8") from None


def uuid7(ms: int, free: int | None = None) -> bytes:
    """An id of a moment; `free` gives its 74 free bits, which are random otherwise."""
    if free is None:
        free = _random.getrandbits(_FREE_BITS)
    high, low = (free >> _LOW_BITS) & 0xFFF, free & _LOW
    return (((ms & 0xFFFF_FFFF_FFFF) << 80) | _MARKS | (high << 64) | low).to_bytes(ID_BYTES, "big")


def uuid7s(ms: int, count: int) -> list[bytes]:
    """Different ids of one moment, in ascending order."""
    first = _random.getrandbits(_FREE_BITS) % _FIRST_MAX
    if (first & _LOW) + count > _LOW:
        return [uuid7(ms, free) for free in range(first, first + count)]
    begin = int.from_bytes(uuid7(ms, first), "big")  # the low bits only count up: nothing is carried
    return [number.to_bytes(ID_BYTES, "big") for number in range(begin, begin + count)]
