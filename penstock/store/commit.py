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


class StagedPart(NamedTuple):
    """One partition's share of a commit, while its messages are only staged."""

    staging: TopicStaging
    number: int
    pieces: Sequence[StagedPiece]

    @property
    def open_topic(self) -> OpenTopic:
        """The open topic that the partition is of."""
        return self.staging.open_topic

    @property
    def log(self) -> Log:
        """The partition's log."""
        return self.open_topic.log(self.number)

    def row(self, tx: int) -> Part:
        """Announce the transaction in the partition, and give the messages their offsets: for `state.db`."""
        count = sum(piece.count for piece in self.pieces)
        size = max(piece.size for piece in self.pieces)
        offset = self.log.appender.announce(tx, self.staging.tree, count, size)
        placed = []
        for number, piece in enumerate(self.pieces):
            placed.append(piece.piece(tx, number, offset))
            offset += piece.count
        return Part(self.open_topic.record.id, self.number, placed)


class AppendedPart(NamedTuple):
    """One partition's share of a commit, after its frames were appended."""

    staged: StagedPart
    pieces: Sequence[PlacedPiece]
    appended: Appended

    def stored(self, moved: Mapping[tuple[int, int], int] = MappingProxyType({})) -> list[StoredRun]:
        """Where its messages are; `moved` are (transaction, piece) that a failed sync sent elsewhere."""
        runs: list[StoredRun] = []
        for piece in self.pieces:
            first = moved.get((piece.tx, piece.number), piece.base)
            if runs and runs[-1].first + runs[-1].count == first:
                runs[-1] = StoredRun(self.staged.number, runs[-1].first, runs[-1].count + piece.count)
            else:
                runs.append(StoredRun(self.staged.number, first, piece.count))
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
        self, staged: Sequence[StagedPart], moves: Sequence[PositionUpdate], guard: Callable[[], None],
        delayed: Callable[[], Sequence[DelayedRow]],
    ) -> list[AppendedPart]:  # fmt: skip
        """Do steps 2 to 4; raises `Rerouted` when a topic's partitions changed since it was staged."""
        logs = [part.log for part in staged]

        def commit() -> list[AppendedPart]:
            committed = False
            try:
                rows = [part.row(self._tx) for part in staged]
                check = _FilesThere(staged, guard)
                self._transactions.commit(
                    self._tx, self._name, rows, moves, self._now_ns(), check=check, delayed=delayed()
                )
                committed = True
                return [
                    AppendedPart(part, row.pieces, log.appender.bring_in(row.pieces))
                    for part, log, row in zip(staged, logs, rows, strict=True)
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

    def make_durable(self, appended: Sequence[AppendedPart], stored: dict[str, list[StoredRun]]) -> None:
        """Do step 5; note in `stored` where the messages of each topic are, run by run."""
        for each in appended:
            try:
                each.staged.log.syncer.sync(each.appended.next, each.appended.cuts)
                runs = each.stored()
            except NotDurable:
                runs = _try_again(each)
            each.staged.open_topic.on_appended(each.staged.number)
            stored.setdefault(each.staged.open_topic.name, []).extend(runs)
        if appended:
            places = [(each.staged.open_topic.record.id, each.staged.number) for each in appended]
            try:
                self._transactions.finish(self._tx, places)
            except PenstockError as error:  # all of it is there: the next process to open the store finishes
                logger.warning("a transaction is committed, and its record could not be removed: %s", error)


def _try_again(appended: AppendedPart) -> list[StoredRun]:
    """Append again, behind it, what a failed sync cut off; return where.

    Nothing, when another process was quicker and the new offsets are not known here.
    """
    log = appended.staged.log
    try:
        runs = hold((log.folder.append,), lambda: _brought_in_again(appended))
        log.sync_all()
    except (PenstockError, OSError) as error:
        raise committed_but(error) from error
    return runs


def _brought_in_again(appended: AppendedPart) -> list[StoredRun]:
    """Append what a failed sync cut off, unless another process has; the append lock is held."""
    log = appended.staged.log
    durable = log.folder.read_durable()
    log.appender.ready()
    is_known = log.options.sync == "os" or (durable is not None and durable.poisoned)
    return appended.stored(log.appender.repair.moved) if is_known else []


class _FilesThere:
    """Checks, under `state.lock`, the guard, and that no staged file is gone: they go after a day."""

    def __init__(self, staged: Sequence[StagedPart], guard: Callable[[], None]) -> None:
        self._staged = staged
        self._guard = guard

    def __call__(self) -> None:
        self._guard()
        for part in self._staged:
            folder = part.log.folder
            for piece in part.pieces:
                if piece.file is not None and not folder.files.exists(folder.name(piece.file)):
                    raise Closed(
                        f"what the transaction staged for {part.open_topic.name!r} was removed",
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
