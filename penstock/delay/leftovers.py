"""Files that no state names: what a process that died left behind, or what the states forgot.

Numbers in names grow with the states. A file whose number the states have passed was being made or removed
when its process died: nothing in it waits. A later one that holds sound records was lost from the states by
damage: it is taken over, from its beginning, so that messages come again rather than not at all.
"""

from __future__ import annotations

import os
from collections.abc import Container
from contextlib import suppress
from typing import NamedTuple

from penstock.delay import names, sums
from penstock.files import Files


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


def found(folder: str, files: Files) -> list[tuple[str, names.Made]]:
    """All files of records, in the order in which they were made."""
    every: list[tuple[str, names.Made]] = []
    for delay in files.listdir(folder):
        with suppress(NotADirectoryError):
            each = ((name, names.parse(name)) for name in files.listdir(os.path.join(folder, delay)))
            every += [
                (name, made) for name, made in each if made and names.delay_name(made.delay_ms) == delay
            ]
    return sorted(every, key=lambda pair: pair[1].number)


def look(folder: str, files: Files, known: Container[str], last_number: int) -> Remains:
    adopt: list[Adopted] = []
    remove: list[str] = []
    for name, made in found(folder, files):
        if name in known:
            continue
        adopted = _sound(folder, files, name) if made.number > last_number else None
        if adopted is not None:
            adopt.append(adopted)
        else:
            remove.append(name)
    return Remains(adopt, remove)


def remove(folder: str, files: Files, name: str) -> None:
    """Remove a file and its checksums; some of it may be gone already."""
    for path in (names.sums_path(folder, name), names.data_path(folder, name)):
        with suppress(FileNotFoundError):
            files.unlink(path)


def _sound(folder: str, files: Files, name: str) -> Adopted | None:
    """What there is in a file without a state; None when it holds nothing."""
    try:
        fd = files.open(names.sums_path(folder, name), write=False)
    except FileNotFoundError:
        return None
    try:
        data = files.pread(fd, files.size(fd), 0)
    finally:
        files.close(fd)
    sound = [entry for entry in sums.entries(data) if entry is not None]
    if not sound:
        return None
    # `due` is of a block's last record, so the delay of the whole first block may lie before it.
    return Adopted(name, sound[-1].end, 0 if sound[0].records > 1 else sound[0].due)
