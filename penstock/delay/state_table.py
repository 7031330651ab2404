"""The states of all files of one folder, as one process knows them, and how it changes them.

Changes are appended to `states.log` under `states.lock`, after taking in what others appended. The lock
file holds the generation of the log: a snapshot replaces the log, and who has the old one open sees by it
that it must open the new. A change that is not synced may be lost with the power: for shifts of the read
position that means messages come again, so those are not synced; all others are.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from penstock.clock import Clock
from penstock.delay import file_names as names
from penstock.delay import file_repair as leftovers
from penstock.delay import states as statefiles
from penstock.delay.states import Change, FileState, Operation, StateId, decode_changes, encode_change, fold
from penstock.errors import DataError
from penstock.files import Files, refusal
from penstock.locks import FILE_STATES_RANK, FileLock
from penstock.parse import MIB

logger = logging.getLogger("penstock.delay")

#: A longer log is replaced by a snapshot: reading it takes some ten milliseconds.
LOG_BYTES_MAX = MIB
_GENERATION = struct.Struct("<Q")
_NOBODY = StateId(0, 0)


class PendingChange(NamedTuple):
    """A change that has no id yet."""

    kind: Operation
    name: str
    first: int = 0
    second: int = 0


class StateTable:
    """All states, kept up to date with what other processes change."""

    def __init__(self, folder: str, files: Files, clock: Clock, *, order: int = 0) -> None:
        self.folder = folder
        self.files = files
        self.clock = clock
        self.states: dict[str, FileState] = {}
        #: Grows whenever a file comes, goes, or stops being written.
        self.version = 0
        self._last = _NOBODY
        self._fd = -1
        self._generation = self._end = 0
        path = os.path.join(folder, "states.lock")
        self.lock = FileLock(files, path, order=(FILE_STATES_RANK, order, 0), holder=lambda: None)
        try:
            with self.lock.held():
                self._open()
                self._clear_up()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self.files.close(fd)
        self.lock.close()

    def refresh(self) -> None:
        """Take in what others changed; costs two system calls when they changed nothing."""
        try:
            is_same = self._read_generation() == self._generation and self.files.size(self._fd) == self._end
        except OSError:
            is_same = False  # another thread is just opening the new log
        if not is_same:
            with self.lock.held():
                self._catch_up()

    def now_ms(self) -> int:
        """The time in whole milliseconds, rounded up: who waits from then on does not wait too short."""
        return -(-self.clock.now_ns() // 1_000_000)

    def chain(self, delay_ms: int) -> list[FileState]:
        """The files of a delay, in the order in which they were made."""
        mine = [state for state in self.states.values() if names.made(state.name).delay_ms == delay_ms]
        return sorted(mine, key=lambda state: names.made(state.name).number)

    def change(
        self, drafts: Sequence[PendingChange], *, sync: bool, allowed: Callable[[], None] | None = None
    ) -> None:
        """Make the changes, in one write. `allowed` is asked under the lock, and may raise."""
        with self.lock.held():
            self._catch_up()
            if allowed is not None:
                allowed()
            self._append(self._with_ids(drafts), sync)

    def create(
        self, delay_ms: int, current_ms: int, stop: PendingChange | None, make: Callable[[str], None]
    ) -> str:
        """A new file for a delay, from now on the one that is written; `make` creates it, durably.

        `stop` ends the writing of the one before, in the same write.
        """
        with self.lock.held():
            self._catch_up()
            drafts = [] if stop is None else [stop]
            number = self._last.counter + len(drafts) + 1
            name = names.file_name(delay_ms, self._last.following(self.now_ms()).ms, number)
            make(name)
            self._append(
                self._with_ids([*drafts, PendingChange(Operation.CREATE, name, delay_ms, current_ms)]),
                sync=True,
            )
            return name

    def snapshot(self) -> None:
        """Replace snapshot and log by a snapshot of now. Who stores messages meanwhile is not held up."""
        with self.lock.held():
            self._catch_up()
            self._replace()

    @contextmanager
    def fenced(self) -> Iterator[None]:
        """Nobody changes a state meanwhile."""
        with self.lock.held():
            yield

    # Under the lock.

    def _open(self) -> None:
        """Read the files anew."""
        loaded = statefiles.load(self.folder, self.files)
        if loaded is None:
            self._begin_anew()
            loaded = statefiles.load(self.folder, self.files)
            if loaded is None:
                raise DataError(f"{self.folder}: the states cannot be read back", hint="look at the disk")
        if loaded.is_next:
            self._tell_generation(loaded.header.generation)
            statefiles.take_next(self.folder, self.files)
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self.files.close(fd)
        self._fd = self.files.open(os.path.join(self.folder, statefiles.LOG))
        self._generation, self._end = loaded.header.generation, loaded.end
        if self._read_generation() != self._generation:
            self._tell_generation(self._generation)
        if loaded.torn:
            self._cut(loaded.torn)
        self.states = fold(loaded.states, loaded.changes)
        self._last = loaded.changes[-1].id if loaded.changes else loaded.header.id
        self.version += 1

    def _begin_anew(self) -> None:
        """There are no states that fit together: none yet, or they are damaged. The files tell what waits."""
        for name in (statefiles.SNAPSHOT, statefiles.LOG):
            path = os.path.join(self.folder, name)
            if self.files.exists(path) and statefiles.read_file(self.files, path):
                logger.error("%s is damaged: all waiting messages come again", path, extra={"path": path})
                self.files.rename(path, f"{path}.damaged")
        generation = self._read_generation() + 1
        # `_clear_up` takes over the files that are there, and gives no number again.
        last = StateId(self.now_ms(), 0)
        self._tell_generation(generation)
        statefiles.replace(self.folder, self.files, {}, last, generation)

    def _clear_up(self) -> None:
        """Take over files that no state names though they hold messages; remove what is half made."""
        remains = leftovers.look(self.folder, self.files, self.states, self._last.counter)
        for name in remains.remove:
            leftovers.remove(self.folder, self.files, name)
        if not remains.adopt:
            return
        most = max(names.made(each.name).number for each in remains.adopt)
        self._last = StateId(self._last.ms, max(self._last.counter, most))
        drafts: list[PendingChange] = []
        for each in remains.adopt:
            logger.error("%s was in no state: taken over", each.name, extra={"path": self.folder})
            delay_ms = names.made(each.name).delay_ms
            begun = max(each.first_due - delay_ms, 0)
            drafts.append(PendingChange(Operation.CREATE, each.name, delay_ms, begun))
            drafts.append(PendingChange(Operation.STOP_WRITING, each.name, each.end))
        self._append(self._with_ids(drafts), sync=True)

    def _catch_up(self) -> None:
        if self._read_generation() != self._generation:
            self._open()
            return
        size = self.files.size(self._fd)
        if size <= self._end:
            return
        data = self.files.pread(self._fd, size - self._end, self._end)
        end = 0
        changes: list[Change] = []
        for change, behind in decode_changes(data, self._last):
            changes.append(change)
            end = behind
        self._end += end
        self._apply(changes)
        if end < len(data):
            self._cut(len(data) - end)

    def _cut(self, torn: int) -> None:
        """Cut off what a process that died, or the power, left half written."""
        logger.info("cut %d torn bytes off the states", torn, extra={"path": self.folder})
        self.files.truncate(self._fd, self._end)

    def _apply(self, changes: Sequence[Change]) -> None:
        if not changes:
            return
        self.states = fold(self.states, changes)
        self._last = changes[-1].id
        if any(change.kind is not Operation.SHIFT for change in changes):
            self.version += 1

    def _append(self, changes: list[Change], sync: bool) -> None:
        data = b"".join(map(encode_change, changes))
        try:
            self.files.pwrite(self._fd, data, self._end)
            if sync:
                self.files.sync(self._fd)
        except OSError as error:
            self._generation = -1  # read all anew: what the disk has of it is not known
            with suppress(OSError):
                self.files.truncate(self._fd, self._end)
                self.files.sync(self._fd)
            raise refusal(self.folder, error) from error
        self._end += len(data)
        self._apply(changes)
        if self._end > LOG_BYTES_MAX:
            self._replace()

    def _replace(self) -> None:
        generation = self._generation + 1
        self._tell_generation(generation)  # first: who reads it then finds either log
        self._generation = -1
        statefiles.replace(self.folder, self.files, self.states, self._last, generation)
        self._open()

    def _with_ids(self, drafts: Sequence[PendingChange]) -> list[Change]:
        """The drafts as the next changes; they count once they are written, an interrupt may come before."""
        changes: list[Change] = []
        last, now_ms = self._last, self.now_ms()
        for draft in drafts:
            last = last.following(now_ms)
            changes.append(Change(draft.kind, last, draft.name, draft.first, draft.second))
        return changes

    def _read_generation(self) -> int:
        data = self.files.pread(self.lock.fd, _GENERATION.size, 0)
        return int(_GENERATION.unpack(data)[0]) if len(data) == _GENERATION.size else 0

    def _tell_generation(self, generation: int) -> None:
        self.files.pwrite(self.lock.fd, _GENERATION.pack(generation), 0)
