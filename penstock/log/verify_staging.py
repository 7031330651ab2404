"""Checking what transactions have staged in a partition's folder: committed, at work, or left behind."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress

from penstock.checksum import crc32
from penstock.errors import Corrupt
from penstock.findings import Finding, damage, note
from penstock.log.folder import Folder
from penstock.log.frame_header import read_head
from penstock.log.staging import STAGED, PlacedPiece, is_missing

_NOT_YET = "a committed transaction is not yet brought in: the next program that comes does it"
_MISSING = "a committed transaction's file is missing: what was in it is lost"
_DAMAGED = "messages of a committed transaction are damaged, and are not yet brought in"


def committed(folder: Folder, piece: PlacedPiece, end: int, state: str) -> Iterator[Finding]:
    """What a committed transaction has still to append behind `end`: it must be there, and sound.

    `state` is the file that has what is not in a file of its own.
    """
    if piece.stop <= end:
        return
    path = state if piece.file is None else folder.name(piece.file)
    if is_missing(folder, piece):
        yield damage(path, None, _MISSING, piece.base, piece.stop)
        return
    yield note(path, None, _NOT_YET, piece.base, piece.stop)
    if piece.file is not None and folder.files.exists(path):
        yield from _damaged(folder, piece, path)


def _damaged(folder: Folder, piece: PlacedPiece, path: str) -> Iterator[Finding]:
    """Frames of a staged file whose bodies do not fit; their headers are in `state.db`."""
    fd = folder.files.open(path, write=False)
    try:
        for each in piece.frames():
            head = read_head(each.header)
            body_at = each.byte + len(each.header)
            if head is None or crc32(folder.files.pread(fd, head.body_length, body_at)) != head.body_crc:
                yield damage(path, body_at, _DAMAGED, each.base, each.base + each.count)
    except Corrupt as error:
        yield damage(error.path, error.byte, str(error.args[0]), piece.base, piece.stop)
    finally:
        folder.files.close(fd)


def abandoned(folder: Folder, needed: Collection[str | None]) -> Iterator[Finding]:
    """What transactions have staged and not committed: they are at work, or were killed."""
    for name in sorted(folder.files.listdir(folder.path)):
        if name.endswith(STAGED) and name not in needed:
            yield note(
                folder.name(name), None,
                f"{_size(folder, name)} bytes that no transaction has committed: "
                "it is at work, or was killed (then they are removed after a day)",
            )  # fmt: skip


def _size(folder: Folder, name: str) -> int:
    with suppress(FileNotFoundError):  # its transaction ended meanwhile
        fd = folder.files.open(folder.name(name), write=False)
        try:
            return folder.files.size(fd)
        finally:
            folder.files.close(fd)
    return 0
