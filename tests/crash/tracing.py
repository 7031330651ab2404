"""Files that do everything for real and write down each call that changes something.

The calls, with `mark`s of what was promised to whom in between, are what `Disk` replays. Nodes are
numbers given to files and folders when they are made, so that a rename moves no bytes.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock import Files
from tests.crash.disk import ROOT, Call
from tests.kit.stores import Database

FIRST_BOOT = 1


class BootFiles(Files):
    """The system's files, on a machine that was started at a boot of our choice."""

    def __init__(self, boot: int) -> None:
        self._boot = boot

    def boot(self) -> int:
        return self._boot

    def free_share(self, path: str) -> float:
        return 1.0


class Trace:
    """The calls of a run, in order."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.mutex = threading.RLock()

    def add(self, *call: Any) -> None:
        self.calls.append(call)

    def mark(self, *mark: Any, at: int | None = None) -> None:
        """Note a promise; `at` puts it before something that has already begun."""
        with self.mutex:
            self.calls.insert(len(self.calls) if at is None else at, ("mark", *mark))

    def __len__(self) -> int:
        return len(self.calls)


class TracingFiles(BootFiles):
    """Real files below `root`; each call that changes something is added to `trace`.

    `nodes` are the numbers of what lies there already, by path.
    """

    def __init__(
        self, root: str, trace: Trace, *, boot: int = FIRST_BOOT, nodes: dict[str, int] | None = None
    ) -> None:
        super().__init__(boot)
        self._trace = trace
        self._nodes = {root: ROOT} | {os.path.join(root, path): node for path, node in (nodes or {}).items()}
        self._last = max(self._nodes.values())
        self._open: dict[int, int] = {}
        #: Asked before each sync; True makes it fail.
        self.fails: Callable[[str], bool] = lambda path: False

    # What changes something.

    def open(self, path: str, *, create: bool = False, write: bool = True, exclusive: bool = False) -> int:
        with self._trace.mutex:
            made = create and not os.path.exists(path)
            fd = super().open(path, create=create, write=write, exclusive=exclusive)
            if made:
                self._link("create", path)
            self._open[fd] = self._nodes[path]
            return fd

    def close(self, fd: int) -> None:  # type: ignore[override]
        with self._trace.mutex:
            self._open.pop(fd, None)
            os.close(fd)

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, at: int) -> int:
        with self._trace.mutex:
            self._trace.add("write", self._open[fd], at, bytes(data))
            return super().pwrite(fd, data, at)

    def pwritev(self, fd: int, parts: list[bytes | bytearray | memoryview], at: int) -> int:
        with self._trace.mutex:
            self._trace.add("write", self._open[fd], at, b"".join(parts))
            return super().pwritev(fd, parts, at)

    def truncate(self, fd: int, length: int) -> None:  # type: ignore[override]
        with self._trace.mutex:
            self._trace.add("truncate", self._open[fd], length)
            os.ftruncate(fd, length)

    def allocate(self, fd: int, at: int, length: int) -> None:
        with self._trace.mutex:
            if at + length > self.size(fd):
                self._trace.add("truncate", self._open[fd], at + length)
            super().allocate(fd, at, length)

    def sync(self, fd: int) -> None:
        with self._trace.mutex:
            node = self._open[fd]
            if self.fails(next(path for path, each in self._nodes.items() if each == node)):
                self._trace.add("sync_failed", node)
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            self._trace.add("sync", node)
            super().sync(fd)

    def sync_dir(self, path: str) -> None:
        with self._trace.mutex:
            self._trace.add("sync_folder", self._nodes[path])
            super().sync_dir(path)

    def rename(self, path: str, new_path: str) -> None:  # type: ignore[override]
        with self._trace.mutex:
            node = self._nodes[path]
            folder, name = self._place(path)
            new_folder, new_name = self._place(new_path)
            assert folder == new_folder, "no rename crosses folders"
            self._trace.add("rename", folder, name, new_name, node)
            os.rename(path, new_path)
            for inside in [p for p in self._nodes if p == path or p.startswith(path + "/")]:
                self._nodes[new_path + inside[len(path) :]] = self._nodes.pop(inside)

    def unlink(self, path: str) -> None:  # type: ignore[override]
        with self._trace.mutex:
            os.unlink(path)
            self._trace.add("remove", *self._place(path))
            self._nodes.pop(path, None)

    def remove_dir(self, path: str) -> None:  # type: ignore[override]
        with self._trace.mutex:
            os.rmdir(path)
            self._trace.add("remove", *self._place(path))
            self._nodes.pop(path, None)

    def make_dirs(self, path: str) -> None:
        with self._trace.mutex:
            if not os.path.isdir(path):
                self.make_dirs(os.path.dirname(path))
                os.mkdir(path)
                self._link("make_folder", path)

    def _link(self, what: str, path: str) -> int:
        self._last += 1
        self._trace.add(what, *self._place(path), self._last)
        self._nodes[path] = self._last
        return self._last

    def _place(self, path: str) -> tuple[int, str]:
        folder, name = os.path.split(path)
        return self._nodes[folder], name


@contextmanager
def traced_commits(trace: Trace) -> Iterator[None]:
    """Note each commit of any `state.db` opened meanwhile, with a copy of the whole file."""
    create, quick, transaction = Database._create, Database.quick, Database.transaction

    def note(database: Database, full: bool) -> None:
        with database._mutex:
            snapshot = database._connection.serialize()
        with trace.mutex:
            trace.add("commit", full, snapshot)

    def traced_create(database: Database) -> None:
        create(database)
        note(database, full=True)

    def traced_quick(database: Database, sql: str, arguments: Any) -> int:
        changed = quick(database, sql, arguments)
        note(database, full=False)
        return changed

    def traced_transaction(
        database: Database, *, after: Callable[[], None] | None = None, durable: bool = True
    ) -> Any:
        def noted() -> None:
            note(database, full=durable)
            if after is not None:
                after()

        return transaction(database, after=noted, durable=durable)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "_create", traced_create)
        patch.setattr(Database, "quick", traced_quick)
        patch.setattr(Database, "transaction", traced_transaction)
        yield
