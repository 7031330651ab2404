"""Chains of older stores, taken over: their files are read to the end, and never written again.

There each chain had a lock of its own, `<ΔT>/lock`, with the boot and the number of the file that is
written. A process of the older version that is still running finds 0 there, asks the states, and is told
that they are of a newer version.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable

from penstock.delay import file_repair
from penstock.delay.file_names import made
from penstock.delay.states import FileState
from penstock.files import Files
from penstock.locks import RUNG_RANK, FileLock

_RECORD = struct.Struct("<QQ")


def taken_over(folder: str, files: Files, written: Iterable[FileState]) -> list[tuple[str, int]]:
    """(file, its length) of those that were written, each cut to its last sound block."""
    ends: list[tuple[str, int]] = []
    for state in written:
        path = os.path.join(folder, made(state.name).chain.folder, file_repair.OLD_LOCK)
        if not files.exists(os.path.dirname(path)):
            ends.append((state.name, 0))  # reading reports that it is missing
            continue
        lock = FileLock(files, path, order=(RUNG_RANK, 0, 0), holder=lambda: None)
        try:
            with lock.held():
                ends.append((state.name, file_repair.cut_torn_tail(folder, state.name, files)))
                files.pwrite(lock.fd, _RECORD.pack(files.boot(), 0), 0)
        finally:
            lock.close()
    return ends
