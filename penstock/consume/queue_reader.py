"""The reader of a queue: takes messages of any partition for a time, beside other readers of its consumer.

A message that is not settled before its lease runs out comes again, to whichever reader asks next, and so
does at once what a reader had whose process died. `process` keeps its leases while handlers run.
"""

from __future__ import annotations

import random
import threading
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from penstock.consume import dead_letter_topic as dead
from penstock.consume import hand_over as background
from penstock.consume.assignment import declare, lost
from penstock.consume.dead_letter_topic import EXHAUSTED
from penstock.consume.lag import Lag, lag_behind
from penstock.consume.membership import QueueMember, members
from penstock.consume.options import ReaderOptions, Retry
from penstock.consume.partition import Gap, Key
from penstock.consume.process import ProcessQueue
from penstock.consume.queue_partition import LOOK_AGAIN_S, QueuePartition
from penstock.consume.reader import Reader
from penstock.consume.retries import error_text
from penstock.consume.settle import cut, ranges_of
from penstock.consume.transaction_part import Transactional
from penstock.errors import ConflictError, InvalidOption, UsageError, WrongType
from penstock.locks import FORKED, forget_in_child
from penstock.log.rows import MessageRows
from penstock.message import Batch, Message, V
from penstock.parse import Duration, wait_seconds
from penstock.place import Place
from penstock.topic.open_topic import OpenTopic
from penstock.wake import Bell, within


class QueueSettling:
    """A queue's reader as `process` needs it (`penstock.consume.desk`)."""

    sources: Mapping[Key, Any] = {}

    def __init__(self, reader: QueueReader[Any]) -> None:
        self._reader = reader

    def commit(self, topic: str, partition: int, first: int, stop: int) -> None:
        if self._reader._part(topic, partition).done(first, stop) < stop - first:
            raise lost(topic, partition)

    def is_settled(self, message: Message[Any]) -> bool:
        return not self._reader._part(message.topic, message.partition).has(message.offset)

    def retry(
        self, message: Message[Any], after: Duration | None, error: BaseException | str | None,
        policy: Retry | None = None,
    ) -> bool:  # fmt: skip
        return self._reader._retry(message, after, error, policy or self._reader._policy)

    def park(self, message: Message[Any], wait_s: float) -> None:
        raise AssertionError("a queue keeps no order")

    def deliver_again(self, messages: Iterable[Message[Any]]) -> None:
        """`process` ends: these were not handled, and are for anybody."""
        left: dict[Key, list[int]] = {}
        for message in messages:
            left.setdefault((message.topic, message.partition), []).append(message.offset)
        self._reader._renews = False
        for (topic, partition), offsets in left.items():
            self._reader._part(topic, partition).give_back(offsets)


_RAN_OUT = "it was not settled in time, or its process died"
#: Renewed once a second, it must outlast a machine that is busy for a moment.
_LEASE_LEAST_S = 3
#: So many messages `process` has in hand for each worker: enough to go on, few enough to leave others some.
_FOR_EACH_WORKER = 2


