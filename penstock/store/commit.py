"""A transaction's commit, from the locks to the disk: steps 2 to 5 of `transaction`.

It takes what is staged and durable, makes it true by one write to `state.db`, and brings it into the logs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from penstock.errors import Closed, NotDurable, NotYetDurable, PenstockError
from penstock.locks import hold
from penstock.log.append import Appended
from penstock.log.log import Log
from penstock.log.staging import PlacedPiece, StagedPiece
from penstock.message import StoredRun
from penstock.state.transactions import DelayedRow, Part, PositionUpdate, Transactions
from penstock.topic.open_topic import OpenTopic
from penstock.topic.staging import TopicStaging

logger = logging.getLogger("penstock.store")


class Target(NamedTuple):
    """The staged messages of one partition."""

    staging: TopicStaging
    number: int
    pieces: Sequence[StagedPiece]

    @property
    def partitions(self) -> OpenTopic:
        """The open topic that the partition is of."""
        return self.staging.partitions

    @property
    def log(self) -> Log:
        """The partition's log."""
        return self.partitions.log(self.number)

    def part(self, tx: int) -> Part:
        """Announce the transaction in the partition and give the messages their offsets."""
        count = sum(staged.count for staged in self.pieces)
        size = max(staged.size for staged in self.pieces)
        offset = self.log.appender.announce(tx, self.staging.tree, count, size)
        pieces = []
        for number, staged in enumerate(self.pieces):
            pieces.append(staged.piece(tx, number, offset))
            offset += staged.count
        return Part(self.partitions.record.id, self.number, pieces)


class Applied(NamedTuple):
    """One partition's share of a commit, after its frames were appended."""

    target: Target
    pieces: Sequence[PlacedPiece]
    appended: Appended

    def stored(self, moved: Mapping[tuple[int, int], int] = MappingProxyType({})) -> list[StoredRun]:
        """Where its messages are; `moved` are (transaction, piece) that a failed sync sent elsewhere."""
        runs: list[StoredRun] = []
        for piece in self.pieces:
            first = moved.get((piece.tx, piece.number), piece.base)
            if runs and runs[-1].first + runs[-1].count == first:
                runs[-1] = StoredRun(self.target.number, runs[-1].first, runs[-1].count + piece.count)
            else:
                runs.append(StoredRun(self.target.number, first, piece.count))
        return runs


class Commit:
    """The commit of one transaction, known in `state.db` by its id and perhaps its name."""

    def __init__(
        self, transactions: Transactions, tx: int, name: str | None, now_ns: Callable[[], int]
    ) -> None:
        self._transactions = transactions
        self._tx = tx
        self._name = name
        self._now_ns = now_ns

    def make_true(
        self, targets: Sequence[Target], moves: Sequence[PositionUpdate], guard: Callable[[], None],
        delayed: Callable[[], Sequence[DelayedRow]],
    ) -> list[Applied]:  # fmt: skip
        """Do steps 2 to 4; raises `Rerouted` when a topic's partitions changed since it was staged."""
        logs = [target.log for target in targets]

        def commit() -> list[Applied]:
            committed = False
            try:
                parts = [target.part(self._tx) for target in targets]
                check = _FilesThere(targets, guard)
                self._transactions.commit(
                    self._tx, self._name, parts, moves, self._now_ns(), check=check, delayed=delayed()
                )
                committed = True
                return [
                    Applied(target, part.pieces, log.appender.bring_in(part.pieces))
                    for target, log, part in zip(targets, logs, parts, strict=True)
                ]
            except (PenstockError, OSError) as error:
                if committed:
                    raise committed_but(error) from error
                for log in logs:
                    log.appender.ready()  # which forgets the announcement
                raise

        return hold([log.folder.append for log in logs], commit)

    def move_only(self, moves: Sequence[PositionUpdate]) -> None:
        """Commit a transaction that wrote nothing: only its readers' positions move."""
        self._transactions.commit(self._tx, None, (), moves, self._now_ns(), check=nothing)

    def make_durable(self, applied: Sequence[Applied], stored: dict[str, list[StoredRun]]) -> None:
        """Do step 5; note in `stored` where the messages of each topic are, run by run."""
        for each in applied:
            try:
                each.target.log.syncer.sync(each.appended.next, each.appended.cuts)
                runs = each.stored()
            except NotDurable:
                runs = _try_again(each)
            each.target.partitions.on_appended(each.target.number)
            stored.setdefault(each.target.partitions.name, []).extend(runs)
        if applied:
            places = [(each.target.partitions.record.id, each.target.number) for each in applied]
            try:
                self._transactions.finish(self._tx, places)
            except PenstockError as error:  # all of it is there: the next process to open the store finishes
                logger.warning("a transaction is committed, and its record could not be removed: %s", error)


def _try_again(applied: Applied) -> list[StoredRun]:
    """Append again, behind it, what a failed sync cut off; return where.

    Nothing, when another process was quicker and the new offsets are not known here.
    """
    log = applied.target.log
    try:
        runs = hold((log.folder.append,), lambda: _brought_in_again(applied))
        log.sync_all()
    except (PenstockError, OSError) as error:
        raise committed_but(error) from error
    return runs


def _brought_in_again(applied: Applied) -> list[StoredRun]:
    """Append what a failed sync cut off, unless another process has; the append lock is held."""
    log = applied.target.log
    durable = log.folder.read_durable()
    log.appender.ready()
    is_known = log.options.sync == "os" or (durable is not None and durable.poisoned)
    return applied.stored(log.appender.repair.moved) if is_known else []


class _FilesThere:
    """Checks, under `state.lock`, the guard, and that no staged file is gone: they go after a day."""

    def __init__(self, targets: Sequence[Target], guard: Callable[[], None]) -> None:
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


def nothing() -> None:
    """Check nothing: the guard of a transaction without a rule."""


def committed_but(error: Exception) -> NotYetDurable:
    """The error for a commit that holds, but is not yet in all its partitions; never retryable."""
    if isinstance(error, NotYetDurable):
        return error
    return NotYetDurable(
        f"the transaction is committed, but not yet whole everywhere: {error}",
        hint="do not repeat it: the next writer finishes it",
    )
