"""`states.snapshot` and `states.log` on disk, and how one replaces the other.

The snapshot is nothing but its elements. Its checksum stands in the header of the log that continues it, so
a log is never folded over a snapshot it does not belong to:

    write states.snapshot.tmp and states.log.next, sync both, sync the folder
    rename the snapshot, sync the folder
    rename the log, sync the folder

Died in between, the snapshot is the old one with its log, or the new one with `states.log.next`, which is
then taken.
"""

from __future__ import annotations

import os
import struct
from typing import NamedTuple

from penstock.checksum import crc32
from penstock.delay.states import Change, FileState, StateId, decode_changes, decode_snapshot, encode_snapshot
from penstock.errors import UnknownFormat
from penstock.files import Files

SNAPSHOT, SNAPSHOT_TMP = "states.snapshot", "states.snapshot.tmp"
LOG, LOG_NEXT = "states.log", "states.log.next"
MAGIC = b"PENSTOKW"
VERSION = 1
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
    about = (header.snapshot_bytes, header.snapshot_crc)
    data = bytearray(_HEAD.pack(MAGIC, 0, VERSION, HEADER_BYTES, header.generation, *header.id, *about))
    data[8:12] = crc32(bytes(data[_CRC_FROM:])).to_bytes(4, "little")
    return bytes(data)


def unpack_header(data: bytes) -> Header | None:
    """None when it is not sound; `UnknownFormat` when a newer Penstock wrote it."""
    if len(data) < HEADER_BYTES or crc32(data[_CRC_FROM:HEADER_BYTES]) != int.from_bytes(
        data[8:12], "little"
    ):
        return None
    magic, _, version, _, generation, ms, counter, length, crc = _HEAD.unpack_from(data)
    if magic != MAGIC:
        return None
    if version != VERSION:
        raise UnknownFormat(f"the waiting messages are of version {version}", hint="use a newer Penstock")
    return Header(generation, StateId(ms, counter), length, crc)


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
        changes, end = [], HEADER_BYTES
        for change, behind in decode_changes(data[HEADER_BYTES:], header.id):
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
