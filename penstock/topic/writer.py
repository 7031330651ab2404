"""The buffered writer: collects messages, appends them in large frames, waits for the disk behind your back.

`write` puts a message into the buffer. When the buffer holds a frame's worth, or the first message in
it has lingered long enough, the calling thread appends it. A thread of the writer's own appends what
is left when nobody writes, and does all the syncing. Memory is bounded by one frame, and what is
appended but not yet durable by `buffer`: beyond that `write` waits.

What fails in the background is raised by the next call, and by leaving `with`.
"""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, BinaryIO, Generic, NoReturn

from penstock.errors import Closed, InvalidOption, PenstockError, WriteTimeout
from penstock.keys import Key, checked_key
from penstock.locks import FORKED, forget_in_child
from penstock.log.frame import RAW
from penstock.message import Headers, Receipts, Stored, V
from penstock.options import KEY_BYTES_MAX, KIB, Duration, Sync, identifier, nanoseconds
from penstock.topic import outgoing
from penstock.topic.bodies import is_file
from penstock.topic.buffer import Extras, Pairs, Special, pair_columns, weight
from penstock.topic.checks import checked_headers, checked_value
from penstock.topic.delayed import Postponed, due_at, postponed, refuse_file
from penstock.topic.framing import FRAME_BYTES, FRAME_MESSAGES, Outgoing
from penstock.topic.packing import Packing
from penstock.topic.partitions import Landed, Partitions
from penstock.topic.scan import Scan
from penstock.topic.sender import NOBODY, Sender

logger = logging.getLogger("penstock.writer")

#: With sync="os" on a sync="disk" topic, readers see what was written after at most this long.
_FLUSHER_S = 0.05
_IDLE_S = 1.0
#: Values that, with keys and offsets, make a frame of somewhat less than 1 MiB.
_FRAME_WORTH_BYTES = FRAME_BYTES * 3 // 4
#: Messages up to this size take the short way in.
SMALL_BYTES = KIB
#: The clock is looked at once for so many values, keys and seqnos: looking costs as much as a message.
LOOK_EVERY = 2 * 3 * 85


