"""The waiting messages of a folder as they lie there, without locks and without taking any."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.delay import statefiles
from penstock.delay.reading import FileReader, Piece
from penstock.delay.records import Record
from penstock.delay.states import FileState, fold
from penstock.errors import Corrupt
from penstock.files import Files


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


def _pieces(folder: str, files: Files, state: FileState) -> Iterator[tuple[FileReader, Piece]]:
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
