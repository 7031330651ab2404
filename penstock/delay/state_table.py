"""The states of all files of one folder, as one process knows them, and how it changes them.

One lock, `states.lock`, is held for every change in the folder: of a state, and of a file of records. The
lock file holds a record of 36 bytes:

    u64 generation of states.log | u64 boot | u64 ms, u64 counter: the last state id | u32 CRC

A process writes its new id there before it changes anything else. So who finds the bytes that it left there
itself knows that nothing has changed since; who finds others looks again at all it knows; and who finds
another boot repairs what the power cut left. A snapshot replaces the log: the generation tells that the new
one must be opened.

A change that is not synced may be lost with the power: for shifts of the read position that means messages
are delivered again, so those are not synced; all others are.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from penstock.checksum import crc32
from penstock.clock import Clock
from penstock.delay import file_names, file_repair, states
from penstock.delay.file_names import ChainName
from penstock.delay.states import (
    Change,
    FileState,
    Operation,
    StateId,
    decode_changes,
    encode_change,
    fold,
    make_state_id,
)
from penstock.errors import DataError
from penstock.files import Files, refusal
from penstock.locks import FILE_STATES_RANK, FileLock
from penstock.parse import MIB

logger = logging.getLogger("penstock.delay")

#: A longer log is replaced by a snapshot: reading it takes some ten milliseconds.
LOG_BYTES_MAX = MIB
_RECORD = struct.Struct("<QQQQ")
_CHECK = struct.Struct("<I")
RECORD_BYTES = _RECORD.size + _CHECK.size
_NOBODY = StateId(0, 0)


class PendingChange(NamedTuple):
    """A change that has no id yet."""

    kind: Operation
    name: str
    first: int = 0
    second: int = 0


class LockRecord(NamedTuple):
    """What the lock file says."""

    generation: int
    boot: int
    id: StateId


def unpack_record(data: bytes) -> LockRecord | None:
    """Decode the record of the lock file; None when it is not sound."""
    body = data[: _RECORD.size]
    if len(data) != RECORD_BYTES or _CHECK.unpack_from(data, _RECORD.size)[0] != crc32(body):
        return None
    generation, boot, ms, counter = _RECORD.unpack(body)
    return LockRecord(generation, boot, StateId(ms, counter))


class StateTable:
    """All states, kept up to date with what other processes change."""

    def __init__(self, folder: str, files: Files, clock: Clock, *, order: int = 0) -> None:
        self.folder = folder
        self.files = files
        self.clock = clock
        self.states: dict[str, FileState] = {}
        #: Grows whenever a file comes, goes, or stops being written.
        self.version = 0
        #: The chains that have files.
        self.chains: frozenset[ChainName] = frozenset()
        #: Grows whenever another process may have changed any file.
        self.foreign_changes = 0
        #: The last id that was given, and the last one that the log knows.
        self._last = self._logged = _NOBODY
        self._fd = -1
        self._boot = files.boot()
        self._generation = self._end = 0
        #: The lock file's bytes as this process left or found them, once all they stand for was taken in.
        self._record = b""
        self._announced = b""
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
        """Close the table's file and its lock."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self.files.close(fd)
        self.lock.close()

    def now_ms(self) -> int:
        """The time in whole milliseconds, rounded up: who waits from then on does not wait too short."""
        return -(-self.clock.now_ns() // 1_000_000)

    def chain(self, chain: ChainName) -> list[FileState]:
        """The files of a chain, in the order in which they were made."""
        mine = [state for state in self.states.values() if file_names.made(state.name).chain == chain]
        return sorted(mine, key=lambda state: file_names.made(state.name).number)

    def refresh(self) -> None:
        """Take in what others changed; costs two system calls when they changed nothing."""
        try:
            record = unpack_record(self.files.pread(self.lock.fd, RECORD_BYTES, 0))
            is_same = (
                record is not None
                and record.generation == self._generation
                and self.files.size(self._fd) == self._end
            )
        except OSError:
            is_same = False  # another thread is just opening the new log
        if not is_same:
            with self.lock.held():
                self._take_in(self.files.pread(self.lock.fd, RECORD_BYTES, 0))

    def change(
        self,
        pending: Sequence[PendingChange],
        *,
        sync: bool,
        allowed: Callable[[], None] | None = None,
        after: Callable[[], None] | None = None,
    ) -> None:
        """Make the changes, in one write; `allowed` and `after` are called under the lock, before and behind
        it. `allowed` may raise."""
        with self.lock.held():
            self.catch_up()
            if allowed is not None:
                allowed()
            self.append(pending, sync)
            if after is not None:
                after()

    def snapshot(self) -> None:
        """Replace snapshot and log by a snapshot of now."""
        with self.lock.held():
            self.catch_up()
            self._replace()

    # Under the lock.

    def catch_up(self) -> None:
        """Know what others changed; one system call when they changed nothing."""
        data = self.files.pread(self.lock.fd, RECORD_BYTES, 0)
        if data != self._record:
            self._take_in(data)

    def announce(self, now_ms: int) -> StateId:
        """The id of a change that is about to be made; `confirm` it when it was made wholly."""
        ms, counter = self._last
        following = make_state_id((now_ms if now_ms > ms else ms, counter + 1))
        self._announce(following)
        return following

    def confirm(self) -> None:
        """What was announced is done: the bytes in the lock file stand for what this process knows."""
        self._record = self._announced

    def append(self, pending: Sequence[PendingChange], sync: bool) -> None:
        """Append changes to the log, in one write, and make them here."""
        changes = self._with_ids(pending)
        data = b"".join(map(encode_change, changes))
        self._announce(changes[-1].id)
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
        self.confirm()
        if self._end > LOG_BYTES_MAX:
            self._replace()

    def create(
        self, chain: ChainName, current_ms: int, stop: PendingChange | None, make: Callable[[str], None]
    ) -> str:
        """A new file for a chain, from now on the one that is written; `make` creates it, durably.

        `stop` ends the writing of the one before, in the same write.
        """
        before = [] if stop is None else [stop]
        number = self._last.counter + len(before) + 1
        name = file_names.file_name(chain, self._last.following(self.now_ms()).ms, number)
        make(name)
        self.append([*before, PendingChange(Operation.CREATE, name, chain.delay_ms, current_ms)], sync=True)
        return name

    # Inside, under the lock.

    def _take_in(self, data: bytes) -> None:
        self.foreign_changes += 1
        record = unpack_record(data)
        if record is None or record.boot != self._boot or record.generation != self._generation:
            self._open()
            return
        self._last = max(self._last, record.id)
        size = self.files.size(self._fd)
        if size > self._end:
            self._read_changes(self.files.pread(self._fd, size - self._end, self._end))
        self._record = data

    def _read_changes(self, data: bytes) -> None:
        end = 0
        changes: list[Change] = []
        for change, behind in decode_changes(data, self._logged):
            changes.append(change)
            end = behind
        self._end += end
        self._apply(changes)
        if end < len(data):
            self._cut(len(data) - end)

    def _open(self) -> None:
        """Read the files anew; after a power cut repair them, and take over those of an older version."""
        record = unpack_record(self.files.pread(self.lock.fd, RECORD_BYTES, 0))
        loaded = states.load(self.folder, self.files)
        if loaded is None:
            self._begin_anew()
            loaded = states.load(self.folder, self.files)
            if loaded is None:
                raise DataError(f"{self.folder}: the states cannot be read back", hint="look at the disk")
        if loaded.is_next:
            states.take_next(self.folder, self.files)
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self.files.close(fd)
        self._fd = self.files.open(os.path.join(self.folder, states.LOG))
        self._generation, self._end = loaded.header.generation, loaded.end
        if loaded.torn:
            self._cut(loaded.torn)
        self.states = fold(loaded.states, loaded.changes)
        self._logged = loaded.changes[-1].id if loaded.changes else loaded.header.id
        self._note_chains()
        is_same_boot = record is not None and record.boot == self._boot
        self._last = max(self._logged, record.id) if record and is_same_boot else self._latest()
        self._announce(self._last)
        if loaded.header.version == states.OLD_VERSION:
            self._stop_written(file_repair.taken_over(self.folder, self.files, self._written()))
            self._replace()
        elif not is_same_boot:
            self._recover()
        self.confirm()

    def _recover(self) -> None:
        """After a power cut: cut off what is torn, and end the files that were written then."""
        written = [state.name for state in self._written()]
        self._stop_written([
            (name, file_repair.cut_torn_tail(self.folder, name, self.files)) for name in written
        ])  # fmt: skip

    def _latest(self) -> StateId:
        """The last id that anything knows of: the lock file may be older than the files."""
        entries = [file_repair.last_entry(self.folder, self.files, state.name) for state in self._written()]
        return max([self._logged, *(StateId(entry.ms, entry.counter) for entry in entries)])

    def _written(self) -> list[FileState]:
        return [state for state in self.states.values() if state.is_written]

    def _stop_written(self, ends: Sequence[tuple[str, int]]) -> None:
        """Write no more to files, each of so many bytes."""
        if ends:
            self.append([PendingChange(Operation.STOP_WRITING, name, end) for name, end in ends], sync=True)

    def _begin_anew(self) -> None:
        """Begin without states, where there are none yet or they are damaged: the files tell what waits."""
        for name in (states.SNAPSHOT, states.LOG):
            path = os.path.join(self.folder, name)
            if self.files.exists(path) and states.read_file(self.files, path):
                logger.error(
                    "%s is damaged: all waiting messages are delivered again", path, extra={"path": path}
                )
                self.files.rename(path, f"{path}.damaged")
        # `_clear_up` takes over the files that are there, and gives no number again.
        generation = self._read_generation() + 1
        states.replace(self.folder, self.files, {}, StateId(self.now_ms(), 0), generation)

    def _clear_up(self) -> None:
        """Take over files that no state names though they hold messages; remove what is half made."""
        remains = file_repair.look(self.folder, self.files, self.states, self._logged.counter)
        for name in remains.remove:
            file_repair.remove(self.folder, self.files, name)
        if not remains.adopt:
            return
        most = max(file_names.made(each.name).number for each in remains.adopt)
        self._last = StateId(self._last.ms, max(self._last.counter, most))
        pending: list[PendingChange] = []
        for each in remains.adopt:
            logger.error("%s was in no state: taken over", each.name, extra={"path": self.folder})
            delay_ms = file_names.made(each.name).chain.delay_ms
            begun = max(each.first_due - delay_ms, 0)
            pending.append(PendingChange(Operation.CREATE, each.name, delay_ms, begun))
            pending.append(PendingChange(Operation.STOP_WRITING, each.name, each.end))
        self.append(pending, sync=True)

    def _cut(self, torn: int) -> None:
        """Cut off what a process that died, or the power, left half written."""
        logger.info("cut %d torn bytes off the states", torn, extra={"path": self.folder})
        self.files.truncate(self._fd, self._end)

    def _apply(self, changes: Sequence[Change]) -> None:
        if not changes:
            return
        self.states = fold(self.states, changes)
        self._logged = changes[-1].id
        self._last = max(self._last, self._logged)
        if any(change.kind is not Operation.SHIFT for change in changes):
            self._note_chains()

    def _note_chains(self) -> None:
        """Note which files each chain has now."""
        self.chains = frozenset(file_names.made(name).chain for name in self.states)
        self.version += 1

    def _replace(self) -> None:
        """Write a snapshot in which files that are written have the length and the id they have now."""
        now = dict(self.states)
        for state in self._written():
            entry = file_repair.last_entry(self.folder, self.files, state.name)
            changed = max(state.id, StateId(entry.ms, entry.counter))
            now[state.name] = state._replace(id=changed, len=entry.end)
        self._generation += 1
        generation = self._generation
        self._announce(self._last)  # first: who reads it then finds either log
        self._generation = -1
        states.replace(self.folder, self.files, now, self._last, generation)
        self._open()

    def _announce(self, last: StateId) -> None:
        """Write the lock's record, before what it announces is done."""
        self._record = b""
        body = _RECORD.pack(self._generation, self._boot, *last)
        self._announced = body + crc32(body).to_bytes(4, "little")
        self.files.pwrite(self.lock.fd, self._announced, 0)
        self._last = last

    def _with_ids(self, pending: Sequence[PendingChange]) -> list[Change]:
        """The changes with the ids that come next."""
        changes: list[Change] = []
        last, now_ms = self._last, self.now_ms()
        for each in pending:
            last = last.following(now_ms)
            changes.append(Change(each.kind, last, each.name, each.first, each.second))
        return changes

    def _read_generation(self) -> int:
        data = self.files.pread(self.lock.fd, 8, 0)
        return int.from_bytes(data, "little") if len(data) == 8 else 0
