"""`StreamReader`: the engine of a reader that has whole partitions, each in order, new and due in turn."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from operator import length_hint
from typing import Any

from penstock.consume import hand_over
from penstock.consume.assignment import LOOK_AGAIN_S, Assignment
from penstock.consume.lag import Lag, lag_behind
from penstock.consume.options import ReaderOptions, Retry, checked_policy
from penstock.consume.partition import Gap, HeldPartition, Key
from penstock.consume.read_quota import ReadQuotas
from penstock.consume.removed_parents import go_on_behind
from penstock.consume.settle import Settlement, checked_reason, cut, ranges_of
from penstock.consume.transaction_part import Transactional, TransactionParts
from penstock.errors import Closed, UsageError
from penstock.locks import FORKED, forget_in_child
from penstock.log.rows import MessageRows
from penstock.message import Batch, Message, Rows
from penstock.parse import Duration
from penstock.place import Place
from penstock.topic.open_topic import OpenTopic
from penstock.wake import Bell


class DueBatch(Batch[Any]):
    """Messages of one partition that waited; each is a run of its own, since others lie between them."""

    def __init__(
        self, source: HeldPartition, messages: Sequence[Message[Any]], decode: Callable[[bytes], Any] | None
    ) -> None:
        super().__init__(source.topic.name, [MessageRows([each]) for each in messages], decode)
        self.source = source


_FETCHES = 1000


class StreamReader:
    """Reads partitions as their only reader of a consumer, or all of them without one."""

    def __init__(self, topics: Sequence[OpenTopic], options: ReaderOptions) -> None:
        self._topics = topics
        self._options = options
        self._clock = topics[0].clock
        self.name = topics[0].name
        self.consumer = options.consumer
        self.follow = options.follow
        self.bell = Bell()
        #: Offsets that were skipped with on_gap="skip", oldest first.
        self.gaps: list[Gap] = []
        #: Offsets that were skipped because of `read_from` and `max_lag`, oldest first.
        self.skipped: list[Gap] = []
        self._closed = ""
        self._mutex = threading.RLock()  # against the thread that hands over
        self._assignment = Assignment(topics, options, self.bell.ring)
        self._fetched = self._assignment.fetched
        self._settlement: Settlement | None = None
        if options.consumer is not None:
            self._settlement = Settlement(self._assignment, options.consumer, options.retry)
        self._transactions = TransactionParts(self._assignment, self._mutex)
        self._quotas = ReadQuotas(topics, options.consumer)
        self._turn = 0
        self._policy = options.retry
        #: The partition that the last batch was read from, whether it had waited or not.
        self._source: HeldPartition | None = None
        #: Whether messages that waited have the next turn.
        self._due_first = True
        self._looked_at = time.monotonic()
        self._is_processing = False
        self._end = weakref.finalize(self, self._assignment.close)  # also when it is forgotten, never closed
        self._end.atexit = False
        forget_in_child(self)
        for topic in topics:
            topic.readers.add(self)
        if options.consumer is not None:
            hand_over.add(self)
            if not self._assignment.is_alone:
                hand_over.nudge()

    def __getitem__(self, key: Key) -> HeldPartition:
        """The partition of a topic's name and a number; raises `KeyError` if it is not held."""
        return self._assignment.held[key]

    # Delivering.

    @property
    def fetches(self) -> int:
        """How many messages to fetch at a time."""
        return _FETCHES

    def next(self) -> Message[Any] | None:
        """Return the next message that is fetched already, or None."""
        # Never waits: the async twin asks in its event loop, while a thread may be committing.
        if time.monotonic() >= self._assignment.due and not self._closed:
            self._look_meanwhile()
        return next(self._fetched.messages, None)

    def few(self, count: int) -> Iterator[Message[Any]]:
        """Return up to `count` messages that are fetched already."""
        return islice(self._fetched.messages, count)

    def poll(self, max_messages: int, max_bytes: int) -> Batch[Any] | None:
        """Read the next messages of one partition; None if there are none now."""
        with self._mutex:
            self.require_open()
            if time.monotonic() >= self._assignment.due:
                self._assignment.rebalance()
            left = list(self._fetched.messages)
            if left:
                batch, self._fetched.messages = cut(left, max_messages, max_bytes)
                return batch
            self._assignment.gates.by_commits = self._is_processing  # handlers may have it in other threads
            return self._poll(max_messages, max_bytes)

    def hand_out(self, batch: Batch[Any]) -> Message[Any] | None:
        """Keep a batch as fetched and return its first message."""
        messages = iter(batch.messages())
        first = next(messages, None)
        if isinstance(batch, DueBatch):
            self._fetched.keep(messages, batch.source, waited=True)
        else:
            self._fetched.keep(messages, self._source, waited=False)
        return first

    def put_back(self, batch: Batch[Any]) -> None:
        """Keep a batch as fetched, unless its partition is gone."""
        source = batch.source if isinstance(batch, DueBatch) else self._source
        if source is not None and not source.is_gone:
            self._fetched.keep(iter(batch.messages()), source, waited=isinstance(batch, DueBatch))

    @property
    def has_fetched(self) -> bool:
        """Whether messages are fetched that were not delivered yet."""
        return length_hint(self._fetched.messages) > 0

    @property
    def is_doubtful(self) -> bool:
        """Whether what comes next may have killed a process: one message at a time, then."""
        return any(source.is_doubtful for source in self._assignment.order)

    @property
    def reads_files(self) -> bool:
        """Whether the next `poll` reads files of waiting messages, and so may take a moment."""
        return any(s.retries is not None and s.retries.reads_files for s in self._assignment.order)

    def pause_s(self) -> float | None:
        """Return how long to wait before the next look; None if there is nothing to wait for."""
        self.require_open()
        held = self._quotas.pause_s()
        if held is None and not self.follow and not self._assignment.is_waiting:
            return None
        return self._assignment.pause_s if held is None else min(held, self._assignment.pause_s)

    # Settling.

    def commit(self, done: Message[Any] | Batch[Any]) -> None:
        """Commit a message or a batch."""
        settlement = self._require_consumer()
        with self._mutex:
            settlement.commit(done)

    def commit_range(self, topic: str, partition: int, first: int, stop: int) -> None:
        """Commit messages `first` to `stop` of a partition."""
        settlement = self._require_consumer()
        with self._mutex:
            settlement.commit_range(topic, partition, first, stop)

    def retry(
        self, message: Message[Any], after: Duration | None, error: BaseException | str | None,
        policy: Retry | None = None,
    ) -> bool:  # fmt: skip
        """Store a message for another attempt; return False if it became a dead letter instead."""
        settlement = self._require_consumer()
        with self._mutex:
            return settlement.retry(message, after, error, policy)

    def reject(self, message: Message[Any], reason: str) -> None:
        """Make a message a dead letter."""
        settlement = self._require_consumer()
        checked_reason(reason)
        with self._mutex:
            settlement.reject(message, reason)

    def park(self, message: Message[Any], wait_s: float) -> None:
        """Store a message until an earlier one of its key is done; it costs no attempt."""
        settlement = self._require_consumer()
        with self._mutex:
            settlement.park(message, wait_s)

    def is_settled(self, message: Message[Any]) -> bool:
        """Whether the message is done: committed, stored for later, or a dead letter."""
        assert self._settlement is not None
        with self._mutex:
            return self._settlement.is_settled(message)

    def blocked_ms(self, message: Message[Any]) -> int | None:
        """Return how long until an earlier message of the key is due; None if none waits."""
        with self._mutex:
            source = self._assignment.held.get((message.topic, message.partition))
            if source is None or source.retries is None or message.key is None:
                return None
            due_ms = source.retries.earlier_due_ms(message.key, message.offset)
            return None if due_ms is None else max(due_ms - self._clock.now_ns() // 1_000_000, 0)

    def join(self, tx: Transactional, done: Message[Any] | Batch[Any] | None) -> None:
        """Commit messages with a transaction; None joins without any yet."""
        settlement = self._require_consumer()
        part = self._transactions.joined(tx)
        with self._mutex:
            for topic, partition, first, stop in ranges_of(done) if done is not None else ():
                waited = self._assignment.held.get((topic, partition))
                if waited is not None and waited.retries is not None and waited.retries.out(first):
                    part.add_due(waited, range(first, stop))
                    continue
                source = settlement.delivered(topic, partition, stop)
                if source is not None:
                    part.add(source, first, stop)

    def begin_process(self, policy: Retry | None, *, keep_order: bool) -> Retry:
        """Prepare for `process` and return the policy."""
        settlement = self._require_consumer()
        self._policy = self._options.retry if policy is None else checked_policy(policy)
        with self._mutex:
            settlement.store_late()
        self._is_processing = True
        self._assignment.gates.by_retries = keep_order
        return self._policy

    def deliver_again(self, messages: Iterable[Message[Any]]) -> None:
        """Deliver messages again that were not handled."""
        assert self._settlement is not None
        with self._mutex:
            self._is_processing = self._assignment.gates.by_retries = False
            self._settlement.deliver_again(messages)

    # Partitions.

    def seek(self, place: Place) -> None:
        """Move the reader, and its consumer, to a place."""
        self.require_open()
        now = self._clock.now_ns()
        with self._mutex:
            self._assignment.take_drained()
            begins = {s: s.topic.begin(s.partition, place, now) for s in self._assignment.order}
            if self._settlement is not None:
                self._settlement.store_places(begins)
            self._assignment.left_behind.clear()
            for source, begin in begins.items():
                source.move(begin)
            self._assignment.gates.shut()
            self._assignment.tell()
            self._fetched.keep(iter(()), None, waited=False)

    @property
    def assigned(self) -> list[Key]:
        """The partitions that the reader has and is not about to hand over."""
        return sorted(source.key for source in self._assignment.order if source.leaving_since is None)

    def lag(self) -> Lag:
        """Return how far the reader is behind, over all its partitions."""
        self.require_open()
        with self._mutex:
            self._fetched.take_back()
            now = self._clock.now_ns()
            return Lag.total(lag_behind(s.log, s.cursor.offset, now) for s in self._assignment.order)

    def hand_over(self) -> None:
        """Hand over partitions that others wait for, unless the reader is busy."""
        if self._closed or not self._mutex.acquire(blocking=False):
            return
        try:
            self._assignment.hand_over()
            if self._assignment.was_expelled or self._is_due():
                self._assignment.look_soon()
                self._fetched.take_back()  # it need not wait until all that was fetched is handled
        finally:
            self._mutex.release()

    def close(self) -> None:
        """Close the reader and release its partitions."""
        self._closed = self._closed or "the reader is closed"
        self.let_go()

    def let_go(self) -> None:
        """Release all partitions and wake the thread that waits."""
        self._fetched.messages = iter(())
        hand_over.remove(self)
        self._end()
        self._quotas.close()
        self.bell.ring()

    def after_fork_in_child(self) -> None:
        """Close in the child: what was fetched is for the parent."""
        self._closed = FORKED
        self._mutex = threading.RLock()
        self._fetched.messages = iter(())

    def require_open(self) -> None:
        """Raise `Closed` if the reader, its store or a topic was closed."""
        if self._closed:
            raise Closed(f"reader of {self.name!r}: {self._closed}", hint="open a new one")
        for topic in self._topics:
            if topic.ended:
                topic.require_open()

    # Inside.

    def _look_meanwhile(self) -> None:
        """Between two messages that were fetched together: was it kicked, is something due?"""
        if self._mutex.acquire(blocking=False):
            try:
                self._assignment.rebalance()
                if self._is_due():
                    self._fetched.take_back()  # what is due need not wait until all that was fetched is done
            finally:
                self._mutex.release()

    def _is_due(self) -> bool:
        return any(s.retries is not None and s.retries.seems_due for s in self._assignment.order)

    def _poll(self, max_messages: int, max_bytes: int) -> Batch[Any] | None:
        """What waited and what is new take turns, so that neither has to wait for the other to end."""
        batch: Batch[Any] | None = self._due(max_messages, max_bytes) if self._due_first else None
        if batch is not None:
            self._due_first = False
            return batch
        batch = self._new(max_messages, max_bytes)
        if batch is None and not self._due_first:
            batch = self._due(max_messages, max_bytes)
        self._due_first = True
        return batch

    def _due(self, max_messages: int, max_bytes: int) -> DueBatch | None:
        """What is due now of the first partition that has something; mostly None."""
        for source in self._assignment.order:
            if source.retries is None or source.leaving_since is not None or not source.is_settled():
                continue
            messages = source.retries.take(max_messages, max_bytes)
            if messages:
                return DueBatch(source, messages, self._options.decoders.get(source.topic.name))
        return None

    def _new(self, max_messages: int, max_bytes: int) -> Batch[Any] | None:
        """What the log has, of the partition whose turn it is."""
        if self.consumer is None and self.follow:
            self._look()  # also when there is always something to read
        self._go_on_behind_removed()
        while True:
            gaps, order = len(self.gaps), self._assignment.order
            for _ in range(len(order)):
                source = order[self._turn % len(order)]
                self._turn += 1
                if source.is_gone or not self._assignment.may_read(source):
                    continue
                rows = self._quotas.read(source.topic, max_bytes, partial(self._read, source, max_messages))
                if source.passed_over and not self._has_stored_skipped(source):
                    break
                if rows and source.doubt is not None and self._settlement is not None:
                    rows = self._settlement.deliver_noted(source, rows, self._policy)
                    if not rows:
                        break
                if rows:
                    self._source, name = source, source.name
                    return Batch(name, rows, self._options.decoders.get(name))
            else:
                if len(self.gaps) == gaps and not self._look():  # a gap that was skipped may open a partition
                    return None

    def _has_stored_skipped(self, source: HeldPartition) -> bool:
        return self._settlement is None or self._settlement.store_skipped(source)

    def _read(self, source: HeldPartition, max_messages: int, max_bytes: int) -> list[Rows]:
        most = 1 if source.is_doubtful else max_messages
        skips = self._options.skip_gaps
        return source.read(most, max_bytes, skip_gaps=skips, gaps=self.gaps, skipped=self.skipped)

    def _go_on_behind_removed(self) -> None:
        """Report what was not read of partitions that are gone, and go on in their children."""
        behind = self._assignment.left_behind
        while behind:
            topic, gaps = next(iter(behind.items()))
            assert self.consumer is not None
            self.gaps += go_on_behind(topic, self.consumer, gaps, skip=self._options.skip_gaps)
            del behind[topic]

    def _look(self) -> bool:
        """Once a second, and at the end without `follow`: did someone add partitions, or drop the topic?"""
        now = time.monotonic()
        if now - self._looked_at < LOOK_AGAIN_S and self.follow:
            return False
        self._looked_at = now
        return self._assignment.look()

    def _require_consumer(self) -> Settlement:
        self.require_open()
        if self._settlement is None:
            raise UsageError(
                "a reader without a consumer has nothing to commit to", hint="open it with consumer=…"
            )
        return self._settlement
