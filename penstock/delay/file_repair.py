"""Files of records after a crash: cut torn tails, take over or remove files that no state names.

A block that fails its checksum is torn if nothing says that it was ever durable: it and all behind it go.
If a later sound entry says that it was durable, it is damage: nothing is cut there, and reading reports it.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Container, Iterable
from contextlib import suppress
from typing import NamedTuple

from penstock.checksum import crc32
from penstock.delay import file_names
from penstock.delay.checksums import EMPTY, Sum, layout
from penstock.delay.file_names import ChainKind
from penstock.delay.states import FileState
from penstock.files import Files
from penstock.locks import RUNG_RANK, FileLock

logger = logging.getLogger("penstock.delay")

#: In a chain's folder of an older store: boot, number of the file that is written.
OLD_LOCK = "lock"
_OLD_RECORD = struct.Struct("<QQ")


class Adopted(NamedTuple):
    """A file to be taken over."""

    name: str
    #: The byte behind its last sound block.
    end: int
    #: No record in it is due earlier.
    first_due: int


class Remains(NamedTuple):
    """What is to be done about files without a state."""

    adopt: list[Adopted]
    remove: list[str]


def found(folder: str, files: Files) -> list[tuple[str, file_names.Made]]:
    """All files of records, in the order in which they were made."""
    every: list[tuple[str, file_names.Made]] = []
    for chain in files.listdir(folder):
        with suppress(NotADirectoryError, FileNotFoundError):
            each = ((name, file_names.parse(name)) for name in files.listdir(os.path.join(folder, chain)))
            every += [(name, made) for name, made in each if made and made.chain.folder == chain]
    return sorted(every, key=lambda pair: pair[1].number)


def look(folder: str, files: Files, known: Container[str], last_number: int) -> Remains:
    """What lies there without a state: later files that hold something are to be taken over."""
    adopt: list[Adopted] = []
    remove: list[str] = []
    for name, made in found(folder, files):
        if name in known:
            continue
        adopted = _adopted(folder, files, name) if made.number > last_number else None
        if adopted is not None:
            adopt.append(adopted)
        else:
            remove.append(name)
    return Remains(adopt, remove)


def remove(folder: str, files: Files, name: str) -> None:
    """Remove a file and its checksums, and the folder of its chain once that is empty."""
    for path in (file_names.sums_path(folder, name), file_names.data_path(folder, name)):
        with suppress(FileNotFoundError):
            files.unlink(path)
    chain = file_names.made(name).chain
    path = os.path.join(folder, chain.folder)
    with suppress(FileNotFoundError):
        left = files.listdir(path)
        if chain.kind is ChainKind.OLD and left == [OLD_LOCK]:
            files.unlink(os.path.join(path, OLD_LOCK))
            left = []
        if not left:
            files.remove_dir(path)


def last_entry(folder: str, files: Files, name: str) -> Sum:
    """The last sound checksum of a file; the empty one when there is none."""
    try:
        fd = files.open(file_names.sums_path(folder, name), write=False)
    except FileNotFoundError:
        return EMPTY
    try:
        lies = layout(name)
        return lies.last_before(files, fd, lies.how_many(files, fd))
    finally:
        files.close(fd)


def cut_torn_tail(folder: str, name: str, files: Files) -> int:
    """Cut off the torn tail of a file and make the cut durable; the byte at which its records end."""
    try:
        fd = files.open(file_names.data_path(folder, name))
    except FileNotFoundError:
        return 0  # reading reports it
    sums_fd = -1
    try:
        with suppress(FileNotFoundError):
            sums_fd = files.open(file_names.sums_path(folder, name))
        if sums_fd < 0:
            return files.size(fd)  # reading takes what parses
        lies = layout(name)
        entries = list(lies.entries(files.pread(sums_fd, files.size(sums_fd), 0)))
        keep = sound_entries(entries, files, fd)
        end = next((entry.end for entry in reversed(entries[:keep]) if entry is not None), 0)
        _cut(files, fd, end, name)
        _cut(files, sums_fd, keep * lies.entry_bytes, name)
        return end
    finally:
        files.close(fd)
        if sums_fd >= 0:
            files.close(sums_fd)


def sound_entries(entries: list[Sum | None], files: Files, fd: int) -> int:
    """How many entries stay: up to the first that is torn."""
    durable = max(
        (entry.synced for entry in entries if entry is not None and _fits(entry, files, fd)), default=0
    )
    for number, entry in enumerate(entries):
        if entry is None:
            if not any(later is not None and later.begin < durable for later in entries[number + 1 :]):
                return number
        elif entry.begin >= durable and not _fits(entry, files, fd):
            return number
    return len(entries)


def taken_over(folder: str, files: Files, written: Iterable[FileState]) -> list[tuple[str, int]]:
    """(file, its length) of those that an older version wrote, each cut to its last sound block.

    There each chain had a lock of its own, with the boot and the number of the file that is written. A
    process of that version that is still running finds 0 there, asks the states, and is told that they are
    newer.
    """
    ends: list[tuple[str, int]] = []
    for state in written:
        path = os.path.join(folder, file_names.made(state.name).chain.folder, OLD_LOCK)
        if not files.exists(os.path.dirname(path)):
            ends.append((state.name, 0))  # reading reports that it is missing
            continue
        lock = FileLock(files, path, order=(RUNG_RANK, 0, 0), holder=lambda: None)
        try:
            with lock.held():
                ends.append((state.name, cut_torn_tail(folder, state.name, files)))
                files.pwrite(lock.fd, _OLD_RECORD.pack(files.boot(), 0), 0)
        finally:
            lock.close()
    return ends


def _adopted(folder: str, files: Files, name: str) -> Adopted | None:
    """A file without a state; None when it holds nothing."""
    try:
        fd = files.open(file_names.sums_path(folder, name), write=False)
    except FileNotFoundError:
        return None
    try:
        data = files.pread(fd, files.size(fd), 0)
    finally:
        files.close(fd)
    sound = [entry for entry in layout(name).entries(data) if entry is not None]
    if not sound:
        return None
    # `due` is of a block's last record, so the delay of the whole first block may lie before it.
    return Adopted(name, sound[-1].end, 0 if sound[0].records > 1 else sound[0].due)


def _fits(entry: Sum, files: Files, fd: int) -> bool:
    data = files.pread(fd, entry.length, entry.begin)
    return len(data) == entry.length and crc32(data) == entry.crc


def _cut(files: Files, fd: int, size: int, name: str) -> None:
    torn = files.size(fd) - size
    if torn:
        logger.info("cut %d torn bytes off %s", torn, name)
        files.truncate(fd, size)
    files.sync(fd)