class Writer(Generic[V]):
    """Writes many messages to a topic; safe to share between threads. Use it with `with`."""

    #: How many items of `_pending` are one message.
    _width = 2

    def __init__(
        self, partitions: Partitions, *, headers: Mapping[str, str | bytes] | None, linger_s: float,
        buffer_bytes: int, timeout_s: float | None, sync: Sync, sender: Sender = NOBODY,
        packing: Packing | None = None,
    ) -> None:  # fmt: skip
        self._partitions = partitions
        self._sender = sender
        self._headers = checked_headers(headers)
        self._linger_s = linger_s
        self._buffer_bytes = max(buffer_bytes, 1)
        self._timeout_s = timeout_s
        self._sync = sync
        self._extras = None if self._headers is None else Extras(self._headers, None, None)
        self._limit = partitions.options.value_bytes
        self._packing = packing
        # Who packs, or asks a partitioner before a message is accepted, looks at every one.
        short = packing is None and sender.choose is None
        self._small = min(self._limit, SMALL_BYTES) if short else -1
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._pending: Pairs = []  # grows without the lock; only its front is taken, under the lock
        self._plain = True  # nothing special is pending
        self._later: list[Postponed] = []  # accepted, to be stored until they are due
        self._tried = 0  # so many of those in front could not be appended before
        self._pending_bytes = 0  # about: threads may overtake each other in counting
        self._deadline = 0.0  # when what is pending has lingered long enough
        self._watched = False  # somebody will see to what is pending
        self._unsynced: list[Landed] = []
        self._unsynced_bytes = 0
        self._runs: list[Stored] = []
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
        _open_writers.add(self)

    # Writing.

    def write(
        self, value: V | str | Path | BinaryIO | None, *, key: Key = None,
        headers: Mapping[str, str | bytes] | None = None, partition: int | None = None,
        timestamp: int | datetime | None = None, group: str | None = None, seqno: int | None = None,
        delay: Duration | None = None, deliver_at: int | datetime | None = None,
    ) -> None:  # fmt: skip
        """Accept one message; it is stored by `flush`, or soon by itself.

        Waits when too much is not yet durable. Raises what went wrong in the background before; then
        this message was not accepted, and those accepted before it are as the error says. A producer's
        `seqno` grows from message to message; without one the writer numbers them itself. With `delay` or
        `deliver_at` it is on disk after `flush` and enters the topic later: it has no receipt, since it has
        no offset yet, and a producer's message cannot be delayed.
        """
        if (
            value.__class__ is not bytes
            or len(value) > self._small
            or (key is not None and (key.__class__ is not bytes or len(key) > KEY_BYTES_MAX))
            or headers is not None
            or timestamp is not None
            or partition is not None
            or group is not None
            or seqno is not None
            or delay is not None
            or deliver_at is not None
            or self._alert
        ):
            due_ns = self._due_at(delay, deliver_at)
            if due_ns is not None:
                refuse_file(value)
            self._write_carefully(value, key, headers, timestamp, partition, group, seqno, due_ns)
            return
        # Extending a list is one step for all threads; a lock would cost as much as all the rest.
        pending = self._pending
        pending.extend((value, key))
        if not self._watched or not len(pending) % LOOK_EVERY:
            self._look()

    def write_many(
        self, values: Any, *, keys: Any = None, headers: Any = None, timestamps: Any = None,
        partition: int | None = None, seqnos: Any = None,
    ) -> None:  # fmt: skip
        """Accept many messages at once; lists, Arrow arrays, a table, a `Batch` or a `Scan`."""
        if isinstance(values, Scan):
            if seqnos is not None:
                raise InvalidOption("a Scan cannot have seqnos", hint="write its batches one by one")
            for part in values:
                self.write_many(part, keys=keys, headers=headers, timestamps=timestamps, partition=partition)
            return
        self._partitions.check(partition)
        values = self._partitions.bodies.outside_all(values)
        batch = outgoing.many(values, keys, headers, timestamps, partition, self._limit, self._packing)
        if self._headers is not None:
            own = batch.headers or [None] * len(batch.values)
            batch = batch._replace(headers=[self._merged(each) for each in own])
        given = self._checked_seqnos(seqnos, len(batch.values))
        if self._alert:
            self._make_room()
        with self._lock:
            self._append_pending()
            if batch.values:
                self._append_batch(batch, given)

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
                self._partitions.sync(waiting)
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

    def last_seqno(self) -> int | None:
        """The highest seqno stored for this writer's producer and group, by anyone; None when there is none.

        After a restart a producer goes on behind it. With keys over several partitions some before it may
        be missing then: send again from the last one that was acknowledged.
        """
        raise InvalidOption("a writer without producer_id has no seqnos", hint="writer(producer_id=…)")

    def close(self) -> None:
        """Flush and end; raises if anything could not be stored."""
        if self._closed:
            return
        with self._lock:
            self._ending = self._alert = True  # what comes now is not accepted any more
        try:
            self.flush()
            if self._sync == "os":
                for log in self._partitions.logs():
                    log.sync_all()
        finally:
            self._end("the writer is closed")

    def __enter__(self) -> Writer[V]:
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
        self._pending, self._later, self._unsynced = [], [], []
        self._thread = None
        self._closed, self._broken, self._alert = FORKED, True, True

    # Inside.

    def _stored(self, value: V | str | Path | BinaryIO | None) -> bytes | None:
        """A value as it is stored, if it can be; the body of a file is stored now, while it can be read."""
        if is_file(value):
            return self._partitions.bodies.outside(value)  # type: ignore[no-any-return]
        return checked_value(value, self._limit) if self._packing is None else self._packing.one(value)

    def _write_carefully(
        self, value: V | str | Path | BinaryIO | None, key: Key, headers: Mapping[str, str | bytes] | None,
        timestamp: int | datetime | None, partition: int | None, group: str | None, seqno: int | None,
        due_ns: int | None = None,
    ) -> None:  # fmt: skip
        """A message that has to be looked at: large, not bytes, or with headers, time, place or number."""
        stored, stored_key = self._stored(value), checked_key(key)
        extras = self._extras_of(headers, timestamp, partition, group)
        self._check_choice(stored_key, extras)
        number = self._checked_seqno(seqno)
        if self._alert:
            self._make_room()
        with self._lock:
            if due_ns is not None:
                self._later.append(self._postponed(stored, stored_key, extras, due_ns))
            elif not self._number(number, extras.group):
                return
            else:
                self._plain = False
                self._pending.extend((Special(stored, extras), stored_key, number)[: self._width])
            self._pending_bytes += weight((stored, stored_key, extras))
        self._look(weighed=True)

    def _postponed(self, stored: bytes | None, key: bytes | None, extras: Extras, due_ns: int) -> Postponed:
        own = extras._replace(group=extras.group or self._sender.group)
        codec = RAW if self._packing is None else self._packing.codec
        return postponed(self._partitions, stored, key, own, due_ns, codec)

    # What a producer's writer does otherwise.

    def _due_at(self, delay: Duration | None, deliver_at: int | datetime | None) -> int | None:
        """When a message is to enter the topic; None for now."""
        if delay is None and deliver_at is None:
            return None
        if self._sender.choose is not None:
            raise InvalidOption(
                "a partitioner of one's own cannot be asked later", hint="give the partition of what waits"
            )
        return due_at(delay, deliver_at, self._partitions.clock.now_ns())

    def _checked_seqno(self, seqno: int | None) -> int | None:
        if seqno is not None:
            raise self._without_producer()
        return None

    def _checked_seqnos(self, seqnos: Any, count: int) -> Sequence[int] | None:
        if seqnos is not None:
            raise self._without_producer()
        return None

    def _number(self, seqno: int | None, group: str | None) -> bool:
        """Give the next message its number; False when it is a duplicate. The lock is held."""
        return True

    def _columns(self, rows: Pairs, *, plain: bool) -> Outgoing:
        """What is pending, as columns. The lock is held."""
        now = self._partitions.clock.now_ns()
        width = self._width
        batch = pair_columns(rows[0::width], rows[1::width], now, plain=plain, extras=self._extras)
        return batch if self._packing is None else batch._replace(codec=self._packing.codec)

    def _append_batch(self, batch: Outgoing, seqnos: Sequence[int] | None) -> None:
        """Append many at once. The lock is held."""
        for landed in self._partitions.append(batch, self._sender):
            self._take(landed)

    def _without_producer(self) -> InvalidOption:
        return InvalidOption("a seqno needs a producer", hint="writer(producer_id=…)")

    def _check_choice(self, key: bytes | None, extras: Extras) -> None:
        """Ask a partitioner of the user's own before its message is accepted."""
        choose = self._sender.choose
        if choose is not None and key is not None and extras.partition is None:
            choose(key, len(self._partitions))

    def _look(self, *, weighed: bool = False) -> None:
        """Append when there is a frame's worth, or when the first message has lingered long enough.

        Small messages are not weighed one by one: the last stands for those before it.
        """
        with self._lock:
            if not weighed and self._watched and self._pending:
                last = self._pending[-self._width]
                messages = LOOK_EVERY // self._width
                self._pending_bytes += messages * len(last if isinstance(last, bytes) else b"")
            if self._ending:
                self._refuse()
            if not self._watched:
                self._watched = True
                self._deadline = monotonic() + self._linger_s
                self._wake_thread()
            if not self._is_full() and monotonic() < self._deadline:
                return
            try:
                self._append_pending()
            except (PenstockError, OSError) as error:  # the message is accepted: it is the next call's
                self._failure, self._broken, self._alert = error, True, True

    def _is_full(self) -> bool:
        return self._pending_bytes >= _FRAME_WORTH_BYTES or len(self._pending) >= self._width * FRAME_MESSAGES

    def _make_room(self) -> None:
        """Before anything is accepted: raise what happened, append what is too much, wait for the disk."""
        with self._lock:
            if self._broken:
                self._raise_failure()
            if self._ending:
                self._refuse()
            if self._is_full():
                self._append_pending()
            self._wait_for_room()
            self._alert = False

    # Inside; the lock is held.

    def _append_pending(self) -> None:
        """Append what is pending. What cannot be appended stays pending; the error goes to the caller."""
        self._watched = False  # whoever adds a message from here on looks after it
        self._store_later()
        plain, self._plain = self._plain, True
        rows = self._pending[:]
        if not rows:
            self._pending_bytes = 0
            return
        size, self._pending_bytes = self._pending_bytes, 0
        width, done = self._width, list[Landed]()
        try:
            for landed in self._partitions.append(self._columns(rows, plain=plain), self._sender):
                done.append(landed)
                self._take(landed)
        finally:
            places = _left(len(rows) // width, done)
            self._pending[: len(rows)] = [
                item for place in places for item in rows[width * place : width * (place + 1)]
            ]
            self._tried = len(places)
            if places:
                self._plain = False
                self._pending_bytes += size * len(places) * width // len(rows)

    def _store_later(self) -> None:
        """Store what is delayed, on disk; what cannot be stays here, and is tried again with the rest."""
        if self._later:
            self._partitions.delayed.add(self._partitions.name, self._later)
            self._written += len(self._later)
            self._later = []

    def _take(self, landed: Landed) -> None:
        """Messages were appended: count them as written, or wait for the disk first."""
        self._note(landed.stored())
        if self._sync == "os":
            self._count(landed)
            if self._partitions.options.sync == "os":
                return
        self._unsynced.append(landed)
        self._unsynced_bytes += landed.size
        self._alert = self._alert or self._unsynced_bytes > self._buffer_bytes
        self._wake_thread()
        self._changed.notify_all()  # it may be waiting for messages to linger; syncing comes first

    def _note(self, run: Stored) -> None:
        """Remember where messages went; neighbours become one run."""
        last = self._runs[-1] if self._runs else None
        alike = last is not None and (last.partition, last.duplicate) == (run.partition, run.duplicate)
        if last is not None and alike and (run.duplicate or last.first + last.count == run.first):
            self._runs[-1] = Stored(run.partition, last.first, last.count + run.count, run.duplicate)
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
        raise Closed(f"writer of {self._partitions.name!r}: {reason}", hint="open a new one")

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

    def _extras_of(
        self,
        headers: Mapping[str, str | bytes] | None,
        timestamp: int | datetime | None,
        partition: int | None,
        group: str | None,
    ) -> Extras:
        self._partitions.check(partition)
        moment = None if timestamp is None else nanoseconds("timestamp", timestamp)
        own_group = None if group is None else identifier("group", group)
        return Extras(self._merged(headers), moment, partition, own_group)

    def _merged(self, headers: Mapping[str, str | bytes] | None) -> Headers | None:
        """The writer's own headers, and over them the message's."""
        if self._headers is None or not headers:
            return checked_headers(headers) or self._headers
        return checked_headers({**self._headers, **headers})

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
                self._idle = not self._pending and not self._later
                pause = _IDLE_S if self._idle else self._deadline - monotonic()
                if pause > 0:
                    self._changed.wait(pause)
                self._idle = False
            if self._closed:
                return False
            try:
                if (self._pending or self._later) and not self._broken and monotonic() >= self._deadline:
                    self._append_pending()
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
            self._partitions.sync(waiting)
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
        _open_writers.discard(self)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=5)


def _left(count: int, done: Sequence[Landed]) -> Sequence[int]:
    """The places of messages that did not land anywhere."""
    if sum(len(landed.places) for landed in done) == count:
        return ()
    stored = {place for landed in done for place in landed.places}
    return [place for place in range(count) if place not in stored]


def _run(writer: weakref.ref[Writer[Any]]) -> None:
    """The thread's loop; it does not keep a forgotten writer alive."""
    while (alive := writer()) is not None and alive._step():
        del alive


_open_writers: weakref.WeakSet[Writer[Any]] = weakref.WeakSet()


@atexit.register
def _close_forgotten() -> None:
    """A program that ends without closing its writers still stores what they accepted."""
    for writer in list(_open_writers):
        if not writer._closed:
            try:
                writer.close()
            except PenstockError as error:
                logger.error("a writer was left open, and closing it failed: %s", error)
