"""Commit, retry, reject, deliver again: what becomes of a message that a reader delivered.

Retrying and rejecting are two steps, in this order: the message is durable in its new place, then it is
committed in the old one. A process that is killed in between leaves it in both, and it is delivered twice; it
is never in neither.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import msgspec

from penstock.consume import dead_letter_topic
from penstock.consume.assignment import Assignment, lost
from penstock.consume.dead_letter_topic import DIED, EXHAUSTED, deaths
from penstock.consume.options import Retry
from penstock.consume.partition import HeldPartition
from penstock.consume.removed_parents import pass_removed
from penstock.consume.retries import Envelope, enclosed, error_text
from penstock.errors import InvalidOption, PartitionLost, UnknownConsumer, UsageError, WrongType
from penstock.log.rows import MessageRows
from penstock.message import Batch, Message, Rows, V
from penstock.parse import Duration, wait_seconds

logger = logging.getLogger("penstock.reader")

#: (topic, partition, first offset, offset behind the last)
Range = tuple[str, int, int, int]


def ranges_of(done: Message[Any] | Batch[Any]) -> list[Range]:
    """Group messages into runs of neighbours."""
    if isinstance(done, Message):
        return [(done.topic, done.partition, done.offset, done.offset + 1)]
    if isinstance(done, Batch):
        return _joined((done.topic, rows.partition, rows.first, rows.stop) for rows in done.rows)
    raise WrongType(f"commit takes a Message or a Batch, not {type(done).__name__}")


def _joined(ranges: Iterable[Range]) -> list[Range]:
    """Neighbours as one: messages that waited are runs of one each."""
    found: list[Range] = []
    for topic, partition, first, stop in ranges:
        if found and found[-1][1] == partition and found[-1][3] == first:
            found[-1] = (topic, partition, found[-1][2], stop)
        else:
            found.append((topic, partition, first, stop))
    return found


def cut(left: list[Message[V]], max_messages: int, max_bytes: int) -> tuple[Batch[V], Iterator[Message[V]]]:
    """As much of what `receive` has not delivered yet as the limits allow, and what is left then."""
    count = weight = 0
    for message in left[:max_messages]:
        weight += len(message.key or b"") + len(message.stored or b"")
        if count and weight > max_bytes:
            break
        count += 1
    return Batch(left[0].topic, (MessageRows(left[:count]),)), iter(left[count:])


class Settlement:
    """Settles messages for one reader of a consumer; used under its mutex."""

    def __init__(self, assignment: Assignment, consumer: str, policy: Retry) -> None:
        self._assignment = assignment
        self._held = assignment.held
        self._consumer = consumer
        self._policy = policy
        self._clock = assignment.topics[0].clock

    # Committing.

    def commit(self, done: Message[Any] | Batch[Any]) -> None:
        """Commit messages, in any order."""
        if isinstance(done, Message):
            if done.attempt > 1:
                self._require_held(done.topic, done.partition)
            self.commit_range(done.topic, done.partition, done.offset, done.offset + 1)
            return
        for topic, partition, first, stop in ranges_of(done):
            self.commit_range(topic, partition, first, stop)

    def commit_range(self, topic: str, partition: int, first: int, stop: int) -> None:
        """Commit messages `first` to `stop`, whether the log delivered them or they had waited."""
        source = self._held.get((topic, partition))
        if source is None or source.commits.delivered < stop or source.has_waited:
            if self._finish(topic, partition, first, stop):
                return
            source = self.delivered(topic, partition, stop)
            if source is None:
                return
        self._commit_delivered(source, first, stop)

    def store_late(self) -> None:
        """Store positions whose storing failed, if nothing has been committed since."""
        for source in list(self._held.values()):
            if source.commits.position > source.stored:
                with suppress(PartitionLost):  # it is another member's, who begins at what is stored
                    self._store(source)

    def store_skipped(self, source: HeldPartition) -> bool:
        """Store that something was skipped, if all before it is done; False if the partition is lost."""
        is_new, source.passed_over = source.passed_over, False
        if not is_new or source.commits.position <= source.stored:
            return True
        try:
            self._store(source)
        except PartitionLost:
            return False  # nobody has got anything of it: the member that has it now skips it too
        return True

    def store_places(self, places: dict[HeldPartition, int]) -> None:
        """Store other positions; raises `PartitionLost` when one of the partitions is another member's."""
        for topic in self._assignment.topics:
            chosen = {source: at for source, at in places.items() if source.topic is topic}
            epochs = topic.consumers.seek(
                self._consumer,
                topic.record.id,
                {source.partition: at for source, at in chosen.items()},
                self._clock.now_ns(),
                {source.partition: source.epoch for source in chosen},
            )
            for source in chosen:
                source.epoch = epochs[source.partition]
            pass_removed(topic, self._consumer)

    def delivered(self, topic: str, partition: int, stop: int) -> HeldPartition | None:
        """The partition from which messages up to `stop` were delivered; None when they are long done."""
        source = self._held.get((topic, partition))
        if source is not None and stop <= source.commits.delivered:
            return source
        why = "is not read by this reader"
        if source is not None:
            why = f"offset {stop - 1} was not delivered by this reader"
        before = self._assignment.tenure(topic, partition)
        if before is None or stop > before.delivered:
            raise InvalidOption(f"{topic!r} partition {partition}: {why}")
        if stop > before.position:
            raise lost(topic, partition)
        return None

    # What could not be handled.

    def retry(
        self, message: Message[Any], after: Duration | None, error: BaseException | str | None,
        policy: Retry | None = None,
    ) -> bool:  # fmt: skip
        """Store a message for another attempt; False when there is none left, and it is a dead letter."""
        source, found = self._unsettled(message)
        failed = found.failed(error)
        chosen = policy or self._policy
        wait_s = wait_after(message.attempt, after, chosen)
        if wait_s is None:
            self._add_letter(source, message, failed, EXHAUSTED)
            return False
        assert source.retries is not None
        fixed = after is not None or chosen.is_exact
        source.retries.store(failed, wait_s=wait_s, attempts=message.attempt, fixed=fixed)
        self._commit(source, message)
        return True

    def reject(self, message: Message[Any], reason: str) -> None:
        """Make a message a dead letter."""
        source, found = self._unsettled(message)
        self._add_letter(source, message, found, checked_reason(reason))

    def park(self, message: Message[Any], wait_s: float) -> None:
        """Have a message wait behind an earlier one of its key; that is no attempt."""
        source, found = self._unsettled(message)
        assert source.retries is not None
        source.retries.store(found, wait_s=wait_s, attempts=message.attempt - 1)
        self._commit(source, message)

    def is_settled(self, message: Message[Any]) -> bool:
        """Whether nothing is left to decide: it was committed, stored or rejected, or is not ours now."""
        source = self._held.get((message.topic, message.partition))
        if source is None or source.retries is None:
            return True
        return not source.retries.out(message.offset) and source.commits.is_done(message.offset)

    def deliver_again(self, messages: Iterable[Message[Any]]) -> None:
        """Have messages delivered again that nobody handled, where they are still this reader's."""
        begins: dict[HeldPartition, int] = {}
        for message in messages:
            source = self._held.get((message.topic, message.partition))
            if source is None or source.retries is None:
                continue
            if source.retries.out(message.offset):
                source.retries.put_back([message.offset])
            elif not source.commits.is_done(message.offset):
                begins[source] = min(begins.get(source, message.offset), message.offset)
        for source, begin in begins.items():
            source.deliver_again(begin)
        if begins:
            self._assignment.gates.shut()

    # Messages that a process died with.

    def deliver_noted(self, source: HeldPartition, rows: list[Rows], policy: Retry) -> list[Rows]:
        """Note what goes out of a partition under suspicion; what killed its process too often does not.

        Returns what is delivered: of doubtful messages one, with how often it was tried.
        """
        doubt, noted = source.doubt, source.topic.consumers.deaths
        assert doubt is not None
        message = rows[0].messages()[0]
        if message.offset >= doubt.until:
            if rows[-1].stop > doubt.reach:
                noted.note_reach(self._place(source), rows[-1].stop)
                source.doubt = doubt._replace(reach=rows[-1].stop)
            return rows
        if message.offset == doubt.alone:
            if policy.wait_s(doubt.deaths) is None:
                self._add_culprit(source, message, doubt.deaths)
                return []
            return [MessageRows([msgspec.structs.replace(message, attempt=doubt.deaths + 1)])]
        noted.note_alone(self._place(source), message.offset)
        source.doubt = doubt._replace(alone=message.offset)
        return [MessageRows([message])]

    def _add_culprit(self, source: HeldPartition, message: Message[Any], count: int) -> None:
        found = enclosed(message, source.topic.record.id).failed(deaths(count))
        dead_letter_topic.add_letter(source.topic, self._consumer, found, attempts=count, reason=DIED)
        logger.error("%s/%d offset %d is a dead letter: %s", *source.key, message.offset, deaths(count))
        self._commit(source, message)

    def _place(self, source: HeldPartition) -> tuple[str, int, int]:
        return self._consumer, source.topic.record.id, source.partition

    # Inside.

    def _commit_delivered(self, source: HeldPartition, first: int, stop: int) -> None:
        """Commit messages that the log delivered from a partition."""
        source.commits.commit(first, stop)
        if source.commits.position > source.stored:  # also when storing it failed the last time
            self._store(source)
        if source.leaving_since is not None:
            self._assignment.release_if_leaving(source)

    def _store(self, source: HeldPartition) -> None:
        """Store how far a partition is; one that is lost is dropped."""
        position = source.commits.position
        try:
            source.topic.consumers.commit(
                self._consumer, source.topic.record.id, source.partition, position, source.epoch,
                self._clock.now_ns(),
            )  # fmt: skip
        except (PartitionLost, UnknownConsumer):
            source.commits.position = source.stored
            self._assignment.release(source)
            raise
        source.stored = position
        if source.commits.is_idle and source.is_drained:
            self._assignment.look_soon()  # its children open to the other members
        if source.doubt is not None and position >= max(source.doubt.reach, source.doubt.until):
            source.doubt = None
            source.topic.consumers.deaths.forget(self._place(source))

    def _finish(self, topic: str, partition: int, first: int, stop: int) -> bool:
        """Finish what had waited; whether that is all there is to do."""
        source = self._held.get((topic, partition))
        if source is None or source.retries is None or not source.retries.finish(first, stop):
            return False
        if source.commits.position < stop <= source.commits.delivered:
            return False  # the log delivered them too: after a crash, or when the consumer was moved
        self._assignment.release_if_leaving(source)
        return True

    def _unsettled(self, message: Message[Any]) -> tuple[HeldPartition, Envelope]:
        """The partition of a message that is this reader's to settle, and what is stored of the message."""
        if not isinstance(message, Message):
            raise WrongType(f"this takes a Message, not {type(message).__name__}")
        topic, partition, offset = message.topic, message.partition, message.offset
        source = self._held.get((topic, partition))
        if source is None:
            raise lost(topic, partition)
        assert source.retries is not None
        out = source.retries.out(offset)
        if out is not None:
            return source, out.envelope
        is_done = source.commits.is_done(offset)
        if (is_done and message.attempt > 1) or self.delivered(topic, partition, offset + 1) is None:
            raise lost(topic, partition)
        if is_done:
            raise UsageError(
                f"offset {offset} of {topic!r} partition {partition} is done already",
                hint="commit, retry or reject each message once",
            )
        found = enclosed(message, source.topic.record.id)
        if found.value is not None and type(found.value) is not bytes:
            raise WrongType("the value is not as it was received", hint="give the message that receive gave")
        return source, found

    def _require_held(self, topic: str, partition: int) -> None:
        """Raise when the partition went to another member, with what had waited of it."""
        if self._held.get((topic, partition)) is None:
            raise lost(topic, partition)

    def _add_letter(self, source: HeldPartition, message: Message[Any], found: Envelope, reason: str) -> None:
        dead_letter_topic.add_letter(
            source.topic, self._consumer, found, attempts=message.attempt, reason=reason
        )
        self._commit(source, message)

    def _commit(self, source: HeldPartition, message: Message[Any]) -> None:
        """Commit a message that was delivered from a partition, by its log or after it had waited."""
        if source.has_waited:
            self.commit_range(message.topic, message.partition, message.offset, message.offset + 1)
        else:
            self._commit_delivered(source, message.offset, message.offset + 1)


def wait_after(attempt: int, after: Duration | None, policy: Retry) -> float | None:
    """How long to wait after an attempt, as asked or by the policy; None when it was the last one."""
    if after is None:
        return policy.wait_s(attempt, random.random())
    asked_s = wait_seconds("after", after)
    return None if attempt >= policy.attempts else asked_s


def checked_reason(reason: object) -> str:
    """Why a message is rejected, as it can be stored."""
    if not isinstance(reason, str):
        raise WrongType(f"a reason is a str, not {type(reason).__name__}")
    return error_text(reason)
