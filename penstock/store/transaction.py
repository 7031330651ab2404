"""A transaction: messages to any topics and positions of any consumers, all or nothing.

Until it commits, nothing of it can be seen, also not by itself. The commit:

    1  what was written is encoded and durable (`topic.staging`)
    2  lock all partitions it writes to, in order, and announce it in each
    3  one durable write to `state.db`: from here on it is true
    4  bring the messages in, side by side, and unlock
    5  make them durable, forget what was staged; what is delayed goes where it waits

A process that is killed after 3 leaves 4 and 5 to the next process: a writer that finds the
announcement, a reader that waits, or the next one to open the store.
"""

from __future__ import annotations

import logging
import secrets
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Protocol

from penstock.errors import Closed, OutcomeUnknown, PenstockError, UsageError
from penstock.files import speak, speaking
from penstock.keys import Key
from penstock.locks import FORKED, forget_in_child
from penstock.log.append import Rerouted
from penstock.log.frame import RAW
from penstock.log.staging import StagedPiece
from penstock.message import StoredRun, V
from penstock.parse import Duration
from penstock.partition_tree import PartitionTree
from penstock.state.transactions import DelayedRow, PositionUpdate, Transactions
from penstock.store.commit import AppendedPart, Commit, StagedPart, committed_but, nothing
from penstock.store.topic import Topic
from penstock.topic import delayed
from penstock.topic.bodies import is_file
from penstock.topic.delayed import Extras, Postponed
from penstock.topic.input import batch_of_many
from penstock.topic.open_topic import OpenTopic
from penstock.topic.scan import Scan
from penstock.topic.staging import TopicStaging
from penstock.topic.value_codec import packer_for

logger = logging.getLogger("penstock.transaction")


class Enlisted(Protocol):
    """A reader some of whose messages are to be committed with a transaction."""

    @property
    def transactions(self) -> Transactions:
        """The transactions of its store."""

    def moves(self, tx: Transaction) -> list[PositionUpdate]:
        """How its positions change with the commit."""

    def committed(self, tx: Transaction) -> None:
        """Take note that the transaction was committed."""

    def rolled_back(self, tx: Transaction) -> None:
        """Take note that the transaction was rolled back."""


