"""What a power cut left of the file that was written: a sound part, then perhaps a torn tail.

A block that fails its checksum is torn if nothing says that it was ever durable: it and all behind it go.
If a later sound entry says that it was durable, it is damage: nothing is cut there, and reading reports it.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from penstock.checksum import crc32
from penstock.delay import names, sums
from penstock.delay.sums import ENTRY_BYTES, Sum
from penstock.files import Files

logger = logging.getLogger("penstock.delay")


def mend(folder: str, name: str, files: Files) -> int:
    """Cut off the torn tail of a file and make the cut durable; the byte at which its records end."""
    try:
        fd = files.open(names.data_path(folder, name))
    except FileNotFoundError:
        return 0  # reading reports it
    sums_fd = -1
    try:
        with suppress(FileNotFoundError):
            sums_fd = files.open(names.sums_path(folder, name))
        if sums_fd < 0:
            return files.size(fd)  # reading takes what parses
        found = list(sums.entries(files.pread(sums_fd, files.size(sums_fd), 0)))
        keep = sound_entries(found, files, fd)
        end = next((entry.end for entry in reversed(found[:keep]) if entry is not None), 0)
        _cut(files, fd, end, name)
        _cut(files, sums_fd, keep * ENTRY_BYTES, name)
        return end
    finally:
        files.close(fd)
        if sums_fd >= 0:
            files.close(sums_fd)


def sound_entries(found: list[Sum | None], files: Files, fd: int) -> int:
    """How many entries stay: up to the first that is torn."""
    durable = max(
        (entry.synced for entry in found if entry is not None and _fits(entry, files, fd)), default=0
    )
    for number, entry in enumerate(found):
        if entry is None:
            if not any(later is not None and later.begin < durable for later in found[number + 1 :]):
                return number
        elif entry.begin >= durable and not _fits(entry, files, fd):
            return number
    return len(found)


def _fits(entry: Sum, files: Files, fd: int) -> bool:
    data = files.pread(fd, entry.length, entry.begin)
    return len(data) == entry.length and crc32(data) == entry.crc


def _cut(files: Files, fd: int, size: int, name: str) -> None:
    torn = files.size(fd) - size
    if torn:
        logger.info("cut %d torn bytes off %s", torn, name)
        files.truncate(fd, size)
    files.sync(fd)
