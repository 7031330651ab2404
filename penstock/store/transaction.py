"""A transaction: messages to any topics and positions of any consumers, all or nothing.

Until it commits, nothing of it can be seen, also not by itself. The commit:

    1  what was written is encoded and durable (`topic.staging`)
    2  lock all partitions it writes to, in order, and announce it in each
    3  one durable write to `state.db`: from here on it is true
    4  bring the messages in, side by side, and unlock
    5  make them durable, forget what was staged; what is delayed goes where it waits

A process that is killed after 3 leaves 4 and 5 to whoever comes next: a writer that finds the
announcement, a reader that waits, or the next one to open the store.
"""

from __future__ import annotations

import logging
import secrets
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, BinaryIO, NamedTuple, Protocol

from penstock.errors import Closed, NotDurable, PenstockError, UsageError
from penstock.keys import Key
from penstock.locks import FORKED, forget_in_child
from penstock.log.append import Appended, Rerouted
from penstock.log.frame import RAW
from penstock.log.log import Log
from penstock.log.shelf import Staged
from penstock.log.staged import Piece
from penstock.message import Stored, V
from penstock.options import KEY_BYTES_MAX, Duration, identifier
from penstock.state.transactions import DelayedRow, Move, Part, Transactions
from penstock.store.topic import Topic
from penstock.topic import delayed, outgoing
from penstock.topic.bodies import is_file
from penstock.topic.delayed import Postponed
from penstock.topic.packing import packing
from penstock.topic.partitions import Partitions
from penstock.topic.scan import Scan
from penstock.topic.staging import TopicStaging

logger = logging.getLogger("penstock.transaction")


