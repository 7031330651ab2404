"""Read a file of records from any byte, and all records of a folder, without locks and without taking any."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from penstock.checksum import crc32
from penstock.delay import checksums, file_names, states
from penstock.delay.checksums import EMPTY, ENTRIES_READ, Sum
from penstock.delay.records import BLOCK_BYTES, Make, R, WaitingRecord, are_records, decode
from penstock.delay.states import FileState, fold
from penstock.errors import Corrupt
from penstock.files import Files


class RecordBlock(NamedTuple):
    """Bytes of a file that belong together: sound records, or damage."""

    begin: int
    end: int
    data: bytes
    #: How many records; None where no checksum vouches for them.
    expected: int | None
    #: Whether the records say how long they wait on.
    has_rests: bool
    is_sound: bool = True

    def records(self, make: Make[R]) -> list[R]:
        """Decode the block's records, each by `make`."""
        return decode(self.data, self.begin, self.expected, self.has_rests, make)


class FileReader:
    """Reads a file of records block by block. It has files open only while it reads."""

    def __init__(self, folder: str, name: str, files: Files, offset: int) -> None:
        """Begin with the block that holds the byte `offset`. FileNotFoundError when the file is gone."""
        self.name = name
        self.path = file_names.data_path(folder, name)
        self._sums_path = file_names.sums_path(folder, name)
        self._files = files
        self._layout = checksums.layout(name)
        self._has_rests = file_names.made(name).chain.has_rests
        with self._opened() as (_, sums_fd):
            self._number = self._layout.find(files, sums_fd, offset) if sums_fd >= 0 else 0
            begins = self._entry_before(sums_fd, self._number)
        #: The byte up to which everything was read.
        self.at = begins.end
        #: Records before that byte, when it is known.
        self._count: int | None = begins.records

    def end(self) -> Sum:
        """The last sound entry there is now."""
        with self._opened() as (_, sums_fd):
            return self._entry_before(sums_fd, self._how_many(sums_fd))

    def entry_before(self, byte: int) -> Sum:
        """The last entry that ends at or before a byte."""
        with self._opened() as (_, sums_fd):
            if sums_fd < 0:
                return EMPTY
            return self._entry_before(sums_fd, self._layout.find(self._files, sums_fd, byte))

    def read(self, stop: int | None) -> list[RecordBlock]:
        """The next blocks, about `BLOCK_BYTES`; nothing when there are none.

        `stop` is the length of a file that is no longer written; what lies before it and has no entry is
        looked at.
        """
        if stop is not None and self.at >= stop:
            return []
        with self._opened() as (fd, sums_fd):
            found = self._next_entries(sums_fd, stop)
            if not found:
                if stop is None:
                    return []
                begin, self.at, self._count = self.at, stop, None
                return [self._unvouched(fd, begin, stop)]
            end = found[-1].end
            data = self._files.pread(fd, end - self.at, self.at)
            blocks = self._blocks(fd, found, data)
            self.at = end
            return blocks

    def corrupt(self, block: RecordBlock) -> Corrupt:
        """The damage of a block, as an error."""
        length = block.end - block.begin
        error = Corrupt(self.path, block.begin, f"{length} damaged bytes of waiting messages")
        error.hint = "its neighbours are delivered; the bytes are kept beside the file when it is read"
        return error

    @contextmanager
    def _opened(self) -> Iterator[tuple[int, int]]:
        """The descriptors of the records and of their checksums, -1 without these: the records are there."""
        fd, sums_fd = self._files.open(self.path, write=False), -1
        try:
            try:
                sums_fd = self._files.open(self._sums_path, write=False)
            except FileNotFoundError:
                pass
            yield fd, sums_fd
        finally:
            self._files.close(fd)
            if sums_fd >= 0:
                self._files.close(sums_fd)

    def _how_many(self, sums_fd: int) -> int:
        return self._layout.how_many(self._files, sums_fd) if sums_fd >= 0 else 0

    def _entry_before(self, sums_fd: int, number: int) -> Sum:
        return EMPTY if sums_fd < 0 else self._layout.last_before(self._files, sums_fd, number)

    def _next_entries(self, sums_fd: int, stop: int | None) -> list[Sum]:
        """Sound entries of blocks that follow, enough for one read."""
        if sums_fd < 0:
            return []
        found: list[Sum] = []
        at, step = self.at, self._layout.entry_bytes
        while not found:
            data = self._files.pread(sums_fd, ENTRIES_READ * step, self._number * step)
            if len(data) < step:
                break
            for place, entry in enumerate(self._layout.entries(data)):
                if entry is None and stop is None and not any(self._layout.entries(data[place * step :])):
                    return found  # the last one there is: perhaps it is being written
                self._number += 1
                if entry is None or entry.begin < at or (stop is not None and entry.end > stop):
                    continue
                found.append(entry)
                at = entry.end
                if at - self.at >= BLOCK_BYTES:
                    break
        return found

    def _blocks(self, fd: int, found: list[Sum], data: bytes) -> list[RecordBlock]:
        """Sound neighbours as one block, damage and what has no checksum by itself."""
        base = at = begin = self.at
        view = memoryview(data)
        before, count = self._count, 0 if self._count is not None else None
        blocks: list[RecordBlock] = []

        def end_run() -> None:
            if at > begin:
                blocks.append(RecordBlock(begin, at, data[begin - base : at - base], count, self._has_rests))

        for entry in found:
            part = view[entry.begin - base : entry.end - base]
            if entry.begin > at:
                end_run()
                blocks.append(self._unvouched(fd, at, entry.begin))
                begin, before, count = entry.begin, None, None
            if crc32(part) != entry.crc or len(part) != entry.length:
                at = max(at, begin)
                end_run()
                blocks.append(
                    RecordBlock(entry.begin, entry.end, bytes(part), None, self._has_rests, is_sound=False)
                )
                begin, count = entry.end, 0
            else:
                count = count + entry.records - before if count is not None and before is not None else None
            at, before = entry.end, entry.records
        end_run()
        self._count = before
        return blocks

    def _unvouched(self, fd: int, begin: int, end: int) -> RecordBlock:
        """Bytes without a checksum: records, if they parse just so and their times ascend."""
        data = self._files.pread(fd, end - begin, begin)
        is_sound = len(data) == end - begin and are_records(data, 0, self._has_rests)
        return RecordBlock(begin, end, data, None, self._has_rests, is_sound)


