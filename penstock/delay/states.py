"""States of files: what is known of each, the five operations that change it, and both as bytes on disk.

The states of a folder are a snapshot and the changes since. The snapshot is nothing but its elements. Its
checksum stands in the header of the log that continues it, so a log is never folded over a snapshot it does
not belong to:

    write states.snapshot.tmp and states.log.next, sync both, sync the folder
    rename the snapshot, sync the folder
    rename the log, sync the folder

Died in between, the snapshot is the old one with its log, or the new one with `states.log.next`, which is
then taken.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from functools import partial
from typing import NamedTuple

from penstock.checksum import crc32
from penstock.delay.file_names import parse
from penstock.errors import UnknownFormat
from penstock.files import Files
from penstock.uvarint import decode_uvarint, encode_uvarint

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


#: Makes an id from its two numbers; see `checksums.make_sum`.
make_state_id: Callable[[tuple[int, int]], StateId] = partial(tuple.__new__, StateId)


class FileState(NamedTuple):
    """What is known of a file of records (S003-09 to S003-14)."""

    name: str
    id: StateId
    #: WRITING, READING or both.
    rw: int
    #: Everything before this byte is finished.
    offset: int
    #: The length: final once writing has stopped, before that as of the snapshot it comes from.
    len: int
    #: No record of the file is due before this, in ms since 1970.
    replay: int

    @property
    def is_written(self) -> bool:
        """Whether the file is still being written."""
        return bool(self.rw & WRITING)


class Operation(IntEnum):
    """The five operations (S003-19 to S003-23)."""

    CREATE = 1
    STOP_WRITING = 2
    DELETE = 3
    OPEN_FOR_READING = 4
    SHIFT = 5


class Change(NamedTuple):
    """One operation on one file."""

    kind: Operation
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
        if change.kind is Operation.CREATE:
            replay = change.first + change.second
            after[change.name] = FileState(change.name, change.id, WRITING, 0, 0, replay)
        elif change.kind is Operation.DELETE:
            after.pop(change.name, None)
        elif change.name in after:
            after[change.name] = _changed(after[change.name], change)
    return after


def _changed(state: FileState, change: Change) -> FileState:
    if change.kind is Operation.STOP_WRITING:
        return state._replace(id=change.id, rw=state.rw & ~WRITING, len=change.first)
    if change.kind is Operation.OPEN_FOR_READING:
        return state._replace(id=change.id, rw=state.rw | READING)
    return state._replace(id=change.id, offset=state.offset + change.first)


def encode_snapshot(states: Iterable[FileState]) -> bytes:
    """Return the states of all files as bytes."""
    parts: list[bytes] = []
    for state in states:
        name = state.name.encode()
        parts += (
            encode_uvarint(len(name)), name, _ID.pack(*state.id), bytes((state.rw,)),
            encode_uvarint(state.offset), encode_uvarint(state.len), _U64.pack(state.replay),
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
            offset, at = decode_uvarint(data, at + _ID.size + 1)
            length, at = decode_uvarint(data, at)
            (replay,) = _U64.unpack_from(data, at)
            at += _U64.size
            states[name] = FileState(name, state_id, rw, offset, length, replay)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise ValueError("not a snapshot") from error
    return states


def encode_change(change: Change) -> bytes:
    """Return one change of a file's state as bytes."""
    name = change.name.encode()
    parts = [bytes((change.kind,)), _ID.pack(*change.id), encode_uvarint(len(name)), name]
    if change.kind is Operation.CREATE:
        parts += (_U64.pack(change.first), _U64.pack(change.second))
    elif change.kind in (Operation.STOP_WRITING, Operation.SHIFT):
        parts.append(encode_uvarint(change.first))
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
    kind = Operation(body[0])
    state_id = StateId(*_ID.unpack_from(body, 1))
    name, at = _text(body, 1 + _ID.size)
    first = second = 0
    if kind is Operation.CREATE:
        (first,), (second,) = _U64.unpack_from(body, at), _U64.unpack_from(body, at + _U64.size)
    elif kind in (Operation.STOP_WRITING, Operation.SHIFT):
        first, at = decode_uvarint(body, at)
    return Change(kind, state_id, name, first, second)


def _text(data: bytes, at: int) -> tuple[str, int]:
    length, at = decode_uvarint(data, at)
    stop = at + length
    if stop > len(data):
        raise ValueError("a name goes beyond the end")
    return data[at:stop].decode(), stop