class Enlisted(Protocol):
    """A reader some of whose messages are to be committed with a transaction."""

    @property
    def transactions(self) -> Transactions: ...

    def moves(self, tx: Transaction) -> list[Move]:
        """How its positions change with the commit."""

    def committed(self, tx: Transaction) -> None: ...

    def rolled_back(self, tx: Transaction) -> None: ...


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
        self._later: list[tuple[Partitions, Postponed]] = []
        self._ended = "never begun"
        self._stored: dict[str, list[Stored]] = {}
        #: Asked at the commit, when no other can come between; raises when it must not be.
        self.guard: Callable[[], None] = _nothing
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
        if (
            topic is not last
            or staging is None
            or value.__class__ is not bytes
            or len(value) > staging.small
            or (key is not None and (key.__class__ is not bytes or len(key) > KEY_BYTES_MAX))
            or headers is not None
            or timestamp is not None
            or partition is not None
            or group is not None
            or delay is not None
            or deliver_at is not None
        ):
            staging = self.staging_of(topic)
            encode = isinstance(topic, Topic) and not is_file(value)
            body: Any = topic._encoded(value) if encode else value  # type: ignore[union-attr,arg-type]
            due_ns = self._due_at(delay, deliver_at)
            if due_ns is None:
                staging.add(body, key, headers, timestamp, partition, group)
                return
            delayed.refuse_file(body)
            message = outgoing.one(body, key, headers, timestamp, partition, staging.limit)
            name = "" if group is None else identifier("group", group)
            later = delayed.of_batch(staging.partitions, message, name, due_ns)
            self._later.append((staging.partitions, later))
        else:
            staging.add_small(value, key)

    def write_many(
        self, topic: str | Topic[Any], values: Any, *, keys: Any = None, headers: Any = None,
        timestamps: Any = None, partition: int | None = None,
    ) -> None:  # fmt: skip
        """Add many messages: lists, Arrow arrays, a table, a `Batch` or a `Scan`."""
        staging = self.staging_of(topic)
        partitions = staging.partitions
        partitions.check(partition)
        limit = partitions.options.value_bytes
        packed = packing(topic._coder, RAW, limit) if isinstance(topic, Topic) else None
        values = partitions.bodies.outside_all(values)
        for part in values if isinstance(values, Scan) else (values,):
            staging.add_many(outgoing.many(part, keys, headers, timestamps, partition, limit, packed))

    @property
    def written(self) -> int:
        """How many messages it holds so far, with those that are delayed."""
        return sum(staging.count for staging in self._staging.values()) + len(self._later)

    @property
    def stored(self) -> Mapping[str, Sequence[Stored]]:
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
            moves = [move for reader in self._readers for move in reader.moves(self)]
            applied = self._commit(moves)
        except BaseException:
            if not self._transactions.exists(self._id):
                self.rollback()
            else:  # interrupted, or the disk is full: others finish it
                self._become_true()
            raise
        self._become_true()
        self._make_durable(applied)
        self._hand_on_delayed()

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
        self, topic: str | Topic[Any], pieces: Mapping[int, Sequence[Staged]], *, tree: int, partitions: int,
        raw: bool = True,
    ) -> None:  # fmt: skip
        """Take what others staged for a topic, by partition, when it had this tree.

        From here on it is the transaction's own: committed with it, removed with it. Partitions that
        were added since then make keys go elsewhere; that is seen to at the commit. With `raw=False` the
        caller has asked the topic's list of codecs.
        """
        self.staging_of(topic, raw=raw).adopt(pieces, tree=tree, partitions=partitions)

    def __del__(self) -> None:
        if not getattr(self, "_ended", "not begun"):
            logger.warning("a transaction was left open and is rolled back: %r", self)
            self.rollback()

    def after_fork_in_child(self) -> None:
        self._ended = FORKED
        self._staging, self._readers, self._later = {}, [], []

    # Inside.

    def staging_of(self, topic: str | Topic[Any], *, raw: bool = True) -> TopicStaging:
        """Where messages for a topic gather; raises unless it may be written, with raw values if need be."""
        staging = self.known_staging(topic)
        if staging is None:
            found = topic if isinstance(topic, Topic) else self._find(topic)
            found._require_raw() if raw else found._require_writable()
            staging = self._staging[found.id] = TopicStaging(found._partitions, self._id)
        return staging

    def known_staging(self, topic: str | Topic[Any]) -> TopicStaging | None:
        """The same, if the transaction has written to the topic before."""
        if self._ended:
            self._require_open()
        if topic is self._last[0]:
            return self._last[1]
        for staging in self._staging.values():
            if topic == staging.partitions.name or (
                isinstance(topic, Topic) and topic.id == staging.partitions.record.id
            ):
                if not isinstance(topic, Topic) or topic._coder is None:  # values of others are encoded first
                    self._last = topic, staging
                return staging
        return None

    @property
    def ended(self) -> bool:
        """Whether it was committed or rolled back."""
        return bool(self._ended)

    def _commit(self, moves: Sequence[Move]) -> list[_Applied]:
        """Steps 1 to 4."""
        if self.name is None and not self.written:
            if moves:
                self._transactions.commit(self._id, None, (), moves, self._now_ns(), check=_nothing)
            return []
        while True:
            targets = [
                _Target(staging, number, pieces)
                for _, staging in sorted(self._staging.items())
                for number, pieces in staging.finish().items()
            ]
            try:
                return self._commit_to(targets, moves)
            except Rerouted:
                for staging in self._staging.values():
                    staging.catch_up()

    def _due_at(self, delay: Duration | None, deliver_at: int | datetime | None) -> int | None:
        """When a message is to enter its topic; None for now."""
        if delay is None and deliver_at is None:
            return None
        return delayed.due_at(delay, deliver_at, self._now_ns())

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

    def _commit_to(self, targets: Sequence[_Target], moves: Sequence[Move]) -> list[_Applied]:
        logs = [target.log for target in targets]
        committed = False
        with ExitStack() as locks:
            for log in logs:
                locks.enter_context(log.folder.append)
            try:
                parts = [target.part(self._id) for target in targets]
                check = _FilesThere(targets, self.guard)
                self._transactions.commit(
                    self._id, self.name, parts, moves, self._now_ns(), check=check,
                    delayed=self._delayed_rows(),
                )  # fmt: skip
                committed = True
                return [
                    _Applied(target, part.pieces, log.appender.bring_in(part.pieces))
                    for target, log, part in zip(targets, logs, parts, strict=True)
                ]
            except (PenstockError, OSError) as error:
                if committed:
                    raise _committed_but(error) from error
                for log in logs:
                    log.appender.ready()  # which forgets the announcement
                raise
            except KeyboardInterrupt:
                for log in logs:
                    log.folder.append.drop()
                raise

    def _make_durable(self, applied: Sequence[_Applied]) -> None:
        """Step 5."""
        for each in applied:
            try:
                each.target.log.sync(each.appended)
                runs = each.stored()
            except NotDurable:
                runs = self._try_again(each)
            each.target.partitions.on_appended(each.target.number)
            self._stored.setdefault(each.target.partitions.name, []).extend(runs)
        if applied:
            places = [(each.target.partitions.record.id, each.target.number) for each in applied]
            self._transactions.finish(self._id, places)
        for staging in self._staging.values():
            staging.discard()

    def _try_again(self, applied: _Applied) -> list[Stored]:
        """A sync failed: what was cut off is brought in again, behind it; return where.

        Nothing, when another process was quicker and the new offsets are not known here.
        """
        log = applied.target.log
        try:
            with log.folder.append:
                durable = log.folder.read_durable()
                log.appender.ready()
                is_known = log.options.sync == "os" or (durable is not None and durable.poisoned)
                runs = applied.stored(log.appender.moved) if is_known else []
            log.sync_all()
        except (PenstockError, OSError) as error:
            raise _committed_but(error) from error
        return runs

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


