"""The waiting messages of a folder as they lie there, without locks and without taking any."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from penstock.checksum import crc32
from penstock.delay import checksums as sums
from penstock.delay import file_names as names
from penstock.delay import states as statefiles
from penstock.delay.checksums import ENTRIES_READ, ENTRY_BYTES, Sum
from penstock.delay.records import BLOCK_BYTES, Make, R, Record, decode
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
    is_sound: bool = True

    def records(self, make: Make[R]) -> list[R]:
        return decode(self.data, self.begin, self.expected, make)


class FileReader:
    """Reads a file of records block by block."""

    def __init__(self, folder: str, name: str, files: Files, offset: int) -> None:
        """Begin with the block that holds the byte `offset`. FileNotFoundError when the file is gone."""
        self.name = name
        self.path = names.data_path(folder, name)
        self._files = files
        self._sums_fd = -1
        self._fd = files.open(self.path, write=False)
        try:
            self._sums_fd = files.open(names.sums_path(folder, name), write=False)
        except FileNotFoundError:
            pass  # the records are still there
        except BaseException:
            self.close()
            raise
        self._number = sums.find(files, self._sums_fd, offset) if self._sums_fd >= 0 else 0
        begins = self._entry_before(self._number)
        #: The byte up to which everything was read.
        self.at = begins.end
        #: Records before that byte, when it is known.
        self._count: int | None = begins.records

    def close(self) -> None:
        fds, self._fd, self._sums_fd = (self._fd, self._sums_fd), -1, -1
        for fd in fds:
            if fd >= 0:
                self._files.close(fd)

    def end(self) -> Sum:
        """The last sound entry there is now."""
        if self._sums_fd < 0:
            return sums.EMPTY
        return self._entry_before(sums.how_many(self._files, self._sums_fd))

    def entry_before(self, byte: int) -> Sum:
        """The last entry that ends at or before a byte."""
        if self._sums_fd < 0:
            return sums.EMPTY
        return self._entry_before(sums.find(self._files, self._sums_fd, byte))

    def read(self, stop: int | None) -> list[RecordBlock]:
        """The next blocks, about `BLOCK_BYTES`; nothing when there are none.

        `stop` is the length of a file that is no longer written; what lies before it and has no entry is
        looked at.
        """
        if stop is not None and self.at >= stop:
            return []
        found = self._next_entries(stop)
        if not found:
            if stop is None:
                return []
            begin, self.at, self._count = self.at, stop, None
            return [self._unvouched(begin, stop)]
        end = found[-1].end
        data = self._files.pread(self._fd, end - self.at, self.at)
        pieces = self._pieces(found, data)
        self.at = end
        return pieces

    def corrupt(self, piece: RecordBlock) -> Corrupt:
        length = piece.end - piece.begin
        error = Corrupt(self.path, piece.begin, f"{length} damaged bytes of waiting messages")
        error.hint = "its neighbours are handed out; the bytes are kept beside the file when it is read"
        return error

    def _next_entries(self, stop: int | None) -> list[Sum]:
        """Sound entries of blocks that follow, enough for one read."""
        if self._sums_fd < 0:
            return []
        found: list[Sum] = []
        at = self.at
        while not found:
            data = self._files.pread(self._sums_fd, ENTRIES_READ * ENTRY_BYTES, self._number * ENTRY_BYTES)
            if len(data) < ENTRY_BYTES:
                break
            for place, entry in enumerate(sums.entries(data)):
                if entry is None and stop is None and not any(sums.entries(data[place * ENTRY_BYTES :])):
                    return found  # the last one there is: perhaps it is being written
                self._number += 1
                if entry is None or entry.begin < at or (stop is not None and entry.end > stop):
                    continue
                found.append(entry)
                at = entry.end
                if at - self.at >= BLOCK_BYTES:
                    break
        return found

    def _pieces(self, found: list[Sum], data: bytes) -> list[RecordBlock]:
        """Sound neighbours as one piece, damage and what has no checksum by itself."""
        base = at = begin = self.at
        view = memoryview(data)
        before, count = self._count, 0 if self._count is not None else None
        pieces: list[RecordBlock] = []

        def end_run() -> None:
            if at > begin:
                pieces.append(RecordBlock(begin, at, data[begin - base : at - base], count))

        for entry in found:
            block = view[entry.begin - base : entry.end - base]
            if entry.begin > at:
                end_run()
                pieces.append(self._unvouched(at, entry.begin))
                begin, before, count = entry.begin, None, None
            if crc32(block) != entry.crc or len(block) != entry.length:
                at = max(at, begin)
                end_run()
                pieces.append(RecordBlock(entry.begin, entry.end, bytes(block), None, is_sound=False))
                begin, count = entry.end, 0
            else:
                count = count + entry.records - before if count is not None and before is not None else None
            at, before = entry.end, entry.records
        end_run()
        self._count = before
        return pieces

    def _unvouched(self, begin: int, end: int) -> RecordBlock:
        """Bytes without a checksum: records, if they parse just so and their times ascend."""
        data = self._files.pread(self._fd, end - begin, begin)
        piece = RecordBlock(begin, end, data, None)
        try:
            dues = piece.records(lambda due, rest, *_: due - rest)
        except ValueError:
            dues = []
        is_sound = bool(dues) and dues == sorted(dues) and len(data) == end - begin
        return piece._replace(is_sound=is_sound)

    def _entry_before(self, number: int) -> Sum:
        """The last sound entry before one; its block ends where that one's begins."""
        for earlier in range(number - 1, -1, -1):
            entry = sums.read(self._files, self._sums_fd, earlier)
            if entry is not None:
                return entry
        return sums.EMPTY


