"""The background half of a writer: appends what its buffer holds, syncs it, keeps failures for the next call.

A thread of its own does all the syncing, and appends what lingered when nobody writes. While a sync is under
way messages gather behind it, and the next one serves all of them. What is appended but not yet durable is
bounded: beyond that a caller that writes waits.

Ctrl-C may come at any step. What leaves the buffer is noted as leaving, what was stored as stored, by
statements without a call between them: there Python looks for no signal. So a message is in exactly one of
these places.
"""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from collections.abc import Sequence
from time import monotonic
from typing import NoReturn

from penstock.errors import Closed, PenstockError, WriteTimeout
from penstock.files import in_our_words
from penstock.locks import FORKED, forget_in_child
from penstock.log.meter import QuotaTerms
from penstock.message import Receipts, StoredRun
from penstock.options import Sync
from penstock.topic.delayed import Postponed
from penstock.topic.delayed_hand_over import DelayedHandOver
from penstock.topic.delivery import Delivery
from penstock.topic.open_topic import OpenTopic
from penstock.topic.producer import Numbering, Producer
from penstock.topic.write_batch import WriteBatch
from penstock.topic.write_buffer import WriteBuffer

logger = logging.getLogger("penstock.writer")

#: With sync="os" on a sync="disk" topic, readers see what was written after at most this long.
_FLUSHER_S = 0.05
_IDLE_S = 1.0
#: A message that has been alone for this part of `linger` waits no longer.
_ALONE = 0.25


