"""`QueueReader`: the engine of a reader that takes single messages of any partition, each under a lease.

A message that is not settled before its lease runs out is delivered again, to whichever reader asks next;
so is, without delay, what a reader had whose process died. `process` keeps its leases while handlers run.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from operator import length_hint
from typing import Any

from penstock.consume import dead_letter_topic, hand_over
from penstock.consume.assignment import create_consumer, lost
from penstock.consume.dead_letter_topic import DIED, EXHAUSTED, deaths
from penstock.consume.lag import Lag, lag_behind
from penstock.consume.membership import QueueMember, members
from penstock.consume.options import ReaderOptions, Retry, checked_policy
from penstock.consume.partition import Gap, Key
from penstock.consume.queue_partition import LOOK_AGAIN_S, QueuePartition
from penstock.consume.read_quota import ReadQuotas
from penstock.consume.removed_parents import go_on_behind, left_behind
from penstock.consume.settle import checked_reason, cut, ranges_of, wait_after
from penstock.consume.transaction_part import Transactional
from penstock.errors import Closed, ConflictError, InvalidOption, UsageError, WrongType
from penstock.locks import FORKED, forget_in_child
from penstock.log.rows import MessageRows
from penstock.message import Batch, Message
from penstock.parse import Duration
from penstock.place import Place
from penstock.topic.open_topic import OpenTopic
from penstock.wake import Bell

_RAN_OUT = "it was not settled in time"
#: Renewed once a second, it must outlast a machine that is busy for a moment.
_LEASE_LEAST_S = 3
#: A message that is settled so soon leaves no time for others to miss those that were fetched with it.
_QUICK_S = 0.001
_FETCH_MOST = 32


class QueueReader:
    """One of the readers of a queue."""

    reads_files = True  # each look may write

    def __init__(self, topics: Sequence[OpenTopic], options: ReaderOptions) -> None:
        assert options.consumer is not None
        self._topics = topics
        self._options = options
        self._clock = topics[0].clock
        self._name = options.consumer
        self.name = topics[0].name
        self.consumer: str | None = options.consumer
        self.follow = options.follow
        self.bell = Bell()
        self.gaps: list[Gap] = []
        self.skipped: list[Gap] = []
        self._closed = ""
        self._mutex = threading.RLock()
        self._turn = 0
        self._fetched: Iterator[Message[Any]] = iter(())
        #: When `next` was last called, and how many messages in a row were settled soon after.
        self._delivered_at = time.monotonic()
        self._quick = 0
        self._policy = options.retry
        self._renews = False
        self._look_at = 0.0
        self._quotas = ReadQuotas(topics, options.consumer)
        for topic in topics:
            _refuse_stream(topic, options.consumer)
            create_consumer(topic, options.consumer, options)
        self._member = QueueMember([topic.folder for topic in topics], topics[0].files)
        self._partitions: dict[Key, QueuePartition] = {}
        forget_in_child(self)
        try:
            self._open_partitions()
        except BaseException:
            self._member.close()
            raise
        self._end = weakref.finalize(self, partial(_abandon, self._partitions, self._member))
        self._end.atexit = False
        for topic in topics:
            topic.readers.add(self)
        hand_over.add(self)

    # Delivering.

    @property
    def fetches(self) -> int:
        """One, so that the next message is for others; a few where each is settled within no time."""
        return 1 if self._quick < _FETCH_MOST or self._options.lease_s < _LEASE_LEAST_S else _FETCH_MOST

    def next(self) -> Message[Any] | None:
        """Return the next message that is fetched already, or None; never waits."""
        message = next(self._fetched, None)
        self._delivered_at = time.monotonic()
        return message

    def few(self, count: int) -> Iterator[Message[Any]]:
        """Return nothing: each message of a queue has a lease of its own."""
        return iter(())  # each message has its own time

    def poll(self, max_messages: int, max_bytes: int) -> Batch[Any] | None:
        """Lease the next messages and return them; None if there are none now."""
        with self._mutex:
            self.require_open()
            left = list(self._fetched)
            if left:
                batch, self._fetched = cut(left, max_messages, max_bytes)
                return batch
            self._look_around()
            partitions = list(self._partitions.values())
            for _ in partitions:
                self._turn += 1
                chosen = partitions[self._turn % len(partitions)]
                found = self._poll_partition(chosen, max_messages, max_bytes)
                if found is not None:
                    return found
        return None

    def hand_out(self, batch: Batch[Any]) -> Message[Any] | None:
        """Keep a batch as fetched and return its first message."""
        messages = iter(batch.messages())
        first = next(messages, None)
        self._fetched = messages
        return first

    def put_back(self, batch: Batch[Any]) -> None:
        """Put a batch back before what is fetched already."""
        self._fetched = iter([*batch, *self._fetched])

    @property
    def has_fetched(self) -> bool:
        """Whether messages are fetched that were not delivered yet."""
        return length_hint(self._fetched) > 0

    @property
    def is_doubtful(self) -> bool:
        """Whether what comes next may have killed a process: one message at a time, then."""
        return any(part.doubtful is not None for part in self._partitions.values())

    def pause_s(self) -> float | None:
        """Return how long to wait before the next look; None if there is nothing to wait for."""
        self.require_open()
        held = self._quotas.pause_s()
        if not self.follow:
            return held
        with self._mutex:
            every = self._partitions.values()
            pauses = [min(each.pause_s(), each.watch.pause_s) for each in every]
            return min(pauses + ([] if held is None else [held]), default=LOOK_AGAIN_S)

    # Settling.

    def commit(self, done: Message[Any] | Batch[Any]) -> None:
        """Finish a message or a batch; raise `PartitionLost` if a lease has expired."""
        self.require_open()
        missing: Key | None = None
        with self._mutex:
            if isinstance(done, Message):
                is_quick = time.monotonic() - self._delivered_at < _QUICK_S
                self._quick = self._quick + 1 if is_quick else 0
                self.commit_range(done.topic, done.partition, done.offset, done.offset + 1)
                return
            for topic, partition, first, stop in ranges_of(done):
                if self._of(topic, partition).done(first, stop) < _count(done, partition, first, stop):
                    missing = topic, partition
        if missing is not None:
            raise lost(*missing)

    def commit_range(self, topic: str, partition: int, first: int, stop: int) -> None:
        """Finish messages `first` to `stop`; raise `PartitionLost` if a lease has expired."""
        with self._mutex:
            if self._of(topic, partition).done(first, stop) < stop - first:
                raise lost(topic, partition)

    def retry(
        self, message: Message[Any], after: Duration | None, error: BaseException | str | None,
        policy: Retry | None = None,
    ) -> bool:  # fmt: skip
        """Free a message for another attempt; return False if it became a dead letter instead."""
        self.require_open()
        with self._mutex:
            part = self._mine(message)
            chosen = policy or self._policy
            wait_s = wait_after(message.attempt, after, chosen)
            if wait_s is None:
                self._add_letter(message, EXHAUSTED, error)
                return False
            fixed = after is not None or chosen.is_exact
            part.store(part.enclosed(message).failed(error), wait_s, message.attempt, fixed=fixed)
            part.done(message.offset, message.offset + 1)
            return True

    def reject(self, message: Message[Any], reason: str) -> None:
        """Make a message a dead letter."""
        text = checked_reason(reason)
        self.require_open()
        with self._mutex:
            self._add_letter(message, text, None)

    def park(self, message: Message[Any], wait_s: float) -> None:
        """Refuse: a queue keeps no order, so nothing waits for an earlier message."""
        raise AssertionError("a queue keeps no order")

    def is_settled(self, message: Message[Any]) -> bool:
        """Whether this reader no longer has the message."""
        with self._mutex:
            return not self._of(message.topic, message.partition).has(message.offset)

    def blocked_ms(self, message: Message[Any]) -> int | None:
        """Return None: no message of a queue waits for an earlier one."""
        return None  # a queue keeps no order

    def join(self, tx: Transactional, done: Message[Any] | Batch[Any] | None) -> None:
        """Refuse: messages of a queue are not committed with a transaction."""
        raise UsageError(
            "messages of a queue cannot be committed with a transaction",
            hint='kind="stream" moves its position with one; or commit behind it',
        )

    def begin_process(self, policy: Retry | None, *, keep_order: bool) -> Retry:
        """Prepare for `process` and return the policy; leases are renewed from now on."""
        if keep_order:
            raise UsageError("a queue has no order", hint='kind="stream" keeps the order of keys')
        if self._options.lease_s < _LEASE_LEAST_S:
            raise UsageError(
                f"process renews leases once a second: {self._options.lease_s:g} s is too short for one",
                hint=f'lease="{_LEASE_LEAST_S}s" at least',
            )
        self.require_open()
        self._policy = self._options.retry if policy is None else checked_policy(policy)
        self._renews = True
        return self._policy

    def deliver_again(self, messages: Iterable[Message[Any]]) -> None:
        """Give back messages that were not handled."""
        left: dict[Key, list[int]] = {}
        for message in messages:
            left.setdefault((message.topic, message.partition), []).append(message.offset)
        self._renews = False
        with self._mutex:
            for key, offsets in left.items():
                self._of(*key).give_back(offsets)

    # Partitions.

    def seek(self, place: Place) -> None:
        """Move the queue to a place, in every partition."""
        self.require_open()
        now = self._clock.now_ns()
        with self._mutex:
            self._fetched = iter(())
            for topic in self._topics:
                places = topic.begin_all(place, now)
                topic.consumers.seek(self._name, topic.record.id, places, now)

    @property
    def assigned(self) -> list[Key]:
        """The partitions that the reader reads: all."""
        return sorted(self._partitions)

    def lag(self) -> Lag:
        """What is stored and not done: messages, bytes, seconds."""
        self.require_open()
        now = self._clock.now_ns()
        return Lag.total(
            lag_behind(topic.log(each.partition), each.position, now)
            for topic in self._topics
            for each in topic.consumers.positions(topic.record.id, self._name)
        )

    def hand_over(self) -> None:
        """Let others have what is due, and keep the leases of a `process`."""
        if self._closed or not self._mutex.acquire(blocking=False):
            return
        try:
            if time.monotonic() - self._delivered_at > LOOK_AGAIN_S:
                self._put_back_fetched()
            for part in list(self._partitions.values()):
                part.bring_due()
                part.store_position()
                if self._renews:
                    part.extend()
        finally:
            self._mutex.release()

    def close(self) -> None:
        """Close the reader and give its messages back."""
        self._closed = self._closed or "the reader is closed"
        self.let_go()

    def let_go(self) -> None:
        """Give back what was not settled, and wake the thread that waits."""
        self._closed = self._closed or "the store is closed"
        hand_over.remove(self)
        undelivered = self._take_fetched()
        with self._mutex:
            partitions = dict(self._partitions)
            try:
                for key, part in partitions.items():
                    part.give_back(undelivered.get(key, ()))
            finally:
                self._end()
                self._quotas.close()
        self.bell.ring()

    def after_fork_in_child(self) -> None:
        """Close in the child: everything is the parent's."""
        self._closed = FORKED
        self._mutex = threading.RLock()
        self._fetched = iter(())
        self._end()

    def require_open(self) -> None:
        """Raise `Closed` if the reader, its store or a topic was closed."""
        if self._closed:
            raise Closed(f"reader of {self.name!r}: {self._closed}", hint="open a new one")
        for topic in self._topics:
            topic.require_open()

    # Inside.

    def _take_fetched(self) -> dict[Key, list[int]]:
        """The offsets of what was fetched and not delivered; nobody else gets them."""
        found: dict[Key, list[int]] = {}
        for message in list(self._fetched):
            found.setdefault((message.topic, message.partition), []).append(message.offset)
        return found

    def _put_back_fetched(self) -> None:
        """The user is busy: let others have what was fetched ahead."""
        self._quick = 0
        for key, offsets in self._take_fetched().items():
            self._of(*key).put_back(offsets)

    def _poll_partition(self, part: QueuePartition, max_messages: int, max_bytes: int) -> Batch[Any] | None:
        """Of one partition: what was out before or waited, or else what is new."""
        name, skips = part.topic.name, self._options.skip_gaps
        decode = self._options.decoders.get(name)
        for always in (False, True):
            returned = part.take_free(max_messages, always=always, skip_gaps=skips, gaps=self.gaps)
            messages = [each.message for each in returned if not self._is_exhausted(*each)]
            if messages:
                return Batch(name, [MessageRows([each]) for each in messages], decode)
            take = partial(part.take_new, max_messages, skip_gaps=skips, gaps=self.gaps)
            rows = self._quotas.read(part.topic, max_bytes, take)
            if rows:
                return Batch(name, rows, decode)
        return None

    def _is_exhausted(self, message: Message[Any], ran_out: bool, died: bool) -> bool:
        """Whether readers that did not live to say so tried it as often as it may be: it is dead then."""
        if not ran_out or self._policy.wait_s(message.attempt - 1, 0.0) is not None:
            return False
        tried = message.attempt - 1
        if died:
            self._add_letter(message, DIED, deaths(tried), attempts=tried)
        else:
            self._add_letter(message, EXHAUSTED, _RAN_OUT, attempts=tried)
        return True

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
        self._open_partitions()
        for topic in self._topics:
            gaps = left_behind(topic, self._name)
            self.gaps += go_on_behind(topic, self._name, gaps, skip=self._options.skip_gaps)
        for part in self._partitions.values():
            part.free_the_dead(partial(self._member.is_alive, part.topic.folder))

    def _open_partitions(self) -> None:
        lease_ms = max(round(self._options.lease_s * 1000), 1)
        for topic in self._topics:
            for number in topic.numbers():
                if (topic.name, number) not in self._partitions:
                    self._partitions[topic.name, number] = QueuePartition(
                        topic, number, self._name, self._member.member, lease_ms, self.bell.ring
                    )

    def _of(self, topic: str, partition: int) -> QueuePartition:
        part = self._partitions.get((topic, partition))
        if part is None:
            raise InvalidOption(f"{topic!r} partition {partition} is not read by this reader")
        return part

    def _mine(self, message: Message[Any]) -> QueuePartition:
        """The partition of a message that this reader has."""
        if not isinstance(message, Message):
            raise WrongType(f"this takes a Message, not {type(message).__name__}")
        part = self._of(message.topic, message.partition)
        if not part.has(message.offset):
            raise lost(message.topic, message.partition)
        return part

    def _add_letter(
        self,
        message: Message[Any],
        reason: str,
        error: BaseException | str | None,
        attempts: int | None = None,
    ) -> None:
        part = self._mine(message)
        found = part.enclosed(message)
        tried = message.attempt if attempts is None else attempts
        dead_letter_topic.add_letter(
            part.topic, self._name, found.failed(error), attempts=tried, reason=reason
        )
        part.done(message.offset, message.offset + 1)


def _abandon(partitions: dict[Key, QueuePartition], member: QueueMember) -> None:
    """Close the files; others see that the reader is gone."""
    for part in partitions.values():
        part.close()
    partitions.clear()
    member.close()


def _count(done: Batch[Any], partition: int, first: int, stop: int) -> int:
    """How many messages of a range there are: some offsets may never have been given out."""
    return sum(len(rows) for rows in done.rows if rows.partition == partition and first <= rows.first < stop)


def _refuse_stream(topic: OpenTopic, consumer: str) -> None:
    """Raise for a consumer that readers share by partition now: it cannot be a queue at the same time."""
    if not topic.consumers.queues.is_queue(consumer, topic.record.id) and members(topic, consumer):
        raise ConflictError(
            f"consumer {consumer!r} of {topic.name!r} has readers that share partitions",
            hint="close them first, or choose another consumer",
        )