def states(folder: str, files: Files) -> list[FileState]:
    """The states as they are on disk, for whoever may only read."""
    loaded = statefiles.load(folder, files)
    return [] if loaded is None else list(fold(loaded.states, loaded.changes).values())


def records(folder: str, files: Files, found: Iterable[FileState]) -> Iterator[Record]:
    """Every message from the read positions on; damage is left out (`damage` names it)."""
    for state in found:
        for _, piece in _pieces(folder, files, state):
            if piece.is_sound:
                for at, record in piece.records(_record):
                    if at >= state.offset:
                        yield record


def damage(folder: str, files: Files, found: Iterable[FileState]) -> Iterator[Corrupt]:
    """Every damaged place from the read positions on."""
    for state in found:
        for reader, piece in _pieces(folder, files, state):
            if not piece.is_sound:
                yield reader.corrupt(piece)


def count(folder: str, files: Files, found: Iterable[FileState]) -> int:
    """How many messages lie behind the read positions, by the counts of the checksums."""
    total = 0
    for state in found:
        try:
            reader = FileReader(folder, state.name, files, state.offset)
        except FileNotFoundError:
            continue
        try:
            total += reader.end().records - _finished(reader, state)
        finally:
            reader.close()
    return total


def _finished(reader: FileReader, state: FileState) -> int:
    """How many records lie before the read position: a count, and what of the block around it."""
    before = reader.entry_before(state.offset)
    if before.end == state.offset:
        return before.records
    found = [at for piece in reader.read(None)[:1] if piece.is_sound for at in piece.records(_place)]
    return before.records + sum(at < state.offset for at in found)


def _pieces(folder: str, files: Files, state: FileState) -> Iterator[tuple[FileReader, RecordBlock]]:
    try:
        reader = FileReader(folder, state.name, files, state.offset)
    except FileNotFoundError:
        return  # finished and removed since the states were read
    try:
        while pieces := reader.read(None if state.is_written else state.len):
            for piece in pieces:
                yield reader, piece
    finally:
        reader.close()


def _record(
    due: int, rest: int, record_id: bytes, topic: str, attempts: int, data: bytes, at: int
) -> tuple[int, Record]:
    return at, Record(due, record_id, topic, attempts, data)


def _place(due: int, rest: int, record_id: bytes, topic: str, attempts: int, data: bytes, at: int) -> int:
    return at