@speaking("write", "write_many")
class Transaction:
    """Writes and commits that become true together; made by `Store.transaction`, used with `with`.

    Leaving `with` commits; an exception, or `rollback`, leaves nothing of it behind.
    """

    def __init__(
        self,
        transactions: Transactions,
        find: Callable[[str], Topic[Any]],
        now_ns: Callable[[], int],
        others: weakref.WeakSet[Transaction],
        name: str | None,
    ) -> None:
        self.name = name
        self._id = secrets.randbits(62) | 1
        self._transactions = transactions
        self._find = find
        self._now_ns = now_ns
        self._others = others
        self._owner = _current_owner()
        self._staging: dict[int, TopicStaging] = {}
        self._last: tuple[str | Topic[Any] | None, TopicStaging | None] = (None, None)
        self._readers: list[Enlisted] = []
        #: What it delays, in order.
        self._later: list[tuple[OpenTopic, Postponed]] = []
        self._ended = "never begun"
        self._stored: dict[str, list[StoredRun]] = {}
        #: Asked at the commit, when no other can come between; raises when it must not be.
        self.guard: Callable[[], None] = nothing
        if any(other._owner is self._owner for other in others):
            raise UsageError(
                "a transaction is open here already: they cannot be nested",
                hint="commit it first, or write to it",
            )
        self._ended = ""
        others.add(self)
        forget_in_child(self)

    # Writing.

    def write(
        self, topic: str | Topic[V], value: V | str | Path | BinaryIO | None, *, key: Key = None,
        headers: Mapping[str, str | bytes] | None = None, partition: int | None = None,
        group: str | None = None, timestamp: int | datetime | None = None, delay: Duration | None = None,
        deliver_at: int | datetime | None = None,
    ) -> None:  # fmt: skip
        """Add one message; it is stored with the commit.

        With `delay`, counted from now, or `deliver_at`, the commit stores it, and it enters its topic when
        that has passed: rolled back, it never does.
        """
        last, staging = self._last
        if topic is not last or staging is None:
            staging = self.staging_of(topic)
            if isinstance(topic, Topic) and not is_file(value):
                value = topic.encoded(value)  # type: ignore[assignment,arg-type]
        staging.buffer.add(
            value, key=key, headers=headers, partition=partition, timestamp=timestamp, group=group,
            delay=delay, deliver_at=deliver_at,
        )  # fmt: skip

    def write_many(
        self, topic: str | Topic[Any], values: Any, *, keys: Any = None, headers: Any = None,
        timestamps: Any = None, partition: int | None = None,
    ) -> None:  # fmt: skip
        """Add many messages: lists, Arrow arrays, a table, a `Batch` or a `Scan`."""
        staging = self.staging_of(topic)
        open_topic = staging.open_topic
        open_topic.growth.require_active(partition)
        limit = open_topic.options.value_bytes
        packer = packer_for(topic.coder, RAW, limit) if isinstance(topic, Topic) else None
        values = open_topic.bodies.outside_all(values)
        for part in values if isinstance(values, Scan) else (values,):
            staging.add_many(batch_of_many(part, keys, headers, timestamps, partition, limit, packer))

    @property
    def written(self) -> int:
        """How many messages it holds so far, with those that are delayed."""
        return sum(staging.count for staging in self._staging.values()) + len(self._later)

    @property
    def stored(self) -> Mapping[str, Sequence[StoredRun]]:
        """After the commit: where the messages of each topic are, run by run."""
        return self._stored

    # Its end.

    def commit(self) -> None:
        """Make all of it true: on disk, and visible to everyone, when this returns.

        Raises `PartitionLost` when a consumer in it was moved by someone else, `AlreadyCommitted` when a
        transaction of the same name was committed: nothing of it stays then. Any other error says whether
        it was committed.
        """
        self._require_open()
        try:
            commit = Commit(self._transactions, self._id, self.name, self._now_ns)
            moves = [move for reader in self._readers for move in reader.moves(self)]
            applied = self._commit(commit, moves)
        except OutcomeUnknown:
            self._end("nobody knows whether it was committed")  # what it staged stays, in case it was
            raise
        except BaseException as error:
            if not self._transactions.exists(self._id):
                self.rollback()
                if isinstance(error, OSError):
                    speak(error)
                raise
            self._become_true()  # interrupted, or the disk is full: others finish it
            if isinstance(error, OSError) and not isinstance(error, PenstockError):
                raise committed_but(error) from error
            raise
        self._become_true()
        try:
            commit.make_durable(applied, self._stored)
            for staging in self._staging.values():
                staging.discard()
            self._hand_on_delayed()
        except (PenstockError, OSError) as error:
            raise committed_but(error) from error

    def rollback(self) -> None:
        """Forget all of it; readers deliver again what was received in it. Calling it twice is fine."""
        if self._ended:
            return
        self._end("it was rolled back")
        for staging in self._staging.values():
            staging.discard()
            staging.discard_bodies()
        for reader in self._readers:
            reader.rolled_back(self)

    def __enter__(self) -> Transaction:
        self._require_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.rollback()
        elif not self._ended:
            self.commit()

    def __repr__(self) -> str:
        return f"<Transaction {self.name or f'{self._id:x}'}: {self._ended or f'{self.written} messages'}>"

    def enlist(self, reader: Enlisted) -> None:
        """Have a reader's positions move with the commit."""
        self._require_open()
        if reader.transactions is not self._transactions:
            raise UsageError("the reader is of another store, whose positions cannot move with this one")
        if reader not in self._readers:
            self._readers.append(reader)

    def adopt(
        self, topic: str | Topic[Any], pieces: Mapping[int, Sequence[StagedPiece]],
        *, tree: int, rows: PartitionTree,
        raw: bool = True, bodies: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Take what others staged for a topic, by partition, when it had this tree; and bodies made for it.

        From here on it is the transaction's own: committed with it, removed with it. Partitions that
        were added since then make keys go elsewhere; that is seen to at the commit. With `raw=False` the
        caller has asked the topic's list of codecs.
        """
        staging = self.staging_of(topic, raw=raw)
        staging.adopt(pieces, tree=tree, rows=rows, bodies=bodies)

    def roll_back_if_open(self) -> None:
        """Roll back unless it was ended: the store is closed, or nobody holds the transaction any more."""
        if not getattr(self, "_ended", "not begun"):
            logger.warning("a transaction was left open and is rolled back: %r", self)
            self.rollback()

    def __del__(self) -> None:
        self.roll_back_if_open()

    def after_fork_in_child(self) -> None:
        """End in the child: the parent commits or rolls back."""
        self._ended = FORKED
        self._staging, self._readers, self._later = {}, [], []

    # Inside.

    def staging_of(self, topic: str | Topic[Any], *, raw: bool = True) -> TopicStaging:
        """Where messages for a topic gather; raises unless it may be written, with raw values if need be."""
        staging = self.known_staging(topic)
        if staging is None:
            found = topic if isinstance(topic, Topic) else self._find(topic)
            found.require_raw() if raw else found.require_writable()
            staging = self._staging[found.id] = TopicStaging(found.open_topic, self._id, self._postpone)
        return staging

    def known_staging(self, topic: str | Topic[Any]) -> TopicStaging | None:
        """Return where messages for a topic gather; None if the transaction has not written to it."""
        if self._ended:
            self._require_open()
        if topic is self._last[0]:
            return self._last[1]
        for staging in self._staging.values():
            if topic == staging.open_topic.name or (
                isinstance(topic, Topic) and topic.id == staging.open_topic.record.id
            ):
                if not isinstance(topic, Topic) or topic.coder is None:  # values of others are encoded first
                    self._last = topic, staging
                return staging
        return None

    @property
    def ended(self) -> bool:
        """Whether it was committed or rolled back."""
        return bool(self._ended)

    def _commit(self, commit: Commit, moves: Sequence[PositionUpdate]) -> list[AppendedPart]:
        """Do steps 1 to 4."""
        if self.name is None and not self.written:
            if moves:
                commit.move_only(moves)
            return []
        while True:
            targets = [
                StagedPart(staging, number, pieces)
                for _, staging in sorted(self._staging.items())
                for number, pieces in staging.finish().items()
            ]
            try:
                return commit.make_true(targets, moves, self.guard, self._delayed_rows)
            except Rerouted:
                for staging in self._staging.values():
                    staging.catch_up()

    def _postpone(
        self, topic: OpenTopic, value: bytes | None, key: bytes | None, extras: Extras,
        delay: Duration | None, deliver_at: int | datetime | None,
    ) -> bool:  # fmt: skip
        """Delay a message from the commit on; False when it is due already."""
        due = delayed.due_at(delay, deliver_at, self._now_ns())
        if due is None:
            return False
        self._later.append((topic, delayed.postponed(topic, value, key, extras, due)))
        return True

    def _delayed_rows(self) -> list[DelayedRow]:
        """What it delays, as it is committed; others are made to look for it."""
        if self._later:
            self._later[0][0].delayed.prepare()
        return delayed.rows(self._id, [(topic.name, each) for topic, each in self._later])

    def _hand_on_delayed(self) -> None:
        """Step 5, of what is delayed: it is stored already, so nothing is lost when this fails."""
        if not self._later:
            return
        try:
            self._later[0][0].delayed.bring_in()
        except (PenstockError, OSError) as error:
            logger.warning("delayed messages of a transaction are moved on later: %s", error)

    def _become_true(self) -> None:
        self._end("it is committed")
        for reader in self._readers:
            reader.committed(self)

    def _end(self, how: str) -> None:
        self._ended = how
        self._last = (None, None)
        self._others.discard(self)

    def _require_open(self) -> None:
        if self._ended:
            raise Closed(f"transaction: {self._ended}", hint="begin a new one with store.transaction()")


def _current_owner() -> object:
    """The task in an event loop, else the thread: within one of them transactions cannot be nested."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None:
        return asyncio.current_task()
    return threading.current_thread()
