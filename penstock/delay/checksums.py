"""The checksums beside a file of records: one entry of 32 bytes for each block, appended after its data.

An entry says where its block ends, so the end of the records is the last sound entry, whatever lies behind
it in the data file. It also says how much of the data was known to be durable when it was written: damage
below that is damage, above it a torn tail.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from penstock.checksum import crc32
from penstock.files import Files

_ENTRY = struct.Struct("<IIIIQI")
_CHECK = struct.Struct("<I")
ENTRY_BYTES = _ENTRY.size + _CHECK.size
#: So many are read at a time.
ENTRIES_READ = 1024


class Sum(NamedTuple):
    """What an entry says of its block."""

    #: The byte behind the block.
    end: int
    #: The block's bytes.
    length: int
    #: Records from the beginning of the file up to `end`.
    records: int
    #: So many bytes of the data were durable.
    synced: int
    #: When the last record is due in this file.
    due: int
    #: CRC of the block.
    crc: int

    @property
    def begin(self) -> int:
        return self.end - self.length


EMPTY = Sum(0, 0, 0, 0, 0, 0)


def pack(entry: Sum) -> bytes:
    body = _ENTRY.pack(*entry)
    return body + _CHECK.pack(crc32(body))


def unpack(data: bytes, at: int = 0) -> Sum | None:
    """None when the entry is not sound."""
    body = data[at : at + _ENTRY.size]
    if len(data) - at < ENTRY_BYTES or _CHECK.unpack_from(data, at + _ENTRY.size)[0] != crc32(body):
        return None
    entry = Sum._make(_ENTRY.unpack(body))
    return entry if entry.length <= entry.end else None


def entries(data: bytes) -> Iterator[Sum | None]:
    """Each whole entry, None for one that is not sound."""
    return (unpack(data, at) for at in range(0, len(data) - ENTRY_BYTES + 1, ENTRY_BYTES))


def read(files: Files, fd: int, number: int) -> Sum | None:
    """One entry; None when it is not there or not sound."""
    return unpack(files.pread(fd, ENTRY_BYTES, number * ENTRY_BYTES))


def how_many(files: Files, fd: int) -> int:
    return files.size(fd) // ENTRY_BYTES


def find(files: Files, fd: int, byte: int) -> int:
    """The number of the first entry that ends behind a byte; entries that are not sound are walked over."""
    low, high = 0, how_many(files, fd)
    while low < high:
        middle = (low + high) // 2
        place, entry = middle, None
        while place < high and (entry := read(files, fd, place)) is None:
            place += 1
        if entry is None or entry.end > byte:
            high = middle
        else:
            low = place + 1
    return low
