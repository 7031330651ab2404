"""The chain of files of one delay, as one process appends to it.

Everything happens under the rung's flock (`<ΔT>/lock`). That file holds the boot and the number of the file
that is written now, so that a process sees with one read whether others began a new one; 0 means: ask the
states. A record is there when the checksum entry behind it is. What a killed process left behind the last
entry is overwritten.
"""

from __future__ import annotations

import errno
import logging
import os
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.checksum import crc32
from penstock.delay import checksums as sums
from penstock.delay import file_names as names
from penstock.delay import file_repair as repair
from penstock.delay.checksums import ENTRY_BYTES, Sum
from penstock.delay.records import Block
from penstock.delay.state_table import PendingChange, StateTable
from penstock.delay.states import FileState, Operation
from penstock.errors import NotDurable
from penstock.files import DISK_REFUSE, Files, refusal
from penstock.locks import RUNG_RANK, FileLock

logger = logging.getLogger("penstock.delay")

_RECORD = struct.Struct("<QQ")
#: A clock set back by less than this makes due times wait for it; further back begins a new file.
STEP_BACK_MS = 3_600_000


@dataclass
class OpenFile:
    """The file that is written now."""

    name: str
    number: int
    fd: int
    sums_fd: int
    replay: int
    #: The last entry, and how many there are.
    last: Sum
    entries: int
    #: So much is durable, as far as this process knows.
    synced: int = 0


@dataclass(frozen=True)
class AppendedBlock:
    """Where an append went."""

    name: str
    number: int
    #: The byte of the first record, and the one behind the last.
    begin: int
    end: int
    #: When the records are due in this chain.
    due: int


