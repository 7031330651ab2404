"""Reading `state.db` without leaving a trace in the folder.

SQLite makes `-wal` and `-shm` beside a database in WAL mode also for those who only read. While a
writer has it open they are there, and the reader joins in. When there is none, the file is complete
without them: it is read as it lies ("immutable"), and once more whenever it has changed meanwhile.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from penstock.errors import DataError, NotAStore, PenstockError, Unavailable

#: A reader that meets a change in the middle of a query reads again; a writer is quiet sooner than this.
_READ_AGAIN = 100

_Stamp = tuple[int, int, int]
T = TypeVar("T")


class ReadOnlyConnection:
    """Answers queries from the file as it is now; creates nothing, changes nothing."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._alone = False
        self._connection = self._connect()

    def rows(self, sql: str, arguments: Sequence[Any] = ()) -> list[Any]:
        """What the query finds, all of it from one state of the file."""
        return self._steadily(lambda: self._connection.execute(sql, arguments).fetchall())

    def copy_to(self, copy: sqlite3.Connection) -> None:
        """Make `copy` the database as it is now."""
        self._steadily(lambda: self._connection.backup(copy))

    def _steadily(self, read: Callable[[], T]) -> T:
        """The result of a read during which the file did not change."""
        for _ in range(_READ_AGAIN):
            if self._is_stale():
                self.close()
                self._connection = self._connect()
            try:
                found = read()
            except sqlite3.DatabaseError:
                if self._is_stale():
                    continue
                raise
            if not self._is_stale():
                return found
        raise Unavailable(f"{self._path} changes faster than it can be read", hint="try again")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _connect(self) -> sqlite3.Connection:
        """Join the writers if there are any; else read the file as it lies there."""
        self._stamp = self._look()
        if self._stamp is None:
            connection = _opened(self._path, "mode=ro")
            if connection is not None:
                return connection
            self._alone = True  # SQLite's own lock files cannot be made here
            self._stamp = self._look()
        connection = _opened(self._path, "mode=ro&immutable=1")
        if connection is None:
            raise NotAStore(
                f"{self._path} cannot be read as a store's database", hint="look at its owner and rights"
            )
        return connection

    def _is_stale(self) -> bool:
        """Whether the file is not what this connection takes it for; never while it is joined to writers."""
        return self._stamp is not None and self._stamp != self._look()

    def _look(self) -> _Stamp | None:
        """Return a stamp that a later state of the file does not have; None if writers are there to join."""
        return None if not self._alone and os.path.exists(self._path + "-wal") else _stamp(self._path)


def refusal(path: str, error: sqlite3.DatabaseError) -> PenstockError:
    """What it means that the file cannot be opened: it is something else, damaged, or the disk fails."""
    if is_of_disk(error):
        return Unavailable(f"{path}: {error}", hint="look at the disk, then try again")
    if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
        return NotAStore(f"{path} is not a store's database: {error}")
    return DataError(f"{path} is damaged: {error}", hint="penstock verify looks closer")


def is_of_disk(error: sqlite3.DatabaseError) -> bool:
    """Whether SQLite says that a disk is full, or failed to read or write."""
    return getattr(error, "sqlite_errorname", "").startswith(("SQLITE_FULL", "SQLITE_IOERR"))


def _stamp(path: str) -> _Stamp:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return 0, 0, 0
    return found.st_ino, found.st_size, found.st_mtime_ns


def _opened(path: str, mode: str) -> sqlite3.Connection | None:
    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    try:
        connection = sqlite3.connect(
            f"file:{quoted}?{mode}", uri=True, isolation_level=None, check_same_thread=False, timeout=30
        )
    except sqlite3.OperationalError:
        return None
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        return None
    except sqlite3.DatabaseError as error:
        connection.close()
        raise refusal(path, error) from error
    return connection
