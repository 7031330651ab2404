"""Which reader serves a consumer: one that shares partitions, or one that shares messages."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import length_hint
from types import TracebackType
from typing import Any, Generic

from penstock.consume import hand_over as background
from penstock.consume import stream_reader as due
from penstock.consume.assignment import LOOK_AGAIN_S, Holdings
from penstock.consume.lag import Lag, lag_behind
from penstock.consume.options import ReaderOptions, Retry
from penstock.consume.partition import Gap, HeldPartition, Key
from penstock.consume.process import ProcessQueue, Summary, run
from penstock.consume.settle import Settlement, cut, ranges_of
from penstock.consume.stream_reader import Asked, DueBatch, Turns
from penstock.consume.transaction_part import Transactional, TransactionParts
from penstock.errors import Closed, UsageError
from penstock.locks import FORKED, forget_in_child
from penstock.message import Batch, Message, V
from penstock.parse import MIB, Duration, Size, size, whole
from penstock.place import Place
from penstock.topic.open_topic import OpenTopic
from penstock.wake import Bell, within


class Reader(Generic[V]):
    """Reads topics as a consumer, or without one; not to be shared between threads.

    Readers of one consumer share its partitions, wherever they run. Within a partition messages come in
    order; between partitions in turn. Without a consumer nothing is saved. Use it with `with`.
    """

    #: How many messages `receive` gets at a time.
    fetches = 1000

    def __init__(self, topics: Sequence[OpenTopic], options: ReaderOptions) -> None:
        self._topics = topics
        self._options = options
        self._clock = topics[0].clock
        self.consumer = options.consumer
        self._closed = ""
        self._bell = Bell()
        self._mutex = threading.RLock()  # against the thread that hands over
        self._ready: Iterator[Message[V]] = iter(())
        self._ready_of: HeldPartition | None = None
        #: Offsets that were passed over with on_gap="skip", oldest first.
        self.gaps: list[Gap] = []
        #: Offsets that were passed over because of `read_from` and `max_lag`, oldest first.
        self.skipped: list[Gap] = []
        self._held = Holdings(topics, options, self._bell.ring)
        self._turns = Turns(self._held, options, self.gaps, self.skipped)
        self._follow = options.follow
        self._settling = (
            None if options.consumer is None else Settlement(self._held, options.consumer, options.retry)
        )
        #: Whether `process` is to end.
        self.is_stopped = False
        self._takings = TransactionParts(self._held, self._mutex, weakref.WeakMethod(self._forget_ready))
        self._end = weakref.finalize(self, self._held.close)  # also when it is forgotten and never closed
        self._end.atexit = False
        forget_in_child(self)
        for topic in topics:
            topic.readers.add(self)
        if self._held.sharing is not None:
            background.add(self)
            if not self._held.sharing.is_alone:
                background.nudge()

    # Receiving.

    def receive(self, timeout: float | None = None) -> Message[V] | None:
        """The next message; None when none came within `timeout` seconds (for ever by default).

        With `follow=False` also None at the end.
        """
        message = self._next_ready()
        if message is None:
            message = self._hand_out(self.receive_batch(self.fetches, timeout=timeout))
        return message

    def receive_batch(
        self, max_messages: int = 1000, max_bytes: Size = 8 * MIB, timeout: float | None = None,
        tx: Transactional | None = None,
    ) -> Batch[V]:  # fmt: skip
        """What comes next from one partition, one message at least; empty after `timeout` seconds.

        With `follow=False` also empty at the end. In a transaction it is committed with it; rolled back,
        it is delivered again.
        """
        whole("max_messages", max_messages, 1, 2**31)
        limit = size("max_bytes", max_bytes)
        self._require_open()
        if tx is not None:
            self.take(None, tx)
        deadline = None if timeout is None else time.monotonic() + timeout
        while (batch := self.poll(max_messages, limit)) is None:
            pause = self._pause(deadline)
            if pause is None:
                return Batch(self._topics[0].name, ())
            self._bell.wait(pause)
        if tx is not None:
            self.take(batch, tx)
        return batch

    def __iter__(self) -> Iterator[Message[V]]:
        return self

    def __next__(self) -> Message[V]:
        message = self._next_ready()
        while message is None:
            message = self._hand_out(self.receive_batch(self.fetches))
            if message is None and not self._follow:
                raise StopIteration
        return message

    # Committing and moving.

    def commit(self, done: Message[Any] | Batch[Any], *, tx: Transactional | None = None) -> None:
        """Messages are done: the consumer will not get them again.

        In any order; the stored position is the first one that is not done. Raises `PartitionLost` when
        the partition went to another member, or was moved, since they were delivered: they come again.
        The reader goes on with what it has. With `tx` they are done when the transaction commits.
        """
        if tx is not None:
            self.take(done, tx)
            return
        self._require_consumer()
        with self._mutex:
            if isinstance(done, Message) and done.attempt > 1:
                self._held.require_held(done.topic, done.partition)
            for topic, partition, first, stop in ranges_of(done):
                self._held.commit(topic, partition, first, stop)

    def retry(
        self, message: Message[Any], *, after: Duration | None = None,
        error: BaseException | str | None = None,
    ) -> bool:  # fmt: skip
        """Have a message come again later, to this consumer only, and commit it, in one step.

        It comes after `after`, or else as the reader's `retry` policy says, with `message.attempt` one
        higher; `error` is kept with it. When the policy allows no further attempt it becomes a dead letter
        instead, and False is returned. A process that dies in between leaves it to come once more, never
        less. Raises `PartitionLost` when the partition went to another member: it comes again there.
        """
        settling = self._require_settling()
        with self._mutex:
            return settling.retry(message, after, error)

    def reject(self, message: Message[Any], reason: str) -> None:
        """Make a message a dead letter, now, and commit it: it lies in `<topic>.dead` with its reason."""
        settling = self._require_settling()
        with self._mutex:
            settling.reject(message, reason)

    def process(
        self, handler: Callable[[Message[V]], object], *, workers: int = 1, retry: Retry | None = None,
        follow: bool = True, keep_order: bool = False,
    ) -> Summary:  # fmt: skip
        """Call `handler` with each message: commit it when that returns, try it again later when it raises.

        `workers` is how many threads handle messages at a time; 1 is the thread that calls. `retry` says
        when they are tried again, and when they become dead letters; else the reader's policy does. With
        `keep_order` messages of one key are handled one after the other, and wait while an earlier one
        waits; other keys go on. `follow=False` ends when nothing is left now; else `stop` ends it, when what
        runs is done, and so does Ctrl-C.
        """
        desk = self.desk(retry, keep_order, workers)
        run(self, desk, handler, workers=workers, follow=follow)
        return desk.summary

    def stop(self) -> None:
        """Have `process` end, from any thread or from its handler, when what runs is done."""
        self.is_stopped = True
        self._bell.ring()

    def seek(self, place: Place) -> None:
        """Go on from `place` in every partition it reads; with a consumer the place is stored at once."""
        self._require_open()
        with self._mutex:
            self._held.seek(place)
            self._ready = iter(())

    @property
    def assigned(self) -> list[Key]:
        """(topic, partition) of everything this reader reads now."""
        return sorted(
            source.key for source in list(self._held.sources.values()) if source.leaving_since is None
        )

    def lag(self) -> Lag:
        """What is stored in the partitions it reads and was not yet delivered: messages, bytes, seconds."""
        self._require_open()
        with self._mutex:
            self._unread()
            now = self._clock.now_ns()
            return Lag.total(lag_behind(source.log, source.cursor.offset, now) for source in self._held.order)

    def close(self) -> None:
        """Let go of all partitions; who waits in `receive` gets `Closed`. Never waits."""
        self._closed = self._closed or "the reader is closed"
        self.let_go()

    def __enter__(self) -> Reader[V]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def after_fork_in_child(self) -> None:
        self._closed = FORKED
        self._mutex = threading.RLock()
        self._ready = iter(())  # fetched for the parent

    def let_go(self) -> None:
        """Free all partitions and wake who waits: the reader, the store or the topic is closed."""
        self._ready = iter(())
        background.remove(self)
        self._end()
        self._bell.ring()

    # For the async twin.

    def take(self, done: Message[Any] | Batch[Any] | None, tx: Transactional) -> None:
        """Take part in a transaction, and have messages committed with it."""
        self._require_consumer()
        taking = self._takings.joined(tx)
        with self._mutex:
            for topic, partition, first, stop in ranges_of(done) if done is not None else ():
                waited = self._held.sources.get((topic, partition))
                if waited is not None and waited.retries is not None and waited.retries.out(first):
                    taking.add_due(waited, range(first, stop))
                    continue
                source = self._held.delivered(topic, partition, stop)
                if source is not None:
                    taking.add(source, first, stop)

    def desk(self, retry: Retry | None, keep_order: bool, workers: int) -> ProcessQueue:
        """Begin to process."""
        settling = self._require_settling()
        self.is_stopped = False
        policy = self._options.retry if retry is None else retry
        return ProcessQueue(
            self._held, settling, self._mutex, self._clock.now_ns, policy=policy, keep_order=keep_order
        )

    @contextmanager
    def following(self, follow: bool) -> Iterator[None]:
        """For a while, end at the end unless `follow`; a reader that was opened so always does."""
        before, self._follow = self._follow, self._follow and follow
        try:
            yield
        finally:
            self._follow = before

    @property
    def _sources(self) -> dict[Key, HeldPartition]:
        return self._held.sources

    @property
    def bell(self) -> Bell:
        """Rung when something was written; the async twin hears it too."""
        return self._bell

    @property
    def _follows(self) -> bool:
        return self._follow

    def poll(self, max_messages: int, max_bytes: int) -> Batch[V] | None:
        """What is there now, or None; never waits."""
        with self._mutex:
            self._require_open()
            self._tend_if_due()
            left = list(self._ready)
            if left:
                batch, self._ready = cut(left, max_messages, max_bytes)
                return batch
            found, source = self._turns.next(Asked(max_messages, max_bytes, self._follow, self._unread))
            if source is not None:
                self._ready_of = source
            return found

    def _reads_waiting(self) -> bool:
        """Whether the next `poll` looks into the files of messages that come again."""
        return any(s.retries is not None and s.retries.reads_files for s in list(self._held.order))

    def _next_ready(self) -> Message[V] | None:
        """The next message of those fetched before."""
        sharing = self._held.sharing
        is_due = sharing is not None and time.monotonic() >= sharing.due and not self._closed
        # Never waits: the async twin asks in its event loop, while a thread may be committing.
        if is_due and self._mutex.acquire(blocking=False):
            try:
                self._tend_if_due()
                if any(s.retries is not None and s.retries.seems_due for s in self._held.order):
                    self._unread()  # what comes again need not wait until all that was fetched is handled
            finally:
                self._mutex.release()
        return next(self._ready, None)

    def _hand_out(self, batch: Batch[V]) -> Message[V] | None:
        """The first message of a batch; the others are ready for the next calls."""
        if isinstance(batch, DueBatch):
            with self._mutex:
                batch.put_back(1)
            return batch[0]
        messages = iter(batch)
        first = next(messages, None)
        self._ready = messages  # from now on the thread that hands over may take them back
        return first

    def _put_back(self, batch: Batch[V]) -> None:
        """A batch that nobody got after all comes next, if it is still this reader's to deliver."""
        if isinstance(batch, DueBatch):
            batch.put_back()
        elif self._ready_of is not None and not self._ready_of.is_gone:
            self._ready = iter(batch)

    def _has_ready(self) -> bool:
        return length_hint(self._ready) > 0

    def _pause(self, deadline: float | None) -> float | None:
        """How long to wait for a hint; None when there is nothing to wait for."""
        self._require_open()
        sharing = self._held.sharing
        if not self._follow and (sharing is None or not sharing.is_waiting):
            return None
        pause = min((source.watch.pause_s for source in self._held.order), default=LOOK_AGAIN_S)
        if sharing is not None:
            pause = due.pause_s(self._held.order, min(pause, sharing.pause_s))
        return within(deadline, pause)

    def _hand_over(self) -> None:
        """In the thread of background.py: let other members have their share while the user is busy."""
        if self._closed or not self._mutex.acquire(blocking=False):
            return
        try:
            self._held.hand_over(self._unread)
        finally:
            self._mutex.release()

    # Inside.

    def _unread(self) -> None:
        """Take back what was fetched and not handed out: it was not delivered."""
        left = list(self._ready)
        if left and self._ready_of is not None and not self._ready_of.is_gone:
            self._ready_of.move_back(left[0].offset)

    def _tend_if_due(self) -> None:
        """See to the partitions that are shared; what was fetched of one that went is dropped."""
        sharing = self._held.sharing
        if sharing is not None and time.monotonic() >= sharing.due:
            self._held.tend(self._unread)
        if self._ready_of is not None and self._ready_of.is_gone:
            self._ready, self._ready_of = iter(()), None

    def _forget_ready(self, source: HeldPartition) -> None:
        """What was fetched of a partition comes again."""
        if self._ready_of is source:
            self._ready = iter(())

    def _require_consumer(self) -> None:
        self._require_open()
        if self.consumer is None:
            raise UsageError(
                "a reader without a consumer has nothing to commit to", hint="open it with consumer=…"
            )

    def _require_settling(self) -> Settlement:
        self._require_consumer()
        assert self._settling is not None
        return self._settling

    def _require_open(self) -> None:
        if self._closed:
            raise Closed(f"reader of {self._topics[0].name!r}: {self._closed}", hint="open a new one")
        for topic in self._topics:
            topic.require_open()


def open_reader(topics: Sequence[OpenTopic], options: ReaderOptions) -> Reader[Any]:
    """A reader of topics, of the kind that its options name."""
    from penstock.consume.queue_reader import QueueReader

    return QueueReader(topics, options) if options.is_queue else Reader(topics, options)