class _Target(NamedTuple):
    """What goes to one partition."""

    staging: TopicStaging
    number: int
    pieces: Sequence[Staged]

    @property
    def partitions(self) -> Partitions:
        return self.staging.partitions

    @property
    def log(self) -> Log:
        return self.partitions.log(self.number)

    def part(self, tx: int) -> Part:
        """Announce the transaction in the partition and give the messages their offsets."""
        count = sum(staged.count for staged in self.pieces)
        size = max(staged.size for staged in self.pieces)
        offset = self.log.appender.mark(tx, self.staging.tree, count, size)
        pieces = []
        for number, staged in enumerate(self.pieces):
            pieces.append(staged.piece(tx, number, offset))
            offset += staged.count
        return Part(self.partitions.record.id, self.number, pieces)


class _Applied(NamedTuple):
    target: _Target
    pieces: Sequence[Piece]
    appended: Appended

    def stored(self, moved: Mapping[tuple[int, int], int] = MappingProxyType({})) -> list[Stored]:
        """Where its messages are; `moved` are (transaction, piece) that a failed sync sent elsewhere."""
        runs: list[Stored] = []
        for piece in self.pieces:
            first = moved.get((piece.tx, piece.number), piece.base)
            if runs and runs[-1].first + runs[-1].count == first:
                runs[-1] = Stored(self.target.number, runs[-1].first, runs[-1].count + piece.count)
            else:
                runs.append(Stored(self.target.number, first, piece.count))
        return runs


class _FilesThere:
    """Asked under `state.lock`: may it be, and are all staged files still there? They go after a day."""

    def __init__(self, targets: Sequence[_Target], guard: Callable[[], None]) -> None:
        self._targets = targets
        self._guard = guard

    def __call__(self) -> None:
        self._guard()
        for target in self._targets:
            folder = target.log.folder
            for staged in target.pieces:
                if staged.file is not None and not folder.files.exists(folder.name(staged.file)):
                    raise Closed(
                        f"what the transaction staged for {target.partitions.name!r} was removed",
                        hint="it was open for more than a day: begin a new one",
                    )


def _nothing() -> None:
    pass


def _committed_but(error: Exception) -> NotDurable:
    return NotDurable(
        f"the transaction is committed, but not yet whole everywhere: {error}",
        hint="do not repeat it: the next writer finishes it",
    )


def _current_owner() -> object:
    """The task in an event loop, else the thread: within one of them transactions cannot be nested."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None:
        return asyncio.current_task()
    return threading.current_thread()
