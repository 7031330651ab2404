"""Whether what a process remembers of `state.db` still holds, told without asking SQLite.

The first eight bytes of `state.lock` count the changes. Whoever changes something that others may remember
holds the lock, makes the count odd, commits, and makes it even again. So what was read between two looks at
the same even count holds for as long as that count stands. A writer that is killed in between leaves an odd
one, and nothing is remembered until the next change.

The count lies in memory that all processes share, as SQLite's own index of its log does (`state.db-shm`).
"""

from __future__ import annotations

from penstock.files import Files, OpenFile
from penstock.locks import FileLock

_BYTES = 8
#: A count that nobody can see: there is none yet, or the store is closed.
UNSEEN = 1
_UNSEEN = memoryview(UNSEEN.to_bytes(_BYTES, "little")).cast("Q")


class ChangeCount:
    """The count of one store, as one process sees it."""

    __slots__ = ("_files", "_lock", "_mapped")

    def __init__(self, files: Files, lock: FileLock | None) -> None:
        """Who only reads has no lock to look at, sees no count, and so remembers nothing."""
        self._files = files
        self._lock = lock
        self._mapped = _UNSEEN

    def now(self) -> int:
        """Return the count; an odd one tells that nothing may be remembered."""
        return self._mapped[0]

    def look(self) -> int:
        """Return the count, which may be there since a moment only."""
        if self._mapped is _UNSEEN:
            file = self._file()
            if file is not None and self._files.size(file.fd) >= _BYTES:
                self._map(file)
        return self._mapped[0]

    def begin_change(self) -> None:
        """Tell that something is about to change. The lock is held."""
        if self._mapped is _UNSEEN:
            file = self._file()
            assert file is not None, "a lock that is held is open"
            if self._files.size(file.fd) < _BYTES:
                self._files.pwrite(file.fd, bytes(_BYTES), 0)
            self._map(file)
        self._mapped[0] = (self._mapped[0] + 1) | 1

    def end_change(self) -> None:
        """Tell that it has changed. The lock is held."""
        self._mapped[0] += 1

    def close(self) -> None:
        """Have whoever remembers something ask the database, which says that it is closed."""
        self._mapped = _UNSEEN

    def _file(self) -> OpenFile | None:
        """Return the lock's file, open for as long as the caller has it; None when the store is closed."""
        return None if self._lock is None else self._lock.file

    def _map(self, file: OpenFile) -> None:
        self._mapped = memoryview(self._files.map(file.fd, _BYTES, write=True)).cast("Q")
