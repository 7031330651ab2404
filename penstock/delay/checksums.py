"""The checksums beside a file of records: one entry for each block, appended after its data.

An entry says where its block ends, so the end of the records is the last sound entry, whatever lies behind
it in the data file. It also says at which state of the folder the block was written, and how much of the
data was known to be durable then: damage below that is damage, above it a torn tail.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from penstock.checksum import crc32
from penstock.delay.file_names import ChainKind, made
from penstock.files import Files

_CHECK = struct.Struct("<I")
_CURRENT = struct.Struct("<IIIIQIQQ")
_OLD = struct.Struct("<IIIIQI")
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
    #: The state id (milliseconds, counter) under which the block was written; 0, 0 in files of older stores.
    ms: int = 0
    counter: int = 0

    @property
    def begin(self) -> int:
        """The byte where the sum's stretch begins."""
        return self.end - self.length


EMPTY = Sum(0, 0, 0, 0, 0, 0)
#: Makes an entry from a tuple of its fields: a NamedTuple's own constructor takes three times as long.
make_sum: Callable[[tuple[int, ...]], Sum] = partial(tuple.__new__, Sum)


class ChecksumLayout:
    """How entries lie in a file of checksums."""

    def __init__(self, body: struct.Struct) -> None:
        self._body = body
        #: Bytes of one entry.
        self.entry_bytes = body.size + _CHECK.size

    def pack(self, entry: Sum) -> bytes:
        """Return an entry of the checksum file, with its own check."""
        body = self._body.pack(*entry)
        return body + crc32(body).to_bytes(4, "little")

    def unpack(self, data: bytes, at: int = 0) -> Sum | None:
        """Decode an entry; None when it is not sound."""
        body = data[at : at + self._body.size]
        if (
            len(data) - at < self.entry_bytes
            or _CHECK.unpack_from(data, at + self._body.size)[0] != crc32(body)
        ):  # fmt: skip
            return None
        entry = Sum(*self._body.unpack(body))
        return entry if entry.length <= entry.end else None

    def entries(self, data: bytes) -> Iterator[Sum | None]:
        """Each whole entry, None for one that is not sound."""
        step = self.entry_bytes
        return (self.unpack(data, at) for at in range(0, len(data) - step + 1, step))

    def read(self, files: Files, fd: int, number: int) -> Sum | None:
        """One entry; None when it is not there or not sound."""
        return self.unpack(files.pread(fd, self.entry_bytes, number * self.entry_bytes))

    def how_many(self, files: Files, fd: int) -> int:
        """Return how many whole entries a checksum file holds."""
        return files.size(fd) // self.entry_bytes

    def last_before(self, files: Files, fd: int, number: int) -> Sum:
        """The last sound entry before the one of a number; its block ends where that one's begins."""
        for earlier in range(number - 1, -1, -1):
            entry = self.read(files, fd, earlier)
            if entry is not None:
                return entry
        return EMPTY

    def find(self, files: Files, fd: int, byte: int) -> int:
        """The number of the first entry that ends behind a byte; unsound entries are walked over."""
        low, high = 0, self.how_many(files, fd)
        while low < high:
            middle = (low + high) // 2
            place, entry = middle, None
            while place < high and (entry := self.read(files, fd, place)) is None:
                place += 1
            if entry is None or entry.end > byte:
                high = middle
            else:
                low = place + 1
        return low


CURRENT, OLD = ChecksumLayout(_CURRENT), ChecksumLayout(_OLD)


def layout(name: str) -> ChecksumLayout:
    """How the checksums of a file of records lie."""
    return OLD if made(name).chain.kind is ChainKind.OLD else CURRENT