class Chain:
    """One delay's files, for writing. Threads may share it."""

    def __init__(self, ledger: StateTable, delay_ms: int, *, file_bytes: int, file_age_ms: int) -> None:
        self.delay_ms = delay_ms
        self._ledger = ledger
        self._files: Files = ledger.files
        self._file_bytes = file_bytes
        self._file_age_ms = file_age_ms
        self._tip: OpenFile | None = None
        self._sync_mutex = threading.Lock()
        self._checked_boot = False
        #: Numbers of files whose sync failed: a later one that succeeds would mean nothing.
        self._failed: set[int] = set()
        self.path = os.path.join(ledger.folder, names.delay_name(delay_ms))
        if not self._files.exists(self.path):
            self._files.make_dirs(self.path)
            self._files.sync_dir(ledger.folder)
        order = (RUNG_RANK, ledger.lock.order[1], delay_ms)
        self.lock = FileLock(
            self._files, os.path.join(self.path, names.LOCK), order=order, holder=lambda: None
        )

    def close(self) -> None:
        self._forget_tip()
        self.lock.close()

    def append(self, blocks: Sequence[Block], now_ms: int) -> list[AppendedBlock]:
        """Write the blocks behind what is there, their wait beginning now; a place for each.

        They are not durable yet.
        """
        with self.lock.held():
            try:
                return [self._append(block, now_ms) for block in blocks]
            except OSError as error:
                self._cut_back()
                raise refusal(self.path, error) from error

    def sync(self, place: AppendedBlock) -> None:
        """Return when everything up to a place is durable; threads that wait share one sync."""
        with self._sync_mutex:
            tip = self._tip
            if place.number in self._failed:
                raise NotDurable(f"{self.path}: the disk failed to sync")
            if tip is None or tip.number != place.number:
                self._sync_earlier(place)
                return
            if tip.synced >= place.end:
                return
            end = tip.last.end
            try:
                self._files.sync(tip.fd)
                self._files.sync(tip.sums_fd)
                tip.synced = max(tip.synced, end)
                return
            except OSError as error:
                failure = error
                self._failed.add(tip.number)
        with self.lock.held():
            self._stop(sync=False)
        raise NotDurable(f"{self.path}: the disk failed to sync: {failure}") from failure

    def stop_if_old(self) -> None:
        """Stop writing a file that is over its age, unless someone writes now."""
        if not self.lock.try_acquire():
            return
        try:
            tip = self._current()
            if tip is not None and self._is_old(tip, self._ledger.now_ms()):
                self._stop(sync=True)
        except OSError as error:
            raise refusal(self.path, error) from error
        finally:
            self.lock.drop()

    def ensure_recovered(self) -> None:
        """After a power cut: see to it that the end of the file that was written is sound."""
        if self._checked_boot or self._read_record()[0] == self._files.boot():
            self._checked_boot = True
            return
        with self.lock.held():
            self._current()

    # Under the lock.

    def _append(self, block: Block, now_ms: int) -> AppendedBlock:
        tip = self._current()
        if tip is None or self._is_full(tip, block.size, now_ms):
            tip = self._roll(tip, now_ms)
        due = max(now_ms + self.delay_ms, tip.replay, tip.last.due)
        data = block.at(due)
        begin, end = tip.last.end, tip.last.end + block.size
        assert len(data) == block.size
        entry = Sum(
            end,
            block.size,
            tip.last.records + len(block.tails),
            max(tip.synced, tip.last.synced),
            due,
            crc32(data),
        )
        self._files.pwrite(tip.fd, data, begin)
        self._files.pwrite(tip.sums_fd, sums.pack(entry), tip.entries * ENTRY_BYTES)
        tip.last, tip.entries = entry, tip.entries + 1
        return AppendedBlock(tip.name, tip.number, begin, end, due)

    def _current(self) -> OpenFile | None:
        """The file that is written now, with what other processes appended; None when there is none."""
        boot, number = self._read_record()
        if boot != self._files.boot():
            self._recover()
            return None
        self._checked_boot = True
        tip = self._tip
        if not number or tip is None or tip.number != number:
            self._forget_tip()
            self._ledger.refresh()
            state = self._written()
            if state is None:
                return None
            self._tip = tip = self._open(state)
            self._tell(tip.number)
        return tip if self._look_again(tip) else None

    def _look_again(self, tip: OpenFile) -> bool:
        """Take in what others appended; False when the end is damaged, and the file was given up for that."""
        entries = sums.how_many(self._files, tip.sums_fd)
        if entries == tip.entries:
            return True
        last = sums.read(self._files, tip.sums_fd, entries - 1) if entries else sums.EMPTY
        if last is None:
            logger.error(
                "the last checksum of %s is damaged: a new file", tip.name, extra={"path": self.path}
            )
            self._tell(0)
            end = self._files.size(tip.fd)
            self._ledger.change([PendingChange(Operation.STOP_WRITING, tip.name, end)], sync=True)
            self._forget_tip()
            return False
        tip.last, tip.entries = last, entries
        return True

    def _is_full(self, tip: OpenFile, size: int, now_ms: int) -> bool:
        if not tip.last.end:
            return self._is_far_ahead(tip, now_ms)
        full = tip.last.end + size > self._file_bytes
        return full or self._is_old(tip, now_ms) or self._is_far_ahead(tip, now_ms)

    def _is_old(self, tip: OpenFile, now_ms: int) -> bool:
        return bool(tip.last.end) and now_ms - (tip.replay - self.delay_ms) > self._file_age_ms

    def _is_far_ahead(self, tip: OpenFile, now_ms: int) -> bool:
        """The clock was set back so far that nobody should wait until it has caught up."""
        return max(tip.last.due, tip.replay) > now_ms + self.delay_ms + STEP_BACK_MS

    def _roll(self, tip: OpenFile | None, now_ms: int) -> OpenFile:
        """Begin a new file; its records are due no earlier than those before, unless the clock jumped."""
        begun = now_ms
        stop = None
        if tip is not None:
            if not self._is_far_ahead(tip, now_ms):
                begun = max(now_ms, tip.last.due - self.delay_ms)
            stop = self._end_of(tip, sync=True)
        if self._files.free_share(self.path) < DISK_REFUSE:
            raise OSError(errno.ENOSPC, "less than 2 % of the disk is free")
        self._tell(0)
        name = self._ledger.create(self.delay_ms, begun, stop, self._make)
        self._forget_tip()
        self._tip = tip = self._open(self._ledger.states[name])
        self._tell(tip.number)
        return tip

    def _stop(self, *, sync: bool) -> None:
        """Write no more to the present file; the next message begins a new one."""
        tip = self._current()
        if tip is None:
            return
        stop = self._end_of(tip, sync=sync)
        self._tell(0)
        self._ledger.change([stop], sync=True)
        self._forget_tip()

    def _end_of(self, tip: OpenFile, *, sync: bool) -> PendingChange:
        """The change that ends a file. Who waits for a sync of it that fails here is told so."""
        if sync:
            with self._sync_mutex:
                try:
                    self._files.truncate(tip.fd, tip.last.end)
                    self._files.sync(tip.fd)
                    self._files.sync(tip.sums_fd)
                    tip.synced = tip.last.end
                except OSError:
                    logger.exception("could not sync %s", tip.name, extra={"path": self.path})
                    self._failed.add(tip.number)
        return PendingChange(Operation.STOP_WRITING, tip.name, tip.last.end)

    def _make(self, name: str) -> None:
        """Create a file and its checksums, durably. What died under that name before is overwritten."""
        for path in (names.data_path(self._ledger.folder, name), names.sums_path(self._ledger.folder, name)):
            fd = self._files.open(path, create=True)
            try:
                self._files.truncate(fd, 0)
                self._files.sync(fd)
            finally:
                self._files.close(fd)
        self._files.sync_dir(self.path)

    def _recover(self) -> None:
        """The machine was started anew: cut off what is torn, and end the file that was written then."""
        self._forget_tip()
        self._ledger.refresh()
        state = self._written()
        if state is not None:
            end = repair.mend(self._ledger.folder, state.name, self._files)
            self._ledger.change([PendingChange(Operation.STOP_WRITING, state.name, end)], sync=True)
        self._tell(0)
        self._checked_boot = True

    def _written(self) -> FileState | None:
        return next((state for state in self._ledger.chain(self.delay_ms) if state.is_written), None)

    def _open(self, state: FileState) -> OpenFile:
        folder = self._ledger.folder
        fd = self._files.open(names.data_path(folder, state.name))
        try:
            sums_fd = self._files.open(names.sums_path(folder, state.name))
        except BaseException:
            self._files.close(fd)
            raise
        return OpenFile(state.name, names.made(state.name).number, fd, sums_fd, state.replay, sums.EMPTY, 0)

    def _cut_back(self) -> None:
        """A write failed: nothing of it stays."""
        tip = self._tip
        if tip is not None:
            for fd, size in ((tip.sums_fd, tip.entries * ENTRY_BYTES), (tip.fd, tip.last.end)):
                try:
                    self._files.truncate(fd, size)
                except OSError:
                    logger.exception("could not cut back %s", tip.name, extra={"path": self.path})

    def _forget_tip(self) -> None:
        with self._sync_mutex:
            tip, self._tip = self._tip, None
            if tip is not None:
                self._close(tip)

    def _close(self, tip: OpenFile) -> None:
        self._files.close(tip.fd)
        self._files.close(tip.sums_fd)

    def _sync_earlier(self, place: AppendedBlock) -> None:
        """Who ended the file synced it. To be told of a failure, sync it ourselves."""
        folder = self._ledger.folder
        for path in (names.data_path(folder, place.name), names.sums_path(folder, place.name)):
            try:
                fd = self._files.open(path)
            except FileNotFoundError:
                return  # all of it is finished
            try:
                self._files.sync(fd)
            except OSError as error:
                raise NotDurable(f"{path}: the disk failed to sync: {error}") from error
            finally:
                self._files.close(fd)

    def _read_record(self) -> tuple[int, int]:
        data = self._files.pread(self.lock.fd, _RECORD.size, 0)
        return _RECORD.unpack(data) if len(data) == _RECORD.size else (0, 0)

    def _tell(self, number: int) -> None:
        self._files.pwrite(self.lock.fd, _RECORD.pack(self._files.boot(), number), 0)
