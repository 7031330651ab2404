"""What a reader delivered in a transaction: its position moves with the commit, or it is delivered again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Protocol

from penstock.consume.assignment import Assignment, lost
from penstock.consume.partition import HeldPartition
from penstock.errors import UsageError, WrongType
from penstock.state.transactions import PositionUpdate, Transactions

Range = tuple[int, int]


class Transactional(Protocol):
    """A transaction, blocking or async."""

    @property
    def name(self) -> str | None:
        """The transaction's name, or None."""


class TransactionPart:
    """The messages of one reader that one transaction commits."""

    def __init__(self) -> None:
        self._ranges: dict[HeldPartition, list[Range]] = {}
        #: Offsets that had waited for another attempt.
        self._due: dict[HeldPartition, list[int]] = {}

    def add(self, source: HeldPartition, first: int, stop: int) -> None:
        """Messages `first` to `stop`, which were delivered, are done when the transaction commits."""
        self._ranges.setdefault(source, []).append((first, stop))

    def add_due(self, source: HeldPartition, offsets: range) -> None:
        """Messages that had waited, at `offsets`, are done behind the commit, not with it."""
        self._due.setdefault(source, []).extend(offsets)

    @property
    def sources(self) -> list[HeldPartition]:
        """The partitions that messages of the transaction came from."""
        return list(self._ranges | self._due)

    def deliver_again(self, source: HeldPartition) -> None:
        """Deliver a partition's messages again: the transaction was rolled back."""
        if source in self._ranges:
            source.deliver_again(min(first for first, _ in self._ranges[source]))
        if source in self._due and source.retries is not None:
            source.retries.put_back(self._due[source])

    def moves(self, consumer: str) -> Iterator[PositionUpdate]:
        """How positions change with the commit.

        Raises `UsageError` when something delivered before is not committed: the position could not move.
        """
        for source, ranges in self._ranges.items():
            trial = source.commits.copy()
            for first, stop in ranges:
                trial.commit(first, stop)
            if trial.position < max(stop for _, stop in ranges):
                raise UsageError(
                    f"{source.key[0]!r} partition {source.partition}: offset {trial.position} was delivered "
                    "before, and is not committed",
                    hint="commit it first, in the transaction or before it",
                )
            topic_id = source.topic.record.id
            yield PositionUpdate(
                consumer, topic_id, source.partition, source.epoch, source.stored, trial.position
            )

    def committed(self) -> None:
        """Take note that the positions are stored."""
        for source, ranges in self._ranges.items():
            for first, stop in ranges:
                source.commits.commit(first, stop)
            source.stored = max(source.stored, source.commits.position)
        for source, offsets in self._due.items():
            for offset in offsets:
                if source.retries is not None:
                    source.retries.finish(offset, offset + 1)


class TransactionParts:
    """A reader's part in transactions (`penstock.store.transaction.Enlisted`); mostly in one at a time."""

    def __init__(self, assignment: Assignment, mutex: threading.RLock) -> None:
        self._assignment = assignment
        self._mutex = mutex
        self._parts: dict[Any, TransactionPart] = {}

    @property
    def transactions(self) -> Transactions:
        """The transactions of the store whose topics are read."""
        return self._assignment.topics[0].transactions

    def joined(self, tx: Transactional) -> TransactionPart:
        """What the transaction commits of this reader; the reader takes part in it from now on."""
        blocking = getattr(tx, "blocking", tx)
        if not hasattr(blocking, "enlist"):
            raise WrongType(
                f"tx is a transaction, not {type(tx).__name__}", hint="with store.transaction() as tx: …"
            )
        blocking.enlist(self)
        return self._parts.setdefault(blocking, TransactionPart())

    # Called by the transaction.

    def moves(self, tx: Transactional) -> list[PositionUpdate]:
        """How positions change when the transaction commits."""
        consumer = self._assignment.consumer
        assert consumer is not None
        with self._mutex:
            part = self._parts[tx]
            self._assignment.require_open()
            for source in part.sources:
                if source.is_gone:
                    raise lost(*source.key)
            return list(part.moves(consumer))

    def committed(self, tx: Transactional) -> None:
        """Take note that the transaction was committed: its messages are done."""
        with self._mutex:
            part = self._parts.pop(tx)
            part.committed()
            for source in part.sources:
                self._assignment.release_if_leaving(source)

    def rolled_back(self, tx: Transactional) -> None:
        """Deliver again what a rolled-back transaction had, if it is still this reader's."""
        with self._mutex:
            part = self._parts.pop(tx)
            for source in part.sources:
                if not source.is_gone:
                    part.deliver_again(source)
                    self._assignment.fetched.forget(source)
            self._assignment.gates.shut()
            self._assignment.look_soon()
