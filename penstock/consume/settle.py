"""What becomes of messages that could not be handled: they wait for another attempt, or are dead letters.

Each is two steps, in this order: it is durable in its new place, then it is committed in the old one. A
process that is killed in between leaves it in both, and it comes twice; it is never in neither.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

from penstock.consume import dead_letter_topic as dead
from penstock.consume.assignment import Holdings
from penstock.consume.dead_letter_topic import EXHAUSTED
from penstock.consume.options import Retry
from penstock.consume.partition import HeldPartition
from penstock.consume.retries import Envelope, enclosed, error_text
from penstock.errors import UsageError, WrongType
from penstock.log.rows import MessageRows
from penstock.message import Batch, Message, V
from penstock.parse import Duration, wait_seconds

#: (topic, partition, first offset, offset behind the last)
Range = tuple[str, int, int, int]


def ranges_of(done: Message[Any] | Batch[Any]) -> list[Range]:
    """Messages that lie together."""
    if isinstance(done, Message):
        return [(done.topic, done.partition, done.offset, done.offset + 1)]
    if isinstance(done, Batch):
        return _joined((done.topic, rows.partition, rows.first, rows.stop) for rows in done.rows)
    raise WrongType(f"commit takes a Message or a Batch, not {type(done).__name__}")


def _joined(ranges: Iterable[Range]) -> list[Range]:
    """Neighbours as one: what comes again lies in runs of one message each."""
    found: list[Range] = []
    for topic, partition, first, stop in ranges:
        if found and found[-1][1] == partition and found[-1][3] == first:
            found[-1] = (topic, partition, found[-1][2], stop)
        else:
            found.append((topic, partition, first, stop))
    return found


def cut(left: list[Message[V]], max_messages: int, max_bytes: int) -> tuple[Batch[V], Iterator[Message[V]]]:
    """Of what `receive` has not handed out yet: as much as the limits allow, and what is left then."""
    count = weight = 0
    for message in left[:max_messages]:
        weight += len(message.key or b"") + len(message.stored or b"")
        if count and weight > max_bytes:
            break
        count += 1
    return Batch(left[0].topic, (MessageRows(left[:count]),)), iter(left[count:])


class Settlement:
    """For one reader of a consumer; used under its mutex."""

    def __init__(self, held: Holdings, consumer: str, policy: Retry) -> None:
        self._held = held
        self._consumer = consumer
        self._policy = policy

    def retry(
        self, message: Message[Any], after: Duration | None, error: BaseException | str | None,
        policy: Retry | None = None,
    ) -> bool:  # fmt: skip
        """Have it wait; False when that was its last attempt, and it is a dead letter now."""
        source, found = self._unsettled(message)
        text = error_text(error)
        failed = found.failed(text) if text else found
        policy = policy or self._policy
        wait_s = policy.wait_s(message.attempt, random.random())
        if after is not None:
            asked_s = wait_seconds("after", after)
            wait_s = None if wait_s is None else asked_s
        if wait_s is None:
            self._bury(source, message, failed, EXHAUSTED)
            return False
        assert source.retries is not None
        fixed = after is not None or policy.is_exact
        source.retries.store(failed, wait_s=wait_s, attempts=message.attempt, fixed=fixed)
        self._commit(message)
        return True

    def reject(self, message: Message[Any], reason: str) -> None:
        """It is a dead letter now."""
        if not isinstance(reason, str):
            raise WrongType(f"a reason is a str, not {type(reason).__name__}")
        source, found = self._unsettled(message)
        self._bury(source, message, found, error_text(reason))

    def park(self, message: Message[Any], wait_s: float) -> None:
        """Have it wait behind an earlier message of its key; that is no attempt."""
        source, found = self._unsettled(message)
        assert source.retries is not None
        source.retries.store(found, wait_s=wait_s, attempts=message.attempt - 1)
        self._commit(message)

    def is_settled(self, message: Message[Any]) -> bool:
        """Whether nothing is left to decide: it was committed, stored or rejected, or is not ours now."""
        source = self._held.sources.get((message.topic, message.partition))
        if source is None or source.retries is None:
            return True
        return not source.retries.out(message.offset) and source.commits.is_done(message.offset)

    def _unsettled(self, message: Message[Any]) -> tuple[HeldPartition, Envelope]:
        """Where a message belongs, and what is to be kept of it."""
        if not isinstance(message, Message):
            raise WrongType(f"this takes a Message, not {type(message).__name__}")
        source = self._held.owner(message)
        assert source.retries is not None
        out = source.retries.out(message.offset)
        if out is not None:
            return source, out.envelope
        if source.commits.is_done(message.offset):
            raise UsageError(
                f"offset {message.offset} of {message.topic!r} partition {message.partition} is done already",
                hint="commit, retry or reject each message once",
            )
        if not isinstance(message.stored, bytes | None):
            raise WrongType("the value is not as it was received", hint="give the message that receive gave")
        return source, enclosed(message, source.topic.record.id)

    def _bury(self, source: HeldPartition, message: Message[Any], found: Envelope, reason: str) -> None:
        dead.bury(source.topic, self._consumer, found, attempts=message.attempt, reason=reason)
        self._commit(message)

    def _commit(self, message: Message[Any]) -> None:
        self._held.commit(message.topic, message.partition, message.offset, message.offset + 1)
