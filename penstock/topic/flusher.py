"""What lies behind a writer: batches appended, waited for, counted; what failed kept until someone asks.

A thread of its own does all the syncing, and has what lingered appended when nobody writes. What is
appended but not yet durable is bounded: beyond that whoever writes waits.
"""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import NoReturn, Self

from penstock.errors import Closed, PenstockError, WriteTimeout
from penstock.locks import FORKED, forget_in_child
from penstock.message import Receipts, StoredRun
from penstock.options import Sync
from penstock.topic.open_topic import Landed, OpenTopic

logger = logging.getLogger("penstock.writer")

#: With sync="os" on a sync="disk" topic, readers see what was written after at most this long.
_FLUSHER_S = 0.05
_IDLE_S = 1.0


class Flusher:
    """One way into a topic, with its thread; a writer says what is appended (`_append_pending`), and when."""

    def __init__(
        self, partitions: OpenTopic, *, buffer_bytes: int, timeout_s: float | None, sync: Sync
    ) -> None:
        self.open_topic = partitions
        self._buffer_bytes = max(buffer_bytes, 1)
        self._timeout_s = timeout_s
        self._sync = sync
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._unsynced: list[Landed] = []
        self._unsynced_bytes = 0
        self._runs: list[StoredRun] = []
        self._failure: BaseException | None = None
        self._closed = ""
        self._ending = False
        self._broken = False  # failed or closed
        self._alert = False  # broken, ending or perhaps without room: looked at by every write
        self._written = 0
        self._skipped = 0
        self._idle = False
        self._thread: threading.Thread | None = None
        forget_in_child(self)
        partitions.writers.add(self)
        _open.add(self)

    # What a writer brings; the lock is held.

    def _append_pending(self) -> None:
        """Append what is pending. What cannot be appended stays pending; the error goes to the caller."""
        raise NotImplementedError

    def _append_lingered(self) -> None:
        """The same if it has waited for company long enough."""
        raise NotImplementedError

    def _pause_s(self) -> float | None:
        """How long what is pending may still wait for company; None when nothing is."""
        raise NotImplementedError

    # Its end.

    def flush(self) -> Receipts:
        """Return when everything written before is stored; the receipts tell where and how safely."""
        with self._lock:
            if self._failure is not None and getattr(self._failure, "retryable", False):
                self._failure, self._broken = None, bool(self._closed)  # nothing is lost: this tries again
            if self._broken:
                self._raise_failure()
            self._append_pending()
            waiting = list(self._unsynced)
        if self._sync == "disk":
            try:
                self.open_topic.sync(waiting)
            except PenstockError as error:
                self._fail(error)
                with self._lock:
                    self._raise_failure()
        with self._lock:
            if self._sync == "disk":
                self._settle(waiting)
            runs, self._runs = self._runs, []
            return Receipts(runs, sync=self._sync)

    @property
    def written(self) -> int:
        """How many messages were stored so far, as safely as this writer promises."""
        return self._written

    @property
    def skipped(self) -> int:
        """How many messages were duplicates and not stored again, as safely as the first ones."""
        return self._skipped

    def close(self) -> None:
        """Flush and end; raises if anything could not be stored."""
        if self._closed:
            return
        with self._lock:
            self._ending = self._alert = True  # what comes now is not accepted any more
        try:
            self.flush()
            if self._sync == "os":
                for log in self.open_topic.logs():
                    log.sync_all()
        finally:
            self._end("the writer is closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        try:  # what was accepted is stored, but must not hide the error that is on its way
            self.close()
        except PenstockError as second:
            error.add_note(f"closing the writer failed too: {second}")

    def after_fork_in_child(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._unsynced = []
        self._thread = None
        self._closed, self._broken, self._alert = FORKED, True, True

    # Inside; the lock is held.

    def _take(self, landed: Landed) -> None:
        """Messages were appended: count them as written, or wait for the disk first."""
        self._note(landed.stored())
        if self._sync == "os":
            self._count(landed)
            if self.open_topic.options.sync == "os":
                return
        self._unsynced.append(landed)
        self._unsynced_bytes += landed.size
        self._alert = self._alert or self._unsynced_bytes > self._buffer_bytes
        self._wake_thread()
        self._changed.notify_all()  # it may be waiting for messages to linger; syncing comes first

    def _note(self, run: StoredRun) -> None:
        """Remember where messages went; neighbours become one run."""
        last = self._runs[-1] if self._runs else None
        alike = last is not None and (last.partition, last.duplicate) == (run.partition, run.duplicate)
        if last is not None and alike and (run.duplicate or last.first + last.count == run.first):
            self._runs[-1] = StoredRun(run.partition, last.first, last.count + run.count, run.duplicate)
        else:
            self._runs.append(run)

    def _count(self, landed: Landed) -> None:
        if landed.duplicate:
            self._skipped += len(landed.places)
        else:
            self._written += len(landed.places)

    def _settle(self, waited: Sequence[Landed]) -> None:
        """What waited for the disk is on it, unless another thread was quicker to say so."""
        done = {id(entry) for entry in waited}
        for entry in self._unsynced:
            if id(entry) in done:
                self._unsynced_bytes -= entry.size
                if self._sync == "disk":
                    self._count(entry)
        self._unsynced = [entry for entry in self._unsynced if id(entry) not in done]
        self._changed.notify_all()

    def _wait_for_room(self) -> None:
        if self._unsynced_bytes <= self._buffer_bytes:
            return
        roomy = self._changed.wait_for(
            lambda: self._unsynced_bytes <= self._buffer_bytes or self._broken, self._timeout_s
        )
        if self._broken:
            self._raise_failure()
        if not roomy:
            raise WriteTimeout(
                f"{self._unsynced_bytes} bytes wait for the disk since {self._timeout_s} s: not accepted",
                hint="write it again later; write more slowly, or raise buffer=",
            )

    def _refuse(self) -> NoReturn:
        reason = self._closed or "it is being closed; this message was not accepted"
        raise Closed(f"writer of {self.open_topic.name!r}: {reason}", hint="open a new one")

    def _raise_failure(self) -> None:
        """Raise what happened; after a failure that passes (a full disk) writing may go on."""
        failure, self._failure = self._failure, None
        if failure is None:
            self._refuse()
        if not getattr(failure, "retryable", False):
            self._closed = self._closed or f"it failed: {failure}"
        self._broken = bool(self._closed)
        self._alert = True
        raise failure

    # The background thread.

    def _wake_thread(self) -> None:
        if self._thread is None:
            target, name = weakref.ref(self), "penstock-writer"
            self._thread = threading.Thread(target=_run, args=(target,), name=name, daemon=True)
            self._thread.start()
        elif self._idle:
            self._changed.notify_all()

    def _step(self) -> bool:
        """One round: wait for something to do, append what lingered, sync. False when there is no more."""
        with self._lock:
            if not self._unsynced and not self._closed:
                pause = self._pause_s()
                self._idle = pause is None
                if pause is None or pause > 0:
                    self._changed.wait(_IDLE_S if pause is None else pause)
                self._idle = False
            if self._closed:
                return False
            try:
                if not self._broken:
                    self._append_lingered()
            except BaseException as error:  # noqa: BLE001 - kept, and raised from the next call
                self._failure, self._broken, self._alert = error, True, True
                self._changed.notify_all()
            if self._broken:
                self._changed.wait(_FLUSHER_S)
                return not self._closed
            waiting = list(self._unsynced)
        if waiting:
            self._sync_in_background(waiting)
        return True

    def _sync_in_background(self, waiting: Sequence[Landed]) -> None:
        try:
            self.open_topic.sync(waiting)
        except BaseException as error:  # noqa: BLE001 - kept, and raised from the next call
            self._fail(error)
            return
        with self._lock:
            self._settle(waiting)
            if self._sync == "os" and not self._closed:
                self._changed.wait(_FLUSHER_S)

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            if not self._closed:
                self._failure, self._broken, self._alert = error, True, True
            if not getattr(error, "retryable", False):  # else it is in the log, and the next try waits for it
                self._unsynced, self._unsynced_bytes = [], 0
            self._changed.notify_all()

    def _end(self, reason: str) -> None:
        with self._lock:
            self._closed, self._broken, self._alert = self._closed or reason, True, True
            self._changed.notify_all()
        _open.discard(self)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=5)


def _run(outlet: weakref.ref[Flusher]) -> None:
    """The thread's loop; it does not keep a forgotten writer alive."""
    while (alive := outlet()) is not None and alive._step():
        del alive


_open: weakref.WeakSet[Flusher] = weakref.WeakSet()


@atexit.register
def _close_forgotten() -> None:
    """A program that ends without closing its writers still stores what they accepted."""
    for writer in list(_open):
        if not writer._closed:
            try:
                writer.close()
            except PenstockError as error:
                logger.error("a writer was left open, and closing it failed: %s", error)
