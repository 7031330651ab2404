"""`state.db`: one SQLite file in WAL mode, written by one process at a time.

Every write, checkpoint and close happens under flock(state.lock); SQLite's own busy handler starves
writers when many compete. No other code may open `state.db`, `-wal` or `-shm`: a plain open and
close of them in this process would drop the locks SQLite holds.

`synchronous` is NORMAL for positions (the last few may vanish with the power, which only repeats
messages) and FULL for everything that must not be forgotten.
"""

from __future__ import annotations

import logging
import os
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from penstock.errors import (
    Closed,
    DataError,
    NotAStore,
    OutcomeUnknown,
    PenstockError,
    ReadOnly,
    Unavailable,
    UnknownFormat,
)
from penstock.files import Files
from penstock.locks import STATE_RANK, FileLock, pause_at_fork
from penstock.state.change_count import ChangeCount
from penstock.state.read_only import ReadOnlyConnection, is_of_disk, refusal
from penstock.state.schema import ADDED, APPLICATION_ID, FORMAT, READABLE, SCHEMA

logger = logging.getLogger("penstock.state")

#: SQL and its arguments.
Statement = tuple[str, Sequence[Any]]


class Database:
    """The open `state.db` of one store in one process; shared by its threads."""

    def __init__(self, path: str, files: Files, *, create: bool, read_only: bool) -> None:
        self.path = path
        self._mutex = threading.RLock()
        self._read_only = read_only
        self._closed = False
        self._reader: ReadOnlyConnection | None = None
        #: A cursor that nobody uses now: making one takes a fifth of a quick statement's time.
        self._spare: sqlite3.Cursor | None = None
        self.changes = ChangeCount(files, None)
        if read_only:
            self._reader = ReadOnlyConnection(path)
        else:
            self.lock = FileLock(
                files, os.path.join(os.path.dirname(path), "state.lock"), order=(STATE_RANK, 0, 0),
                holder=lambda: None,
            )  # fmt: skip
            self.changes = ChangeCount(files, self.lock)
            with self.lock:
                self._connection = _connect(path)
                try:
                    self._prepare(create)
                except BaseException:
                    self._connection.close()
                    raise
        _require_format(path, self._one("PRAGMA application_id")[0], self._one("PRAGMA user_version")[0])
        pause_at_fork(self)

    @property
    def store_id(self) -> str:
        """The store's identity, given when it was created."""
        found = self.row("SELECT value FROM meta WHERE name = 'store_id'")
        if found is None:
            raise DataError(f"{self.path} has lost the store's id", hint="penstock repair finds it again")
        return str(found[0])

    def set_store_id(self, store_id: str) -> None:
        """Make a rebuilt database that of the store it replaces."""
        with self.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO meta VALUES ('store_id', ?)", (store_id,))

    def rows(self, sql: str, arguments: Sequence[Any] = ()) -> list[Any]:
        """Return all rows of a query."""
        with self._mutex:
            try:
                if self._reader is not None:
                    return self._reader.rows(sql, arguments)
                return self._connection.execute(sql, arguments).fetchall()
            except sqlite3.DatabaseError as error:
                raise self._explained(error) from error

    def row(self, sql: str, arguments: Sequence[Any] = ()) -> Any:
        """The first row, or None."""
        with self._mutex:
            try:
                if self._reader is not None:
                    return next(iter(self._reader.rows(sql, arguments)), None)
                # Taken, so that a signal handler that reads meanwhile gets another one.
                cursor, self._spare = self._spare or self._connection.cursor(), None
                found = cursor.execute(sql, arguments).fetchone()
                if cursor.fetchone() is None:  # else the statement is not over, and ends with its cursor
                    self._spare = cursor
                return found
            except sqlite3.DatabaseError as error:
                raise self._explained(error) from error

    def has_table(self, name: str) -> bool:
        """Whether the format of this store has a table; only a read-only one may lack any."""
        return self.row("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)) is not None

    def quick(self, sql: str, arguments: Sequence[Any], changes: ChangeCount | None = None) -> int:
        """Run one statement as a transaction without waiting for the disk; return how many rows changed.

        `changes` is given where others may remember what this changes.
        """
        if self._read_only:
            self._refuse_write()
        try:
            self.lock.acquire()
            try:
                with self._mutex:
                    if changes is not None:
                        changes.begin_change()
                    cursor, self._spare = self._spare or self._connection.cursor(), None
                    changed = cursor.execute(sql, arguments).rowcount
                    self._spare = cursor
                    if changes is not None:
                        changes.end_change()
                    return changed
            finally:
                self.lock.release()
        except sqlite3.DatabaseError as error:
            raise self._explained(error) from error
        except KeyboardInterrupt:
            self.lock.drop()
            raise

    def quick_all(self, first: Statement, *others: Statement) -> bool:
        """Run statements as one transaction, not synced; none of them unless the first changes a row."""
        self._refuse_write()
        try:
            self.lock.acquire()
            try:
                with self._mutex:
                    return self._execute_all(first, others)
            finally:
                self.lock.release()
        except sqlite3.DatabaseError as error:
            raise self._explained(error) from error
        except KeyboardInterrupt:
            self.lock.drop()
            raise

    def _execute_all(self, first: Statement, others: Sequence[Statement]) -> bool:
        execute = self._connection.execute
        if self._connection.in_transaction:  # Ctrl-C came twice
            execute("ROLLBACK")
        try:
            execute("BEGIN IMMEDIATE")
            if not execute(*first).rowcount:
                return False
            for each in others:
                execute(*each)
            execute("COMMIT")
            return True
        finally:
            if self._connection.in_transaction:
                execute("ROLLBACK")

    @contextmanager
    def transaction(
        self, *, after: Callable[[], None] | None = None, durable: bool = True
    ) -> Iterator[sqlite3.Connection]:
        """Run several statements, all or none; they are on disk when this returns unless `durable=False`.

        `after` is called behind the commit while the lock is still held, so that nobody acts in between.
        """
        try:
            with self._write_lock():
                yield from self._statements(after, durable)
        except KeyboardInterrupt:
            self.lock.drop()
            raise

    def _statements(self, after: Callable[[], None] | None, durable: bool) -> Iterator[sqlite3.Connection]:
        connection = self._connection
        if connection.in_transaction:  # Ctrl-C came twice
            connection.execute("ROLLBACK")
        if durable:
            connection.execute("PRAGMA synchronous = FULL")
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            try:
                connection.execute("COMMIT")
            except sqlite3.OperationalError as error:
                if durable:
                    self._make_certain(error)
                raise
            if after is not None:
                after()
        finally:
            if connection.in_transaction:  # it failed, or Ctrl-C came
                connection.execute("ROLLBACK")
            if durable:
                connection.execute("PRAGMA synchronous = NORMAL")

    def _make_certain(self, error: sqlite3.OperationalError) -> None:
        """Write over what a commit that failed may have left in SQLite's log, or say that nobody knows.

        Its frames may be on the disk, and a restart would take them for a commit. The next commit is written
        in their place: once that one is durable, they are gone for good.
        """
        connection = self._connection
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT OR REPLACE INTO meta VALUES ('synced', hex(randomblob(4)))")
            connection.execute("COMMIT")
        except sqlite3.DatabaseError:
            raise OutcomeUnknown(
                f"{self.path}: the disk failed during a commit ({error}): it may turn out to have happened",
                hint="look at the disk, open the store again, and look whether it is there",
            ) from error

    def copy_to(self, path: str) -> None:
        """Write the database as it is now to a new file, also while others change it."""
        try:
            with self._mutex, closing(sqlite3.connect(path)) as copy:  # a fork waits for the mutex
                if self._reader is not None:
                    self._reader.copy_to(copy)
                else:
                    self._connection.backup(copy)
        except sqlite3.DatabaseError as error:
            raise self._explained(error) from error

    def check(self) -> list[str]:
        """What SQLite finds wrong with the file; empty when nothing."""
        return [str(found[0]) for found in self.rows("PRAGMA integrity_check") if found[0] != "ok"]

    def close(self) -> None:
        """Close the connection and the lock file; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        if self._reader is not None:
            self._reader.close()
            return
        with self.lock, self._mutex:
            self._connection.close()
        self.changes.close()
        self.lock.close()

    def before_fork(self) -> None:
        """Close the connection for the time of a fork.

        SQLite notes per process which locks it has on a file. A child would inherit the notes without
        the locks, open the same file, and commit to a log that the parent removes when it closes.
        """
        self._mutex.acquire()
        self._spare = None
        if not self._closed:
            (self._reader or self._connection).close()

    def after_fork_in_parent(self) -> None:
        """Connect anew: SQLite's connections are closed around a fork."""
        try:
            if self._reader is not None and not self._closed:
                self._reader = ReadOnlyConnection(self.path)
            elif not self._closed:
                self._connection = _connect(self.path)
        except PenstockError as error:  # its folder is gone, say; the next call raises it
            self._closed = True
            logger.error("%s cannot be opened again after a fork: %s", self.path, error)
        finally:
            self._mutex.release()

    def abandon(self) -> None:
        """Close in a forked child, where the mutex is the parent's."""
        self._mutex = threading.RLock()
        self._closed = True
        self.changes.close()

    @contextmanager
    def _write_lock(self) -> Iterator[None]:
        self._refuse_write()
        with self.lock, self._mutex:
            try:
                yield
            except sqlite3.IntegrityError:
                raise
            except sqlite3.DatabaseError as error:
                raise self._explained(error) from error

    def _refuse_write(self) -> None:
        refuse_read_only(self._read_only)

    def _explained(self, error: sqlite3.DatabaseError) -> PenstockError:
        if self._closed:
            return Closed(f"{self.path} is closed", hint="open the store again")
        if isinstance(error, sqlite3.OperationalError):
            return Unavailable(f"{self.path}: {error}", hint="try again")
        return DataError(f"{self.path} is damaged: {error}", hint="penstock verify looks closer")

    def _one(self, sql: str) -> Any:
        try:
            if self._reader is not None:
                return self._reader.rows(sql)[0]
            return self._connection.execute(sql).fetchone()
        except sqlite3.DatabaseError as error:
            raise refusal(self.path, error) from error

    def _prepare(self, create: bool) -> None:
        """Make the tables, or those that an older format lacks. The lock is held."""
        if create and not self._one("PRAGMA application_id")[0]:
            self._create()
        else:
            self._upgrade(self._one("PRAGMA user_version")[0])

    def _create(self) -> None:
        self._run(
            f"{SCHEMA} {' '.join(ADDED.values())}"
            f"INSERT INTO meta VALUES ('store_id', '{secrets.token_hex(16)}');"
            f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT};"
        )

    def _upgrade(self, version: int) -> None:
        """Add what a store of an older format lacks; a newer or foreign one is refused later."""
        missing = [script for number, script in ADDED.items() if number > version]
        if version in READABLE and missing:
            self._run(f"{' '.join(missing)} PRAGMA user_version = {FORMAT};")

    def _run(self, script: str) -> None:
        """Run several statements, all or none; they are on disk when this returns. The lock is held."""
        try:
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.executescript(f"BEGIN IMMEDIATE; {script} COMMIT;")
            self._connection.execute("PRAGMA synchronous = NORMAL")
        except sqlite3.DatabaseError as error:
            raise self._explained(error) from error