class Flusher:
    """Takes messages out of a writer's buffer into the topic; its thread starts with the first of them."""

    def __init__(
        self, topic: OpenTopic, producer: Producer, *, linger_s: float, buffer_bytes: int,
        timeout_s: float | None, sync: Sync,
    ) -> None:  # fmt: skip
        self.topic = topic
        self.sync: Sync = sync
        self.buffer: WriteBuffer
        self.numbering = Numbering()
        #: Messages that are to be stored until they are due.
        self.later: list[Postponed] = []
        self.written = 0
        self.skipped = 0
        #: Seconds that a quota held it back.
        self.waited = 0.0
        #: Failed or closed.
        self.broken = False
        self.closed = ""
        self.lock = threading.Lock()
        self._producer = producer
        self._linger_s = linger_s
        self._buffer_bytes = max(buffer_bytes, 1)
        self._timeout_s = timeout_s
        self._terms = QuotaTerms(timeout_s)
        self._changed = threading.Condition(self.lock)
        self._leaving: Delivery | None = None
        self._storing: DelayedHandOver | None = None
        self._deadline = 0.0  # when what is pending has lingered long enough
        self._unsynced: list[StoredRun] = []
        self._unsynced_bytes = 0
        self._runs: list[StoredRun] = []
        self._failure: BaseException | None = None
        self._ending = False
        self._idle = False
        self._thread: threading.Thread | None = None
        #: Every message of this writer has to be looked at.
        self._is_watched = producer.choose is not None

    def start(self, buffer: WriteBuffer) -> None:
        """Begin to take messages out of a buffer; from here on the store knows of it, and may close it."""
        self.buffer = buffer
        buffer.alert = self._is_watched
        forget_in_child(self)
        _open.add(self)

    # For who writes.

    def look(self) -> None:
        """Append when there is a frame's worth; what lingers meanwhile is the thread's to append.

        Without `linger` messages leave at once; but those that would have to wait for the next sync anyhow
        gather until the thread is back from the one before: it appends them as one frame, and syncs again.
        """
        buffer = self.buffer
        with self.lock:
            if self._ending and buffer.rows:
                self._refuse()
            if not buffer.at:
                self._deadline = monotonic() + self._linger_s
                self._wake_thread()
            is_due = not self._linger_s and not (self._unsynced and self.sync == "disk")
            if not is_due and not buffer.is_full():
                buffer.look_later()
                return
            try:
                self.append_pending()
            except (PenstockError, OSError) as error:  # the message is accepted: it is the next call's
                self._break(error)

    def make_room(self) -> None:
        """Make room for a message: raise an earlier failure, append what is too much, wait for the disk."""
        with self.lock:
            if self.broken:
                self.raise_failure()
            if self._ending:
                self._refuse()
            if self.buffer.is_full():
                self.append_pending()
            self._wait_for_room()
            self.buffer.alert = self._is_watched

    @property
    def is_roomy(self) -> bool:
        """Whether there is nothing to raise and nothing to wait for."""
        return not (self.broken or self._ending or self._unsynced_bytes > self._buffer_bytes)

    def flush(self) -> Receipts:
        """Return when everything written before is stored; the receipts tell where and how safely."""
        with self.lock:
            if self._failure is not None and getattr(self._failure, "retryable", False):
                self._failure, self.broken = None, bool(self.closed)  # nothing is lost: this tries again
            if self.broken:
                self.raise_failure()
            self.append_pending()
            waiting = list(self._unsynced)
        if self.sync == "disk":
            try:
                self.topic.sync(waiting)
            except PenstockError as error:
                self._fail(error)
                with self.lock:
                    self.raise_failure()
        with self.lock:
            if self.sync == "disk":
                self._settle(waiting)
            runs, self._runs = self._runs, []
            return Receipts(runs, sync=self.sync)

    def close(self) -> None:
        """Flush and end; raises if anything could not be stored."""
        if self.closed:
            return
        with self.lock:
            self._ending = self.buffer.alert = True  # what comes now is not accepted any more
        try:
            self.flush()
            if self.sync == "os":
                for log in self.topic.logs():
                    log.sync_all()
        finally:
            self._end("the writer is closed")

    def after_fork_in_child(self) -> None:
        """Close in the child and drop what is buffered: the parent stores it."""
        self.lock = threading.Lock()
        self._changed = threading.Condition(self.lock)
        self._unsynced, self.later, self._leaving, self._storing = [], [], None, None
        self.buffer.rows = []
        self._thread = None
        self.closed, self.broken, self.buffer.alert = FORKED, True, True

    # The lock is held from here on, up to the thread's own part.

    def append_pending(self) -> None:
        """Append all that is pending. What cannot be appended stays; the error goes to the caller."""
        self._finish_leaving()
        buffer, numbering = self.buffer, self.numbering
        buffer.at = buffer.weight = 0  # whoever adds a message from here on looks after it
        self._store_later()
        rows = buffer.rows
        count = len(rows)
        if not count:
            return
        batch = buffer.columns(rows[:count], self.topic.clock.now_ns())
        last, lasts = numbering.last, numbering.lasts
        if self._producer.id:
            seqnos, last, lasts = numbering.of(batch.columns.seqnos, batch.groups, len(batch.columns.values))
            batch = batch._replace(columns=batch.columns._replace(seqnos=seqnos))
        delivery = Delivery(batch, self._producer, [], is_kept=True, terms=self._terms)
        # No call between these: neither Ctrl-C nor another thread gets in. The list itself stays, since a
        # thread that has it in hand would add to the old one.
        self._leaving = delivery
        numbering.last = last
        numbering.lasts = lasts
        del rows[:count]
        self._finish_leaving()

    def append_batch(self, batch: WriteBatch) -> None:
        """Append many at once, behind what is pending; they are the caller's until then."""
        delivery = Delivery(batch, self._producer, [], terms=self._terms)
        try:
            self.topic.appender.deliver(delivery)
        finally:
            self._note(delivery)

    def skip(self, count: int) -> None:
        """Count duplicates of the last message; they went nowhere."""
        self.skipped += count
        self._runs += (StoredRun(-1, -1, count, duplicate=True),)

    def raise_failure(self) -> NoReturn:
        """Raise what happened; after a failure that passes (a full disk) writing may go on."""
        failure, self._failure = self._failure, None
        if failure is None:
            self._refuse()
        if not getattr(failure, "retryable", False):
            self.closed = self.closed or f"it failed: {failure}"
        self.broken = bool(self.closed)
        self.buffer.alert = True
        raise failure

    def _finish_leaving(self) -> None:
        """Append what left the buffer and is not stored; after an interrupt, see first what of it is."""
        delivery = self._leaving
        if delivery is None:
            return
        try:
            self.topic.appender.deliver(delivery)
        finally:
            self._note(delivery)
        self._leaving = None

    def _store_later(self) -> None:
        """Store what is delayed; what cannot be stays here, and is tried again with the rest."""
        self._finish_storing()
        later = self.later
        count = len(later)
        if count:
            storing = DelayedHandOver(self.topic, later[:count], durable=self.sync == "disk")
            # No call between these.
            self._storing = storing
            del later[:count]
            self._finish_storing()

    def _finish_storing(self) -> None:
        """Finish storing delayed messages that left; after an interrupt they may be stored already."""
        storing = self._storing
        if storing is None:
            return
        storing.store()
        written = self.written + storing.count
        # No call between these.
        self.written = written
        self._storing = None

    def _note(self, delivery: Delivery) -> None:
        """Take up what was stored: remember where it is, and count it, or have it synced first."""
        arrived, runs, unsynced = delivery.stored, self._runs, self._unsynced
        is_counted = self.sync == "os"
        waits = self.sync == "disk" or self.topic.options.sync == "disk"
        while arrived:
            run = arrived[0]
            kept = StoredRun(run.partition, run.first, run.count, run.duplicate, waited=run.waited)
            joined = _joined(runs[-1], kept) if runs else None
            written = self.written + (run.count if is_counted and not run.duplicate else 0)
            skipped = self.skipped + (run.count if is_counted and run.duplicate else 0)
            size, held = self._unsynced_bytes + run.size, self.waited + run.waited
            # No call between these.
            if joined is None:
                runs += (kept,)
            else:
                runs[-1] = joined
            self.written = written
            self.skipped = skipped
            self.waited = held
            if waits:
                unsynced += (run,)
                self._unsynced_bytes = size
            del arrived[0]
        if waits and unsynced:
            if self._unsynced_bytes > self._buffer_bytes:
                self.buffer.alert = True
            self._wake_thread()
            self._changed.notify_all()  # it may be waiting for messages to linger; syncing comes first

    def _settle(self, waited: Sequence[StoredRun]) -> None:
        """Count what waited for the disk and is on it, unless another thread was quicker to say so."""
        done = {id(run) for run in waited}
        settled = [run for run in self._unsynced if id(run) in done]
        left = [run for run in self._unsynced if id(run) not in done]
        size = self._unsynced_bytes - sum(run.size for run in settled)
        written, skipped = self.written, self.skipped
        if self.sync == "disk":
            written += sum(run.count for run in settled if not run.duplicate)
            skipped += sum(run.count for run in settled if run.duplicate)
        self._unsynced[:] = left
        self._unsynced_bytes = size
        self.written = written
        self.skipped = skipped
        self._changed.notify_all()

    def _wait_for_room(self) -> None:
        if self._unsynced_bytes <= self._buffer_bytes:
            return
        roomy = self._changed.wait_for(
            lambda: self._unsynced_bytes <= self._buffer_bytes or self.broken, self._timeout_s
        )
        if self.broken:
            self.raise_failure()
        if not roomy:
            raise WriteTimeout(
                f"{self._unsynced_bytes} bytes wait for the disk since {self._timeout_s} s: not accepted",
                hint="write it again later; write more slowly, or raise buffer=",
            )

    def _refuse(self) -> NoReturn:
        reason = self.closed or "it is being closed; this message was not accepted"
        raise Closed(f"writer of {self.topic.name!r}: {reason}", hint="open a new one")

    def _break(self, error: BaseException) -> None:
        """Keep a failure for the next call."""
        self._failure = in_our_words(error) if isinstance(error, OSError) else error
        self.broken = self.buffer.alert = True

    # The background thread.

    def _wake_thread(self) -> None:
        if self._thread is None:
            target, name = weakref.ref(self), "penstock-writer"
            thread = threading.Thread(target=_run, args=(target,), name=name, daemon=True)
            thread.start()
            self._thread = thread  # not before: an interrupt would leave one that never runs
        elif self._idle:
            self._changed.notify_all()

    def step(self) -> bool:
        """One round of the thread: wait for work, append what lingered, sync. False when there is no more."""
        with self.lock:
            is_alone = False
            if not self._unsynced and not self.closed:
                is_alone = self._wait_for_work()
            if self.closed:
                return False
            try:
                is_due = is_alone or monotonic() >= self._deadline
                if not self.broken and is_due and (self.buffer.rows or self.later):
                    self.append_pending()
            except BaseException as error:  # noqa: BLE001 - kept, and raised from the next call
                self._break(error)
                self._changed.notify_all()
            if self.broken:
                self._changed.wait(_FLUSHER_S)
                return not self.closed
            waiting = list(self._unsynced)
        if waiting:
            self._sync_in_background(waiting)
        return True

    def _wait_for_work(self) -> bool:
        """Wait for messages, or for more to join those there are; True when none came for a while."""
        rows = self.buffer.rows
        if not rows and not self.later:
            self._idle = True
            self._changed.wait(_IDLE_S)
            self._idle = False
            return False
        left = self._deadline - monotonic()
        if left <= 0:
            return False
        before = len(rows) + len(self.later)
        alone_s = self._linger_s * _ALONE
        self._changed.wait(min(left, alone_s))
        return left >= alone_s and len(rows) + len(self.later) == before

    def _sync_in_background(self, waiting: Sequence[StoredRun]) -> None:
        try:
            self.topic.sync(waiting)
        except BaseException as error:  # noqa: BLE001 - kept, and raised from the next call
            self._fail(error)
            return
        with self.lock:
            self._settle(waiting)
            if self.sync == "os" and not self.closed:
                self._changed.wait(_FLUSHER_S)

    def _fail(self, error: BaseException) -> None:
        with self.lock:
            if not self.closed:
                self._break(error)
            if not getattr(error, "retryable", False):  # else it is in the log, and the next try waits for it
                self._unsynced[:] = []
                self._unsynced_bytes = 0
            self._changed.notify_all()

    def _end(self, reason: str) -> None:
        with self.lock:
            self.closed, self.broken, self.buffer.alert = self.closed or reason, True, True
            self._changed.notify_all()
        _open.discard(self)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=5)


def _joined(last: StoredRun, run: StoredRun) -> StoredRun | None:
    """Join two neighbouring runs; None when they are not neighbours."""
    if (last.partition, last.duplicate) != (run.partition, run.duplicate) or last.waited or run.waited:
        return None
    if not run.duplicate and last.first + last.count != run.first:
        return None
    return StoredRun(run.partition, last.first, last.count + run.count, run.duplicate)


def _run(flusher: weakref.ref[Flusher]) -> None:
    """The thread's loop; it does not keep a forgotten writer alive."""
    while (alive := flusher()) is not None and alive.step():
        del alive


_open: weakref.WeakSet[Flusher] = weakref.WeakSet()


@atexit.register
def _close_forgotten() -> None:
    """Close the writers of a program that ends without doing so: what they accepted is stored."""
    for flusher in list(_open):
        if not flusher.closed:
            try:
                flusher.close()
            except PenstockError as error:
                logger.error("a writer was left open, and closing it failed: %s", error)
