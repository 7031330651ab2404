"""The chains of a folder, as one process appends to them: the files of one delay each.

A message with a fixed delay waits in the chain of just that delay, made at its first use. What has no fixed
delay, and any further delay where a folder has `CHAINS_MAX` chains, waits on the ladder.

Files are written under the lock of the folder's states (`StateTable`), synced without it. A record is there
when the checksum entry behind it is. What a killed process left behind the last entry is overwritten.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from penstock.checksum import crc32
from penstock.delay import checksums, file_names
from penstock.delay.checksums import EMPTY, Sum, make_sum
from penstock.delay.file_names import ChainKind, ChainName, rung
from penstock.delay.file_repair import last_entry
from penstock.delay.ladder import Ladder
from penstock.delay.records import Block, RecordColumns, are_records, blocks
from penstock.delay.state_table import PendingChange, StateTable
from penstock.delay.states import FileState, Operation
from penstock.errors import NotDurable
from penstock.files import DISK_REFUSE, Files, refusal, sync_both

logger = logging.getLogger("penstock.delay")

#: A clock set back by less than this makes due times wait for it; further back begins a new file.
STEP_BACK_MS = 3_600_000
_LAYOUT = checksums.CURRENT
#: So many delays have chains of their own in a folder; more would be more files than they are worth.
CHAINS_MAX = 256
#: So many chains have their files open.
OPEN_MAX = 32
#: A wait that began longer ago is no fixed delay any more: in a chain it would hold up what comes behind it.
LATE_MS = 1000


@dataclass(slots=True)
class WrittenFile:
    """The file that is written now."""

    name: str
    number: int
    fd: int
    sums_fd: int
    replay: int
    #: The last entry, and how many there are.
    last: Sum
    entries: int
    #: No further record is due before this.
    floor: int
    #: `StateTable.foreign_changes` when it was looked at last.
    seen: int
    #: So much is durable, as far as this process knows.
    synced: int = 0


class AppendedBlock(msgspec.Struct, frozen=True, gc=False):
    """Where an append went."""

    name: str
    number: int
    #: The byte of the first record, and the one behind the last.
    begin: int
    end: int
    #: When the first record is due in this chain.
    due: int


class Chain:
    """One delay's files, for writing. Threads may share it."""

    def __init__(self, table: StateTable, name: ChainName, *, file_bytes: int, file_age_ms: int) -> None:
        self.name = name
        self.path = os.path.join(table.folder, name.folder)
        self.delay_ms = name.delay_ms
        self.has_rests = name.has_rests
        self._table = table
        self._files: Files = table.files
        self._file_bytes = file_bytes
        self._file_age_ms = file_age_ms
        self._open_file: WrittenFile | None = None
        self._sync_mutex = threading.Lock()
        #: Numbers of files whose sync failed: a later one that succeeds would mean nothing.
        self._failed: set[int] = set()

    # Under the lock of the states, which were caught up with.

    def append(self, block: Block, now_ms: int) -> AppendedBlock:
        """Write a block behind what is there; where its records have no due times, their wait begins now.

        It is not durable yet.
        """
        try:
            return self._append(block, now_ms)
        except OSError as error:
            self._cut_back()
            raise refusal(self.path, error) from error

    def release(self) -> None:
        """Close the file; the next append opens it again."""
        with self._sync_mutex:
            file, self._open_file = self._open_file, None
            if file is not None:
                self._files.close(file.fd)
                self._files.close(file.sums_fd)

    # Without the lock.

    def sync(self, place: AppendedBlock) -> None:
        """Return when everything up to a place is durable; threads that wait share one sync."""
        with self._sync_mutex:
            file = self._open_file
            if place.number in self._failed:
                raise NotDurable(f"{self.path}: the disk failed to sync")
            if file is None or file.number != place.number:
                self._sync_earlier(place)
                return
            if file.synced >= place.end:
                return
            end = file.last.end
            try:
                sync_both(self._files, file.fd, file.sums_fd)
                file.synced = max(file.synced, end)
            except OSError as error:
                self._failed.add(file.number)  # the next append begins a new file
                raise NotDurable(f"{self.path}: the disk failed to sync: {error}") from error

    def stop_if_over(self, finished: int, idle_ms: int) -> None:
        """Stop writing a file that is old, or all of which is finished and that got nothing new for a while.

        Does nothing while someone writes.
        """
        lock = self._table.lock
        if not lock.try_acquire():
            return
        try:
            self._table.catch_up()
            file = self._current()
            if file is None or not file.last.end:
                return
            now_ms = self._table.now_ms()
            is_idle = file.last.end == finished and now_ms - file.last.ms >= idle_ms
            if is_idle or self._is_old(file, now_ms):
                self._table.append([self._end_of(file, sync=not is_idle)], sync=True)
                self.release()
        except OSError as error:
            raise refusal(self.path, error) from error
        finally:
            lock.drop()

    # Inside, under the lock.

    def _append(self, block: Block, now_ms: int) -> AppendedBlock:
        file = self._current()
        if file is None or self._is_full(file, block.size, now_ms):
            begun = now_ms if block.dues is None else min(now_ms, block.dues[0] - self.delay_ms)
            file = self._roll(file, begun, now_ms)
        begin, _, records, synced, _, _, _, _ = file.last
        data, first_due, due = block.written(now_ms + self.delay_ms, file.floor)
        size = block.size
        end = begin + size
        assert len(data) == size
        ms, counter = self._table.announce(now_ms)
        synced = max(synced, file.synced)
        entry = make_sum((end, size, records + len(block.ids), synced, due, crc32(data), ms, counter))
        self._files.pwrite(file.fd, data, begin)
        self._files.pwrite(file.sums_fd, _LAYOUT.pack(entry), file.entries * _LAYOUT.entry_bytes)
        file.last, file.floor = entry, due
        file.entries += 1
        self._table.confirm()
        return AppendedBlock(file.name, file.number, begin, end, first_due)

    def _current(self) -> WrittenFile | None:
        """The file that is written now, with what other processes appended; None when there is none."""
        table, file = self._table, self._open_file
        if file is not None and file.seen == table.foreign_changes:
            return file
        if file is None or not self._is_written(file.name):
            self.release()
            state = next((each for each in table.chain(self.name) if each.is_written), None)
            if state is None:
                return None
            try:
                self._open_file = file = self._open(state)
            except FileNotFoundError as error:
                self._give_up(state, error)
                return None
            if not self._look_again(file) or self._has_lost_checksums(file):
                return None
        elif not self._look_again(file):
            return None
        file.seen = table.foreign_changes
        return file

    def _is_written(self, name: str) -> bool:
        state = self._table.states.get(name)
        return state is not None and state.is_written

    def _look_again(self, file: WrittenFile) -> bool:
        """Take in what others appended; False when the end is damaged, and the file was given up for that."""
        entries = _LAYOUT.how_many(self._files, file.sums_fd)
        if entries == file.entries:
            return True
        last = _LAYOUT.read(self._files, file.sums_fd, entries - 1) if entries else EMPTY
        if last is None:
            self._give_up(self._table.states[file.name], "its last checksum is damaged")
            return False
        file.last, file.entries, file.floor = last, entries, max(file.replay, last.due)
        return True

    def _has_lost_checksums(self, file: WrittenFile) -> bool:
        """Whether whole records lie behind the last checksum; then the file was given up, so that they stay.

        A killed process may have left them too, before it said that they are stored.
        """
        last, size = file.last, self._files.size(file.fd)
        if size <= last.end:
            return False
        behind = self._files.pread(file.fd, size - last.end, last.end)
        if not are_records(behind, file.floor, self.has_rests):
            return False
        self._give_up(self._table.states[file.name], "it has records without checksums")
        return True

    def _give_up(self, state: FileState, why: object) -> None:
        """Write no more to a file that cannot be gone on with; reading takes what is there and reports it."""
        logger.error("%s: %s; a new file is begun", state.name, why, extra={"path": self.path})
        folder = self._table.folder
        try:
            fd = self._files.open(file_names.data_path(folder, state.name), write=False)
        except FileNotFoundError:
            end = max(last_entry(folder, self._files, state.name).end, state.offset + 1)
        else:
            end = self._files.size(fd)
            self._files.close(fd)
        self._table.append([PendingChange(Operation.STOP_WRITING, state.name, end)], sync=True)
        self.release()

    def _is_full(self, file: WrittenFile, size: int, now_ms: int) -> bool:
        end = file.last.end
        return (
            (end > 0 and (end + size > self._file_bytes or self._is_old(file, now_ms)))
            or self._is_far_ahead(file, now_ms)
            or file.number in self._failed
        )

    def _is_old(self, file: WrittenFile, now_ms: int) -> bool:
        return now_ms - (file.replay - self.delay_ms) > self._file_age_ms

    def _is_far_ahead(self, file: WrittenFile, now_ms: int) -> bool:
        """Whether the clock was set back so far that nobody should wait until it has caught up."""
        return file.floor > now_ms + self.delay_ms + STEP_BACK_MS

    def _roll(self, file: WrittenFile | None, begun: int, now_ms: int) -> WrittenFile:
        """Begin a new file; its records are due no earlier than those before, unless the clock jumped."""
        stop = None
        if file is not None:
            if not self._is_far_ahead(file, now_ms):
                begun = max(begun, file.last.due - self.delay_ms)
            stop = self._end_of(file, sync=file.number not in self._failed)
        if self._files.free_share(self._table.folder) < DISK_REFUSE:
            raise OSError(errno.ENOSPC, "less than 2 % of the disk is free")
        name = self._table.create(self.name, begun, stop, self._make)
        self.release()
        self._open_file = file = self._open(self._table.states[name])
        file.seen = self._table.foreign_changes
        return file

    def _end_of(self, file: WrittenFile, *, sync: bool) -> PendingChange:
        """The change that ends a file. Who waits for a sync of it that fails here is told so."""
        if sync:
            with self._sync_mutex:
                try:
                    self._files.truncate(file.fd, file.last.end)
                    sync_both(self._files, file.fd, file.sums_fd)
                    file.synced = file.last.end
                except OSError:
                    logger.exception("could not sync %s", file.name, extra={"path": self.path})
                    self._failed.add(file.number)
        return PendingChange(Operation.STOP_WRITING, file.name, file.last.end)

    def _make(self, name: str) -> None:
        """Create a file and its checksums, durably. What died under that name before is overwritten."""
        if not self._files.exists(self.path):
            self._files.make_dirs(self.path)
            self._files.sync_dir(self._table.folder)
        for path in (
            file_names.data_path(self._table.folder, name),
            file_names.sums_path(self._table.folder, name),
        ):
            fd = self._files.open(path, create=True)
            try:
                self._files.truncate(fd, 0)
                self._files.sync(fd)
            finally:
                self._files.close(fd)
        self._files.sync_dir(self.path)

    def _open(self, state: FileState) -> WrittenFile:
        folder = self._table.folder
        fd = self._files.open(file_names.data_path(folder, state.name))
        try:
            sums_fd = self._files.open(file_names.sums_path(folder, state.name))
        except BaseException:
            self._files.close(fd)
            raise
        number = file_names.made(state.name).number
        return WrittenFile(state.name, number, fd, sums_fd, state.replay, EMPTY, 0, state.replay, -1)

    def _cut_back(self) -> None:
        """Cut off what a failed write left."""
        file = self._open_file
        if file is not None and file.seen == self._table.foreign_changes:
            ends = ((file.sums_fd, file.entries * _LAYOUT.entry_bytes), (file.fd, file.last.end))
            for fd, size in ends:
                try:
                    self._files.truncate(fd, size)
                except OSError:
                    logger.exception("could not cut back %s", file.name, extra={"path": self.path})

    def _sync_earlier(self, place: AppendedBlock) -> None:
        """Sync a file that is not written any more.

        The process that ended it did so too, but only the one that syncs is told of a failure.
        """
        folder = self._table.folder
        for path in (file_names.data_path(folder, place.name), file_names.sums_path(folder, place.name)):
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