def refuse_read_only(is_read_only: bool) -> None:
    """Raise when a store that may only be read is asked to change something."""
    if is_read_only:
        raise ReadOnly("the store was opened with read_only=True", hint="open it without")


def refuse_stranger(path: str) -> None:
    """Raise unless the file is a store's database, or nothing yet; leave it as it is.

    Asked before anything is opened for writing, which would already change a database that is not ours.
    """
    reader = ReadOnlyConnection(path)
    try:
        (application,) = reader.rows("PRAGMA application_id")[0]
        (version,) = reader.rows("PRAGMA user_version")[0]
        (things,) = reader.rows("SELECT count(*) FROM sqlite_master")[0]
    except sqlite3.DatabaseError as error:
        raise refusal(path, error) from error
    finally:
        reader.close()
    if application or things:
        _require_format(path, application, version)


def _require_format(path: str, application: int, version: int) -> None:
    if application != APPLICATION_ID:
        raise NotAStore(f"{path} is not a store's database")
    if version not in READABLE:
        raise UnknownFormat(
            f"{os.path.dirname(path)} has format {version}, this Penstock knows {FORMAT}",
            hint="upgrade Penstock",
        )


def _connect(path: str) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
        # Positions are small: so is what a commit writes, and the file is synced less often.
        connection.execute("PRAGMA page_size = 1024")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA wal_autocheckpoint = 8000")
        connection.execute("PRAGMA synchronous = NORMAL")
    except sqlite3.OperationalError as error:
        if is_of_disk(error):
            raise refusal(path, error) from error
        raise ReadOnly(
            f"{path} cannot be opened for writing: {error}", hint="read_only=True may do"
        ) from error
    except sqlite3.DatabaseError as error:
        raise refusal(path, error) from error
    return connection