SNAPSHOT, SNAPSHOT_TMP = "states.snapshot", "states.snapshot.tmp"
LOG, LOG_NEXT = "states.log", "states.log.next"
MAGIC = b"PENSTOKW"
#: 1: files without a chain of one delay, each chain with a lock of its own.
OLD_VERSION, VERSION = 1, 2
HEADER_BYTES = 64
_HEAD = struct.Struct("<8sIHHQQQQI12x")
_CRC_FROM = 12


class Header(NamedTuple):
    """The beginning of a log: which snapshot it continues."""

    #: Counts snapshots.
    generation: int
    #: The last id that the snapshot has seen.
    id: StateId
    snapshot_bytes: int
    snapshot_crc: int
    version: int = VERSION


class Loaded(NamedTuple):
    """What the files say."""

    header: Header
    states: dict[str, FileState]
    changes: list[Change]
    #: The byte behind the last sound entry of the log.
    end: int
    #: How many bytes lie behind it.
    torn: int
    #: The log that belongs to the snapshot is still `states.log.next`.
    is_next: bool


def pack_header(header: Header) -> bytes:
    """Return the header of a state file as bytes, with its checksum."""
    about = (header.snapshot_bytes, header.snapshot_crc)
    data = bytearray(
        _HEAD.pack(MAGIC, 0, header.version, HEADER_BYTES, header.generation, *header.id, *about)
    )
    data[8:12] = crc32(bytes(data[_CRC_FROM:])).to_bytes(4, "little")
    return bytes(data)


def unpack_header(data: bytes) -> Header | None:
    """Decode a header; None when it is not sound. Raises `UnknownFormat` when a newer Penstock wrote it."""
    if len(data) < HEADER_BYTES or crc32(data[_CRC_FROM:HEADER_BYTES]) != int.from_bytes(
        data[8:12], "little"
    ):
        return None
    magic, _, version, _, generation, ms, counter, length, crc = _HEAD.unpack_from(data)
    if magic != MAGIC:
        return None
    if version not in (OLD_VERSION, VERSION):
        raise UnknownFormat(f"the waiting messages are of version {version}", hint="use a newer Penstock")
    return Header(generation, StateId(ms, counter), length, crc, version)


def load(folder: str, files: Files) -> Loaded | None:
    """What the files say; None when they do not fit together or are not there."""
    snapshot = read_file(files, os.path.join(folder, SNAPSHOT)) or b""
    for name in (LOG, LOG_NEXT):
        data = read_file(files, os.path.join(folder, name))
        header = unpack_header(data) if data is not None else None
        if data is None or header is None:
            continue
        if (header.snapshot_bytes, header.snapshot_crc) != (len(snapshot), crc32(snapshot)):
            continue
        try:
            states = decode_snapshot(snapshot)
        except ValueError:
            return None
        if not all(map(parse, states)):
            return None
        changes, end = [], HEADER_BYTES
        for change, behind in decode_changes(data[HEADER_BYTES:], header.id):
            if parse(change.name) is None:
                break
            changes.append(change)
            end = HEADER_BYTES + behind
        return Loaded(header, states, changes, end, len(data) - end, name == LOG_NEXT)
    return None


def take_next(folder: str, files: Files) -> None:
    """Finish what a snapshot that died left: its log becomes the log."""
    files.rename(os.path.join(folder, LOG_NEXT), os.path.join(folder, LOG))
    files.sync_dir(folder)


def replace(folder: str, files: Files, states: dict[str, FileState], last: StateId, generation: int) -> None:
    """Write the states as a new snapshot, with an empty log that continues it."""
    snapshot = encode_snapshot(states.values())
    header = pack_header(Header(generation, last, len(snapshot), crc32(snapshot)))
    _write(folder, files, SNAPSHOT_TMP, snapshot)
    _write(folder, files, LOG_NEXT, header)
    files.sync_dir(folder)
    files.rename(os.path.join(folder, SNAPSHOT_TMP), os.path.join(folder, SNAPSHOT))
    files.sync_dir(folder)
    take_next(folder, files)


def read_file(files: Files, path: str) -> bytes | None:
    """All bytes of a file, None when it is not there."""
    try:
        fd = files.open(path, write=False)
    except FileNotFoundError:
        return None
    try:
        return files.pread(fd, files.size(fd), 0)
    finally:
        files.close(fd)


def _write(folder: str, files: Files, name: str, data: bytes) -> None:
    fd = files.open(os.path.join(folder, name), create=True)
    try:
        files.truncate(fd, 0)
        if data:
            files.pwrite(fd, data, 0)
        files.sync(fd)
    finally:
        files.close(fd)
