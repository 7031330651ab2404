"""Messages that wait: store them, take those that are due, finish them.

One `WaitingMessages` is one folder with its files and its states. Any number of processes may have it
open and store messages; one of them at a time delivers what is due, and another takes over when it dies.
The process that delivers gets the messages of every topic in the folder, so consumers that must not get
each other's messages have a folder each.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from types import TracebackType

from penstock.checksum import crc32
from penstock.clock import Clock
from penstock.delay import file_reader as view
from penstock.delay.chain import AppendedBlock, Chain
from penstock.delay.ladder import DEFAULT, Ladder, checked_wait, wait_ms
from penstock.delay.records import NewRecord, Record, RecordColumns, blocks, check, columns, some_columns
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
        Processes that share a folder should agree on it: a message that is stored on or again gets the
        promise of who does it.
        """
        self.ladder = Ladder(ladder)
        one_of("sync", sync, ("disk", "os"))
        self._is_durable = sync == "disk"
        bytes_ = whole("file_bytes", size("file_bytes", file_bytes), _FILE_BYTES_LEAST, _FILE_BYTES_MOST)
        age_ms = max(wait_ms("file_age", file_age), 1)
        self._limits = {"file_bytes": bytes_, "file_age_ms": age_ms}
        self.folder = os.path.abspath(os.fspath(folder))
        self._files = files or Files()
        self._clock = clock or Clock()
        self._closed = ""
        self._chains: dict[int, Chain] = {}
        self._mutex = threading.Lock()
        self._make_folder()
        self._ledger = StateTable(self.folder, self._files, self._clock, order=crc32(self.folder.encode()))
        try:
            self._post = SchedulerLock(self._ledger)
            self._wake_fd = self._files.open(os.path.join(self.folder, "wake"), create=True)
        except BaseException:
            self._ledger.close()
            raise
        self._scheduler = Scheduler(self._ledger, self._post, self.ladder, self._chain, self._store)
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
    ) -> None:
        """Store a message, due after a wait or at a moment (ms since 1970); what is past is due at once.

        It returns when the message is as safe as `sync` says.
        """
        if (wait is None) == (due_ms is None):
            raise UsageError("give either wait or due_ms")
        now = self._ledger.now_ms()
        delay = wait_ms("wait", wait) if wait is not None else _until(due_ms, now)
        self._store_checked([NewRecord(delay, id, topic, attempts, data)], now)

    def store_many(self, entries: Iterable[NewRecord]) -> None:
        """Store messages, each due after its own wait; equal waits keep their order.

        One sync serves them all. If it raises, some may have been stored.
        """
        self._store_checked(entries, self._ledger.now_ms())

    def store_until(self, entries: Iterable[NewRecord]) -> None:
        """The same where each entry's `wait_ms` is the moment it is due, in milliseconds since 1970."""
        now = self._ledger.now_ms()
        self._store_checked([each._replace(wait_ms=_until(each.wait_ms, now)) for each in entries], now)

    # Taking.

    def take(self, limit: int = TAKE_LIMIT, now: int | None = None) -> list[TakenMessage]:
        """What is due now, in the order of due times; empty when there is nothing, or another process takes.

        Each message must be finished (`finish`, `.done()`, `.again()`), or it comes again when this is opened
        anew or another process takes over. At most 16,384 messages or 4 MiB of a delay are out at a time.
        """
        self._check_open()
        whole("limit", limit, 1, 2**31)
        now_ms = self._clock.now_ns() // 1_000_000 if now is None else now
        taken = self._scheduler.take(limit, now_ms)
        if self._listens and self._post.is_mine() and self._post.asleep_until() != FOREVER_MS:
            self._post.sleep_until(FOREVER_MS)  # from now on every store rings; then look
            taken = taken or self._scheduler.take(limit, now_ms)
        return taken

    def finish(self, taken: Iterable[TakenMessage]) -> None:
        """These are done and never come again. `TakenElsewhere` when another process took over meanwhile."""
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
        """When something is to be done next, in ms since 1970; None when nothing waits for this process."""
        self._check_open()
        return self._scheduler.next_due()

    def wait(self, timeout: Duration | None = None) -> bool:
        """Sleep until something is due here; False when the timeout passed before.

        Stores by any process wake it, and so does the end of the process that took the messages so far.
        """
        self._check_open()
        deadline = None if timeout is None else time.monotonic() + seconds("timeout", timeout)
        bell = self._hear()
        try:
            while True:
                if self._post.is_mine():
                    self._post.sleep_until(FOREVER_MS)  # from now on every store rings; then look
                now = self._clock.now_ns() / 1_000_000
                due = self.next_due()
                if due is not None and due <= now:
                    if self._scheduler.is_due(int(now)):
                        return True
                    continue  # it waits on, in the heap or on a lower rung
                left = float("inf") if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    return False
                if due is not None:
                    self._post.sleep_until(due)
                    left = min(left, (due - now) / 1000)
                bell.wait(min(left, self._pause_s))
        finally:
            if self._post.is_mine():
                self._post.sleep_until(0)

    def listen(self, hearer: Hearer) -> None:
        """Have `hearer` called, from any thread, when something is stored, or the process that took ends.

        For those who wait for more than this folder, and do so elsewhere than in `wait`: call it once, before
        the first look.
        """
        self._listens = True
        self._watches += [watch(os.path.join(self.folder, "wake"), hearer), self._post.watch(hearer)]

    def ring(self) -> None:
        """Wake all who listen, in any process."""
        self._files.pwrite(self._wake_fd, b"!", 0)

    # Looking.

    def scan(self) -> Iterator[Record]:
        """Every waiting message, also those that are out, delay by delay; nothing is taken."""
        self._check_open()
        self._ledger.refresh()
        return view.records(self.folder, self._files, list(self._ledger.states.values()))

    def count(self) -> int:
        """How many messages wait or are out, from the checksums' counts: no file is read through."""
        self._check_open()
        self._ledger.refresh()
        return view.count(self.folder, self._files, list(self._ledger.states.values()))

    @property
    def damage(self) -> list[Corrupt]:
        """Damage that taking met and passed over, since this was opened."""
        return list(self._scheduler.damage)

    @property
    def holder(self) -> int | None:
        """The pid of the process that hands out the messages; None when nobody does."""
        self._check_open()
        return self._post.holder()

    def kick(self) -> int:
        """Have another process hand out from now on; the pid of the one that did.

        For a process that is stopped: it can finish nothing more. What it has out comes again elsewhere.
        One that is stopped by a signal is kicked after five seconds by whoever waits for its place.
        """
        self._check_open()
        return self._post.kick()

    def snapshot(self) -> None:
        """Replace the log of states by a snapshot; happens by itself at 1 MiB."""
        self._check_open()
        self._ledger.snapshot()

    def close(self) -> None:
        """Let go of everything; what is unfinished comes again."""
        if self._closed:
            return
        self._closed = "is closed"
        try:
            self._scheduler.close()
        finally:
            self._let_go()

    def __enter__(self) -> WaitingMessages:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Waiting {self.folder}{': ' + self._closed if self._closed else ''}>"

    def after_fork_in_child(self) -> None:
        if not self._closed:
            self._closed = FORKED
            self._post.close()

    # Inside.

    def _store_checked(self, entries: Iterable[NewRecord], now_ms: int) -> None:
        self._check_open()
        given = columns(entries)
        if given is not None:
            check(given)
            self._store(given, now_ms)

    def _store(self, entries: RecordColumns, now_ms: int) -> None:
        """Store checked entries whose waits begin now."""
        stored: list[tuple[Chain, AppendedBlock]] = []
        for rung, chosen in _by_rung(entries, self.ladder).items():
            chain = self._chain(rung)
            places = chain.append(blocks(chosen, rung), now_ms)
            stored += [(chain, place) for place in {place.number: place for place in places}.values()]
        if self._is_durable:
            for chain, place in stored:
                chain.sync(place)
        if min(place.due for _, place in stored) < self._post.asleep_until():
            self.ring()

    def _chain(self, delay_ms: int) -> Chain:
        chain = self._chains.get(delay_ms)
        if chain is None:
            with self._mutex:
                chain = self._chains.get(delay_ms)
                if chain is None:
                    chain = self._chains[delay_ms] = Chain(self._ledger, delay_ms, **self._limits)
        return chain

    def _hear(self) -> Bell:
        if self._bell is None:
            self._bell = Bell()
            self._watches += [
                watch(os.path.join(self.folder, "wake"), self._bell.ring),
                self._post.watch(self._bell.ring),
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

    def _let_go(self) -> None:
        for each in self._watches:
            each.close()
        for chain in self._chains.values():
            chain.close()
        self._post.close()
        self._files.close(self._wake_fd)
        self._ledger.close()


def _until(due_ms: object, now_ms: int) -> int:
    """The wait until a moment, 0 for one that is past."""
    if not isinstance(due_ms, int) or isinstance(due_ms, bool) or due_ms < 0:
        raise InvalidOption(f"due_ms={due_ms!r} is not a time in milliseconds since 1970")
    return checked_wait("due_ms", max(due_ms - now_ms, 0))


def _by_rung(entries: RecordColumns, ladder: Ladder) -> dict[int, RecordColumns]:
    """The entries of each rung, in their order."""
    rungs = {wait: ladder.rung(wait) for wait in set(entries.waits)}
    if len(set(rungs.values())) == 1:
        return {rungs[entries.waits[0]]: entries}
    rows: dict[int, list[NewRecord]] = {}
    for row in zip(*entries[:5], strict=True):
        rows.setdefault(rungs[row[0]], []).append(NewRecord._make(row))
    return {rung: some_columns(chosen) for rung, chosen in rows.items()}