Appended = list[tuple[Chain, AppendedBlock]]
Part = tuple[Chain, Sequence[Block]]


class Chains:
    """The chains of a folder, for writing. Threads may share them."""

    def __init__(self, table: StateTable, ladder: Ladder, make: Callable[[ChainName], Chain]) -> None:
        self.ladder = ladder
        self._table = table
        self._make = make
        self._mutex = threading.Lock()
        self._chains: dict[ChainName, Chain] = {}
        #: Those with open files, the least recently used first; under the states' lock.
        self._open: OrderedDict[Chain, None] = OrderedDict()
        #: The chains of fixed delays, by their milliseconds.
        self._fixed: dict[int, Chain] = {}

    def chain(self, name: ChainName) -> Chain:
        """Return the chain of that name, made when first asked for."""
        chain = self._chains.get(name)
        if chain is None:
            with self._mutex:
                chain = self._chains.get(name)
                if chain is None:
                    chain = self._chains[name] = self._make(name)
        return chain

    def chain_for(self, wait_ms: int, *, is_fixed: bool) -> Chain:
        """Return the chain where a message waits that is due after so long."""
        if not is_fixed:
            return self.chain(rung(self.ladder.rung(wait_ms)))
        chain = self._fixed.get(wait_ms)
        if chain is None or chain.name not in self._table.chains:
            name = ChainName(wait_ms, ChainKind.FIXED)
            if name not in self._table.chains and self._is_crowded():
                return self.chain_for(wait_ms, is_fixed=False)
            chain = self._fixed[wait_ms] = self.chain(name)
        return chain

    def parts(self, entries: RecordColumns, now_ms: int, *, is_fixed: bool) -> list[Part]:
        """Checked messages as blocks of the chains they wait in."""
        if entries.begun is not None and (not is_fixed or entries.begun[0] < now_ms - LATE_MS):
            entries, is_fixed = _from_now(entries, now_ms), False
        by_wait = {wait: self.chain_for(wait, is_fixed=is_fixed) for wait in set(entries.waits)}
        if len(set(by_wait.values())) == 1:
            chain = by_wait[entries.waits[0]]
            return [(chain, _blocks(chain, entries, now_ms))]
        places: dict[Chain, list[int]] = {}
        for place, wait in enumerate(entries.waits):
            places.setdefault(by_wait[wait], []).append(place)
        return [(chain, _blocks(chain, entries.take(chosen), now_ms)) for chain, chosen in places.items()]

    def append(self, parts: Iterable[Part], now_ms: int) -> Appended:
        """Append blocks to their chains; they are not durable yet."""
        appended: Appended = []
        lock = self._table.lock
        try:  # as `hold`, which costs a microsecond
            lock.acquire()
            self._table.catch_up()
            for chain, each in parts:
                self._open[chain] = None
                self._open.move_to_end(chain)
                for block in each:
                    appended.append((chain, chain.append(block, now_ms)))
            while len(self._open) > OPEN_MAX:
                self._open.popitem(last=False)[0].release()
            lock.release()
        except BaseException:
            lock.drop()
            raise
        return appended

    def sync(self, appended: Appended) -> None:
        """Return when all of these are durable."""
        last = {(place.name, chain): place for chain, place in appended}
        for (_, chain), place in last.items():
            chain.sync(place)

    def close(self) -> None:
        """Release every chain."""
        for chain in self._chains.values():
            chain.release()

    def _is_crowded(self) -> bool:
        """Whether so many delays have files that no further one may."""
        return sum(each.kind is ChainKind.FIXED for each in self._table.chains) >= CHAINS_MAX


def _blocks(chain: Chain, entries: RecordColumns, now_ms: int) -> list[Block]:
    if not chain.has_rests:
        return blocks(entries, None)
    return blocks(_from_now(entries, now_ms), chain.delay_ms)


def _from_now(entries: RecordColumns, now_ms: int) -> RecordColumns:
    """The entries with what is left of their waits."""
    if entries.begun is None:
        return entries
    left = [max(begun + wait - now_ms, 0) for begun, wait in zip(entries.begun, entries.waits, strict=True)]
    return entries._replace(waits=left, begun=None)
