"""The states of all files, and the five operations that change them, as bytes and as a pure fold.

    snapshot   uvarint name length | name | ID 16 B | RWState 1 B | Offset uvarint | Len uvarint | Replay u64
    log        u32 length | u32 CRC | u8 operation | ID 16 B | uvarint name length | name | arguments

An ID is `u64 ms since 1970 | u64 counter`. Each operation has the next one: it grows with every change,
also when the clock is set back.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from penstock.checksum import crc32
from penstock.delay import uvarint

WRITING, READING = 1, 2
#: An entry is as long as its name makes it; a damaged length is no reason to read wildly.
ENTRY_BYTES_MAX = 1024

_ID = struct.Struct("<QQ")
_U64 = struct.Struct("<Q")
_FRAME = struct.Struct("<II")


class StateId(NamedTuple):
    """A moment of the states; later ones are greater."""

    ms: int
    counter: int

    def following(self, now_ms: int) -> StateId:
        """The next one: never less, whatever the clock says."""
        return StateId(max(self.ms, now_ms), self.counter + 1)


class FileState(NamedTuple):
    """What is known of a file of records (S003-09 to S003-14)."""

    name: str
    id: StateId
    #: WRITING, READING or both.
    rw: int
    #: Everything before this byte is finished.
    offset: int
    #: The length, once writing has stopped; 0 before.
    len: int
    #: No record of the file is due before this, in ms since 1970.
    replay: int

    @property
    def is_written(self) -> bool:
        return bool(self.rw & WRITING)


class Kind(IntEnum):
    """The five operations (S003-19 to S003-23)."""

    CREATE = 1
    STOP_WRITING = 2
    DELETE = 3
    OPEN_FOR_READING = 4
    SHIFT = 5


class Change(NamedTuple):
    """One operation on one file."""

    kind: Kind
    id: StateId
    name: str
    #: CREATE: replayTimeout; STOP_WRITING: the length; SHIFT: offsetDelta.
    first: int = 0
    #: CREATE: currentTime.
    second: int = 0


States = Mapping[str, FileState]


def fold(states: States, changes: Iterable[Change]) -> dict[str, FileState]:
    """The states after the changes. What names an unknown file changes nothing: that file is gone."""
    after = dict(states)
    for change in changes:
        if change.kind is Kind.CREATE:
            replay = change.first + change.second
            after[change.name] = FileState(change.name, change.id, WRITING, 0, 0, replay)
        elif change.kind is Kind.DELETE:
            after.pop(change.name, None)
        elif change.name in after:
            after[change.name] = _changed(after[change.name], change)
    return after


def _changed(state: FileState, change: Change) -> FileState:
    if change.kind is Kind.STOP_WRITING:
        return state._replace(id=change.id, rw=state.rw & ~WRITING, len=change.first)
    if change.kind is Kind.OPEN_FOR_READING:
        return state._replace(id=change.id, rw=state.rw | READING)
    return state._replace(id=change.id, offset=state.offset + change.first)


def encode_snapshot(states: Iterable[FileState]) -> bytes:
    parts: list[bytes] = []
    for state in states:
        name = state.name.encode()
        parts += (
            uvarint.encode(len(name)), name, _ID.pack(*state.id), bytes((state.rw,)),
            uvarint.encode(state.offset), uvarint.encode(state.len), _U64.pack(state.replay),
        )  # fmt: skip
    return b"".join(parts)


def decode_snapshot(data: bytes) -> dict[str, FileState]:
    """All elements; ValueError when the bytes are not just whole ones."""
    states: dict[str, FileState] = {}
    at = 0
    try:
        while at < len(data):
            name, at = _text(data, at)
            state_id = StateId(*_ID.unpack_from(data, at))
            rw = data[at + _ID.size]
            offset, at = uvarint.decode(data, at + _ID.size + 1)
            length, at = uvarint.decode(data, at)
            (replay,) = _U64.unpack_from(data, at)
            at += _U64.size
            states[name] = FileState(name, state_id, rw, offset, length, replay)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise ValueError("not a snapshot") from error
    return states


def encode_change(change: Change) -> bytes:
    name = change.name.encode()
    parts = [bytes((change.kind,)), _ID.pack(*change.id), uvarint.encode(len(name)), name]
    if change.kind is Kind.CREATE:
        parts += (_U64.pack(change.first), _U64.pack(change.second))
    elif change.kind in (Kind.STOP_WRITING, Kind.SHIFT):
        parts.append(uvarint.encode(change.first))
    body = b"".join(parts)
    return _FRAME.pack(len(body), crc32(body)) + body


def decode_changes(data: bytes, after: StateId) -> Iterator[tuple[Change, int]]:
    """Each sound entry and the byte behind it, up to the first that is not.

    Ids must grow: bytes of an earlier tail that was cut off and came back with a power cut are no entries.
    """
    at = 0
    while (found := _entry(data, at)) is not None:
        change, at = found
        if change.id <= after:
            return
        after = change.id
        yield change, at


def _entry(data: bytes, at: int) -> tuple[Change, int] | None:
    begin = at + _FRAME.size
    if begin > len(data):
        return None
    length, crc = _FRAME.unpack_from(data, at)
    body = data[begin : begin + length]
    if not 0 < length <= ENTRY_BYTES_MAX or len(body) < length or crc32(body) != crc:
        return None
    try:
        return _decode_change(body), begin + length
    except (IndexError, ValueError, struct.error):
        return None


def _decode_change(body: bytes) -> Change:
    kind = Kind(body[0])
    state_id = StateId(*_ID.unpack_from(body, 1))
    name, at = _text(body, 1 + _ID.size)
    first = second = 0
    if kind is Kind.CREATE:
        (first,), (second,) = _U64.unpack_from(body, at), _U64.unpack_from(body, at + _U64.size)
    elif kind in (Kind.STOP_WRITING, Kind.SHIFT):
        first, at = uvarint.decode(body, at)
    return Change(kind, state_id, name, first, second)


def _text(data: bytes, at: int) -> tuple[str, int]:
    length, at = uvarint.decode(data, at)
    stop = at + length
    if stop > len(data):
        raise ValueError("a name goes beyond the end")
    return data[at:stop].decode(), stop