def stored_states(folder: str, files: Files) -> list[FileState]:
    """The states as they are on disk, for a store that may only be read."""
    loaded = states.load(folder, files)
    return [] if loaded is None else list(fold(loaded.states, loaded.changes).values())


def records(folder: str, files: Files, found: Iterable[FileState]) -> Iterator[WaitingRecord]:
    """Every message from the read positions on; damage is left out (`damage` names it)."""
    for state in found:
        for _, block in _blocks_of(folder, files, state):
            if block.is_sound:
                for at, record in block.records(_record):
                    if at >= state.offset:
                        yield record


def damage(folder: str, files: Files, found: Iterable[FileState]) -> Iterator[Corrupt]:
    """Every damaged place from the read positions on."""
    for state in found:
        for reader, block in _blocks_of(folder, files, state):
            if not block.is_sound:
                yield reader.corrupt(block)


def count(folder: str, files: Files, found: Iterable[FileState]) -> int:
    """How many messages lie behind the read positions, by the counts of the checksums."""
    total = 0
    for state in found:
        try:
            reader = FileReader(folder, state.name, files, state.offset)
            total += reader.end().records - _finished(reader, state)
        except FileNotFoundError:
            continue
    return total


def _finished(reader: FileReader, state: FileState) -> int:
    """How many records lie before the read position: a count, and what of the block around it."""
    before = reader.entry_before(state.offset)
    if before.end == state.offset:
        return before.records
    found = [at for block in reader.read(None)[:1] if block.is_sound for at in block.records(_place)]
    return before.records + sum(at < state.offset for at in found)


def _blocks_of(folder: str, files: Files, state: FileState) -> Iterator[tuple[FileReader, RecordBlock]]:
    try:
        reader = FileReader(folder, state.name, files, state.offset)
        while blocks := reader.read(None if state.is_written else state.len):
            for block in blocks:
                yield reader, block
    except FileNotFoundError:
        return  # finished and removed since the states were read


def _record(
    due: int, rest: int, record_id: bytes, topic: str, attempts: int, data: bytes, at: int
) -> tuple[int, WaitingRecord]:
    return at, WaitingRecord(due, record_id, topic, attempts, data)


def _place(due: int, rest: int, record_id: bytes, topic: str, attempts: int, data: bytes, at: int) -> int:
    return at