class QueueReader(Reader[V]):
    """One of the readers of a queue; not to be shared between threads. Use it with `with`."""

    fetches = 1

    def __init__(self, topics: Sequence[OpenTopic], options: ReaderOptions) -> None:
        assert options.consumer is not None
        self._topics = topics
        self._options = options
        self._clock = topics[0].clock
        self.consumer = options.consumer
        self._closed = ""
        self._bell = Bell()
        self._mutex = threading.RLock()
        self._turn = 0
        self._ready = iter(())
        self._ready_of = None
        self.gaps: list[Gap] = []
        self.skipped: list[Gap] = []
        self._follow = options.follow
        self.is_stopped = False
        self._policy = options.retry
        self._renews = False
        self._look_at = 0.0
        for topic in topics:
            _refuse_stream(topic, options.consumer)
            declare(topic, options.consumer, options)
        self._presence = QueueMember([topic.folder for topic in topics], topics[0].files)
        self._parts: dict[Key, QueuePartition] = {}
        forget_in_child(self)
        try:
            self._open_parts()
        except BaseException:
            self._presence.close()
            raise
        self._end = weakref.finalize(self, partial(_abandon, self._parts, self._presence))
        self._end.atexit = False
        for topic in topics:
            topic.readers.add(self)
        background.add(self)

    # Settling.

    def commit(self, done: Message[Any] | Batch[Any], *, tx: Transactional | None = None) -> None:
        """Messages are done, in any order: nobody gets them again.

        Raises `PartitionLost` when the lease of any ran out and another reader got it meanwhile, or the
        consumer was moved; the others are done.
        """
        if tx is not None:
            self.take(done, tx)
        self._require_open()
        missing: Key | None = None
        with self._mutex:
            for topic, partition, first, stop in ranges_of(done):
                if self._part(topic, partition).done(first, stop) < _count(done, partition, first, stop):
                    missing = topic, partition
        if missing is not None:
            raise lost(*missing)

    def retry(
        self, message: Message[Any], *, after: Duration | None = None,
        error: BaseException | str | None = None,
    ) -> bool:  # fmt: skip
        """Have a message come again later, to any reader of the queue, and commit it, in one step.

        It comes after `after`, or else as the reader's `retry` policy says, with `message.attempt` one
        higher; when that allows no further attempt it becomes a dead letter, and False is returned. Raises
        `PartitionLost` when its lease ran out and another reader has it.
        """
        self._require_open()
        with self._mutex:
            return self._retry(message, after, error, self._policy)

    def reject(self, message: Message[Any], reason: str) -> None:
        """Make a message a dead letter, now, and commit it: it lies in `<topic>.dead` with its reason."""
        if not isinstance(reason, str):
            raise WrongType(f"a reason is a str, not {type(reason).__name__}")
        self._require_open()
        with self._mutex:
            self._bury(message, error_text(reason), "")

    def take(self, done: Message[Any] | Batch[Any] | None, tx: Transactional) -> None:
        """Queues and transactions do not go together."""
        raise UsageError(
            "messages of a queue cannot be committed with a transaction",
            hint='kind="stream" moves its position with one; or commit behind it',
        )

    def desk(self, retry: Retry | None, keep_order: bool, workers: int) -> ProcessQueue:
        """Begin to process."""
        if keep_order:
            raise UsageError("a queue has no order", hint='kind="stream" keeps the order of keys')
        if self._options.lease_s < _LEASE_LEAST_S:
            raise UsageError(
                f"process renews leases once a second: {self._options.lease_s:g} s is too short for one",
                hint=f'lease="{_LEASE_LEAST_S}s" at least',
            )
        self._require_open()
        self.is_stopped = False
        policy = self._options.retry if retry is None else retry
        settling = QueueSettling(self)
        desk = ProcessQueue(
            settling, settling, self._mutex, self._clock.now_ns, policy=policy, keep_order=False,
            most=_FOR_EACH_WORKER * workers if isinstance(workers, int) else 1,
        )  # fmt: skip
        self._policy, self._renews = policy, True
        return desk

    def seek(self, place: Place) -> None:
        """Go on from `place` in every partition, for all readers of the queue; what is out is out no more."""
        self._require_open()
        now = self._clock.now_ns()
        with self._mutex:
            for topic in self._topics:
                places = topic.begin_all(place, now)
                topic.consumers.seek(self._name, topic.record.id, places, now)

    @property
    def assigned(self) -> list[Key]:
        """(topic, partition) of everything this reader reads now: all there is."""
        return sorted(self._parts)

    def lag(self) -> Lag:
        """What is stored and not done: messages, bytes, seconds."""
        self._require_open()
        now = self._clock.now_ns()
        return Lag.total(
            lag_behind(topic.log(each.partition), each.position, now)
            for topic in self._topics
            for each in topic.consumers.positions(topic.record.id, self._name)
        )

    def after_fork_in_child(self) -> None:
        self._closed = FORKED
        self._mutex = threading.RLock()
        self._ready = iter(())
        self._end()

    def let_go(self) -> None:
        """Give back what was not settled, and wake who waits."""
        self._closed = self._closed or "the store is closed"
        background.remove(self)
        undelivered: dict[Key, list[int]] = {}
        for message in self._ready:
            undelivered.setdefault((message.topic, message.partition), []).append(message.offset)
        self._ready = iter(())
        with self._mutex:
            parts = dict(self._parts)
            try:
                for key, part in parts.items():
                    part.give_back(undelivered.get(key, ()))
            finally:
                self._end()
        self._bell.ring()

    # For the async twin and `process`.

    def poll(self, max_messages: int, max_bytes: int) -> Batch[V] | None:
        """What is there now, or None; never waits."""
        with self._mutex:
            self._require_open()
            left = list(self._ready)
            if left:
                batch, self._ready = cut(left, max_messages, max_bytes)
                return batch
            self._look_around()
            parts = list(self._parts.values())
            for _ in parts:
                self._turn += 1
                found = self._poll_part(parts[self._turn % len(parts)], max_messages, max_bytes)
                if found is not None:
                    return found
        return None

    def _poll_part(self, part: QueuePartition, max_messages: int, max_bytes: int) -> Batch[V] | None:
        """Of one partition: what comes again, or else what is new."""
        name, skips = part.topic.name, self._options.skip_gaps
        decode = self._options.decoders.get(name)
        returned = part.take_free(max_messages, skip_gaps=skips, gaps=self.gaps)
        messages = [each.message for each in returned if not self._is_exhausted(*each)]
        if messages:
            return Batch(name, [MessageRows([each]) for each in messages], decode)
        rows = part.take_new(max_messages, max_bytes, skip_gaps=skips, gaps=self.gaps)
        return Batch(name, rows, decode) if rows else None

    def _is_exhausted(self, message: Message[Any], ran_out: bool) -> bool:
        """Whether readers that did not live to say so tried it as often as it may be: it is dead then."""
        if not ran_out or self._policy.wait_s(message.attempt - 1, 0.0) is not None:
            return False
        self._bury(message, EXHAUSTED, _RAN_OUT, attempts=message.attempt - 1)
        return True

    def _next_ready(self) -> Message[V] | None:
        return next(self._ready, None)

    def _hand_out(self, batch: Batch[V]) -> Message[V] | None:
        messages = iter(batch)
        first = next(messages, None)
        self._ready = messages
        return first

    def _put_back(self, batch: Batch[V]) -> None:
        """A batch that nobody got after all comes next."""
        self._ready = iter([*batch, *self._ready])

    def _reads_waiting(self) -> bool:
        return True  # each look may write

    def _pause(self, deadline: float | None) -> float | None:
        self._require_open()
        if not self._follow:
            return None
        with self._mutex:
            parts = list(self._parts.values())
            pause = min((min(part.pause_s(), part.watch.pause_s) for part in parts), default=LOOK_AGAIN_S)
        return within(deadline, pause)

    def _hand_over(self) -> None:
        """In the thread of background.py, while the user is busy: due messages are for others too."""
        if self._closed or not self._mutex.acquire(blocking=False):
            return
        try:
            for part in list(self._parts.values()):
                part.bring_due()
                if self._renews:
                    part.extend()
        finally:
            self._mutex.release()

    # Inside.

    @property
    def _name(self) -> str:
        assert self.consumer is not None
        return self.consumer

    def _look_around(self) -> None:
        """Once a second: partitions that were added, readers that died."""
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + LOOK_AGAIN_S
        for topic in self._topics:
            topic.refresh()
            topic.delayed.look()
            for log in topic.logs():
                log.help()
        self._open_parts()
        for part in self._parts.values():
            folder = part.topic.folder
            part.free_the_dead(lambda member, folder=folder: self._presence.is_alive(folder, member))  # type: ignore[misc]

    def _open_parts(self) -> None:
        lease_ms = max(round(self._options.lease_s * 1000), 1)
        for topic in self._topics:
            for number in range(len(topic)):
                if (topic.name, number) not in self._parts:
                    self._parts[topic.name, number] = QueuePartition(
                        topic, number, self._name, self._presence.member, lease_ms, self._bell.ring
                    )

    def _part(self, topic: str, partition: int) -> QueuePartition:
        part = self._parts.get((topic, partition))
        if part is None:
            raise InvalidOption(f"{topic!r} partition {partition} is not read by this reader")
        return part

    def _mine(self, message: Message[Any]) -> QueuePartition:
        """The partition of a message that this reader has."""
        if not isinstance(message, Message):
            raise WrongType(f"this takes a Message, not {type(message).__name__}")
        part = self._part(message.topic, message.partition)
        if not part.has(message.offset):
            raise lost(message.topic, message.partition)
        return part

    def _retry(
        self, message: Message[Any], after: Duration | None, error: BaseException | str | None, policy: Retry
    ) -> bool:
        part, text = self._mine(message), error_text(error)
        wait_s = policy.wait_s(message.attempt, random.random())
        asked_s = None if after is None else wait_seconds("after", after)
        if wait_s is None:
            self._bury(message, EXHAUSTED, text)
            return False
        found = part.enclosed(message)
        part.store(
            found.failed(text) if text else found, wait_s if asked_s is None else asked_s, message.attempt,
            fixed=asked_s is not None or policy.is_exact,
        )  # fmt: skip
        part.done(message.offset, message.offset + 1)
        return True

    def _bury(self, message: Message[Any], reason: str, error: str, attempts: int | None = None) -> None:
        part = self._mine(message)
        found = part.enclosed(message)
        tried = message.attempt if attempts is None else attempts
        letter = found.failed(error) if error else found
        dead.bury(part.topic, self._name, letter, attempts=tried, reason=reason)
        part.done(message.offset, message.offset + 1)


def _abandon(parts: dict[Key, QueuePartition], presence: QueueMember) -> None:
    """Let go of the files; others see that the reader is gone."""
    for part in parts.values():
        part.close()
    parts.clear()
    presence.close()


def _count(done: Message[Any] | Batch[Any], partition: int, first: int, stop: int) -> int:
    """How many messages of a range there are: some offsets may never have been given out."""
    if isinstance(done, Message):
        return 1
    return sum(len(rows) for rows in done.rows if rows.partition == partition and first <= rows.first < stop)


def _refuse_stream(topic: OpenTopic, consumer: str) -> None:
    """A consumer that readers share by partition now cannot be a queue at the same time."""
    if not topic.consumers.queues.is_queue(consumer, topic.record.id) and members(topic, consumer):
        raise ConflictError(
            f"consumer {consumer!r} of {topic.name!r} has readers that share partitions",
            hint="close them first, or choose another consumer",
        )
