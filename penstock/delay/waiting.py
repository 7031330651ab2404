"""Messages that wait: store them, take those that are due, finish them.

One `WaitingMessages` is one folder with its files and its states. Any number of processes may have it
open and store messages; one of them at a time delivers what is due, and another takes over when it dies.
The process that delivers gets the messages of every topic in the folder, so consumers that must not get
each other's messages have a folder each.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType

from penstock.checksum import crc32
from penstock.clock import Clock
from penstock.delay import file_reader
from penstock.delay.chain import Chain, Chains, Part
from penstock.delay.ladder import DEFAULT, Ladder, checked_wait, wait_ms
from penstock.delay.records import (
    NewRecord,
    RecordColumns,
    WaitingRecord,
    check,
    check_one,
    columns,
    one_block,
)
from penstock.delay.scheduler import Scheduler
from penstock.delay.scheduler_lock import FOREVER_MS, SchedulerLock
from penstock.delay.state_table import StateTable
from penstock.delay.window import TakenMessage
from penstock.errors import Closed, Corrupt, InvalidOption, UsageError
from penstock.files import Files
from penstock.locks import FORKED, forget_in_child
from penstock.options import Sync
from penstock.parse import KIB, MIB, Duration, Size, one_of, seconds, size, whole
from penstock.wake import Bell, Hearer, Watch, watch

#: Smaller files come and go sooner; larger ones are fewer.
FILE_BYTES = 16 * MIB
FILE_AGE: Duration = "1h"
_FILE_BYTES_LEAST, _FILE_BYTES_MOST = 4 * KIB, 1024 * MIB
TAKE_LIMIT = 1000


class WaitingMessages:
    """The waiting messages of one folder. Threads may share it."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        files: Files | None = None,
        clock: Clock | None = None,
        *,
        ladder: Iterable[Duration] = DEFAULT,
        sync: Sync = "disk",
        file_bytes: Size = FILE_BYTES,
        file_age: Duration = FILE_AGE,
    ) -> None:
        """Open the folder, make it if need be.

        `sync`: with "disk" a stored message survives a power cut, with "os" a crash of the process.
        Processes that share a folder should agree on it: a message that is stored again gets the promise of
        the process that does so.
        """
        self.ladder = Ladder(ladder)
        one_of("sync", sync, ("disk", "os"))
        self._is_durable = sync == "disk"
        file_bytes = whole("file_bytes", size("file_bytes", file_bytes), _FILE_BYTES_LEAST, _FILE_BYTES_MOST)
        age_ms = max(wait_ms("file_age", file_age), 1)
        self.folder = os.path.abspath(os.fspath(folder))
        self._files = files or Files()
        self._clock = clock or Clock()
        self._closed = ""
        self._make_folder()
        table = StateTable(self.folder, self._files, self._clock, order=crc32(self.folder.encode()))
        self._table = table
        try:
            self._lock = SchedulerLock(table)
            self._wake_fd = self._files.open(os.path.join(self.folder, "wake"), create=True)
        except BaseException:
            table.close()
            raise
        self._chains = Chains(
            table, self.ladder,
            lambda name: Chain(table, name, file_bytes=file_bytes, file_age_ms=age_ms),
        )  # fmt: skip
        self._scheduler = Scheduler(table, self._lock, self._chains, self._store)
        self._bell: Bell | None = None
        self._watches: list[Watch] = []
        self._listens = False
        forget_in_child(self)

    # Storing.

    def store(
        self,
        *,
        id: bytes,
        topic: str,
        data: bytes,
        wait: Duration | None = None,
        due_ms: int | None = None,
        attempts: int = 0,
        fixed: bool = True,
    ) -> None:
        """Store a message, due after a wait or at a moment (ms since 1970); what is past is due at once.

        A wait is taken for a fixed delay, one that other messages have too, and has files of its own. Give
        `fixed=False` for one that is different each time. It returns when the message is as safe as `sync`
        says.
        """
        if (wait is None) == (due_ms is None):
            raise UsageError("give either wait or due_ms")
        now = self._table.now_ms()
        delay = wait_ms("wait", wait) if wait is not None else _until(due_ms, now)
        self.store_one(NewRecord(delay, id, topic, attempts, data), now, fixed=fixed and due_ms is None)

    def store_one(
        self, entry: NewRecord, begun_ms: int, *, fixed: bool = True, durable: bool | None = None
    ) -> None:
        """Store a message whose wait began at a moment; `durable` overrides what `sync` says."""
        self._check_open()
        check_one(entry)
        wait, id, topic, attempts, data = entry
        chain = self._chains.chain_for(wait, is_fixed=fixed)
        rest = wait - chain.delay_ms if chain.has_rests else None
        self._append(((chain, (one_block(id, topic, attempts, data, rest),)),), begun_ms, durable)

    def store_many(self, entries: Iterable[NewRecord], *, fixed: bool = True) -> None:
        """Store messages, each due after its own wait; equal waits keep their order.

        One sync serves them all. If it raises, some may have been stored.
        """
        self._check_open()
        given = columns(entries)
        if given is not None:
            check(given)
            self._store(given, self._table.now_ms(), fixed)

    def store_until(self, entries: Iterable[NewRecord]) -> None:
        """Store messages, each due at the moment that its `wait_ms` says, in milliseconds since 1970.

        One sync serves them all. If it raises, some may have been stored.
        """
        now = self._table.now_ms()
        self.store_many([each._replace(wait_ms=_until(each.wait_ms, now)) for each in entries], fixed=False)

    def store_columns(self, entries: RecordColumns, *, durable: bool | None = None) -> None:
        """Store messages with fixed delays, given as columns, whose waits began at moments of their own.

        One sync serves them all. If it raises, some may have been stored.
        """
        self._check_open()
        check(entries)
        now = self._table.now_ms()
        self._append(self._chains.parts(entries, now, is_fixed=True), now, durable)

    # Taking.

    def take(self, limit: int = TAKE_LIMIT, now: int | None = None) -> list[TakenMessage]:
        """Deliver what is due now, in the order of due times; nothing while another process delivers.

        Each message must be finished (`finish`, `.done()`, `.again()`), or it is delivered again when this
        is opened anew or another process takes over. At most 16,384 messages or 4 MiB of a chain are out at
        a time.
        """
        self._check_open()
        whole("limit", limit, 1, 2**31)
        now_ms = self._clock.now_ns() // 1_000_000 if now is None else now
        taken = self._scheduler.take(limit, now_ms)
        if self._listens and self._lock.is_mine() and self._lock.asleep_until() != FOREVER_MS:
            self._lock.sleep_until(FOREVER_MS)  # from now on every store rings; then look
            taken = taken or self._scheduler.take(limit, now_ms)
        return taken

    def finish(self, taken: Iterable[TakenMessage]) -> None:
        """Finish messages: they are never delivered again.

        Raises `TakenElsewhere` when another process took over meanwhile.
        """
        self._check_open()
        self._scheduler.finish(list(taken))

    def settle(self) -> None:
        """Store again what is unfinished before something finished.

        After that a crash brings back nothing that was finished. It happens by itself after a second, and
        with `close`.
        """
        self._check_open()
        self._scheduler.settle()

    def next_due(self) -> int | None:
        """When there is something to do next, in ms since 1970; None when nothing waits for this process."""
        self._check_open()
        due = self._scheduler.next_due()
        if self._listens and self._lock.is_mine():
            # `take` had every store ring, so nothing was missed: from now on those that are due earlier do.
            self._lock.sleep_until(FOREVER_MS if due is None else due)
        return due

    def wait(self, timeout: Duration | None = None) -> bool:
        """Sleep until something is due here; False when the timeout passed before.

        Stores by any process wake it, and so does the end of the process that took the messages so far.
        """
        self._check_open()
        deadline = None if timeout is None else time.monotonic() + seconds("timeout", timeout)
        bell = self._hear()
        try:
            while True:
                if self._lock.is_mine():
                    self._lock.sleep_until(FOREVER_MS)  # from now on every store rings; then look
                now = self._clock.now_ns() / 1_000_000
                due = self.next_due()
                if due is not None and due <= now:
                    if self._scheduler.is_due(int(now)):
                        return True
                    continue  # it waits on: in its file, in the heap, or on a lower rung
                left = float("inf") if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    return False
                if due is not None:
                    self._lock.sleep_until(due)
                    left = min(left, (due - now) / 1000)
                bell.wait(min(left, self._pause_s))
        finally:
            if self._lock.is_mine():
                self._lock.sleep_until(0)

    def listen(self, hearer: Hearer) -> None:
        """Have `hearer` called, from any thread, when something is stored, or the process that took ends.

        For callers that wait for more than this folder, elsewhere than in `wait`: call it once, before the
        first `take`.
        """
        self._listens = True
        self._watches += [watch(os.path.join(self.folder, "wake"), hearer), self._lock.watch(hearer)]

    def ring(self) -> None:
        """Wake all who listen, in any process."""
        self._files.pwrite(self._wake_fd, b"!", 0)

    # Looking.

    def scan(self) -> Iterator[WaitingRecord]:
        """Every waiting message, also those that are out, delay by delay; nothing is taken."""
        self._check_open()
        self._table.refresh()
        return file_reader.records(self.folder, self._files, list(self._table.states.values()))

    def count(self) -> int:
        """How many messages wait or are out, from the checksums' counts: no file is read through."""
        self._check_open()
        self._table.refresh()
        return file_reader.count(self.folder, self._files, list(self._table.states.values()))

    @property
    def damage(self) -> list[Corrupt]:
        """Damage that taking met and skipped, since this was opened."""
        return list(self._scheduler.damage)

    @property
    def holder(self) -> int | None:
        """The pid of the process that delivers the messages; None when nobody does."""
        self._check_open()
        return self._lock.holder()

    def kick(self) -> int:
        """Have another process deliver from now on; returns the pid of the one that did.

        For a process that is stopped: it can finish nothing more. What it has out is delivered again
        elsewhere. One that is stopped by a signal is kicked after five seconds by a process that waits for
        its place.
        """
        self._check_open()
        return self._lock.kick()

    def snapshot(self) -> None:
        """Replace the log of states by a snapshot; happens by itself at 1 MiB."""
        self._check_open()
        self._table.snapshot()

    def close(self) -> None:
        """Release everything; what is unfinished is delivered again."""
        if self._closed:
            return
        self._closed = "is closed"
        try:
            self._scheduler.close()
        finally:
            self._release()

    def __enter__(self) -> WaitingMessages:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<WaitingMessages {self.folder}{': ' + self._closed if self._closed else ''}>"

    def after_fork_in_child(self) -> None:
        """Close in the child: only the parent may take messages by its lock."""
        if not self._closed:
            self._closed = FORKED
            self._lock.close()

    # Inside.

    def _store(self, entries: RecordColumns, now_ms: int, fixed: bool) -> None:
        """Store checked entries whose waits begin now."""
        self._append(self._chains.parts(entries, now_ms, is_fixed=fixed), now_ms)

    def _append(self, parts: Sequence[Part], now_ms: int, durable: bool | None = None) -> None:
        """Append to chains, sync them if that is promised, and wake the scheduler if it sleeps too long."""
        appended = self._chains.append(parts, now_ms)
        if self._is_durable if durable is None else durable:
            self._chains.sync(appended)
        due = appended[0][1].due if len(appended) == 1 else min(place.due for _, place in appended)
        if due < self._lock.asleep_until():
            self.ring()

    def _hear(self) -> Bell:
        if self._bell is None:
            self._bell = Bell()
            self._watches += [
                watch(os.path.join(self.folder, "wake"), self._bell.ring),
                self._lock.watch(self._bell.ring),
            ]
            self._pause_s = min(each.pause_s for each in self._watches)
        return self._bell

    def _make_folder(self) -> None:
        made: list[str] = []
        path = self.folder
        while not self._files.exists(path):
            made.append(path)
            path = os.path.dirname(path)
        if made:
            self._files.make_dirs(self.folder)
        for each in reversed(made):  # each folder that is new is an entry of the one above
            self._files.sync_dir(os.path.dirname(each))

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"{self.folder} {self._closed}")

    def _release(self) -> None:
        for each in self._watches:
            each.close()
        self._chains.close()
        self._lock.close()
        self._files.close(self._wake_fd)
        self._table.close()


def _until(due_ms: object, now_ms: int) -> int:
    """The wait until a moment, 0 for one that is past."""
    if not isinstance(due_ms, int) or isinstance(due_ms, bool) or due_ms < 0:
        raise InvalidOption(f"due_ms={due_ms!r} is not a time in milliseconds since 1970")
    return checked_wait("due_ms", max(due_ms - now_ms, 0))
