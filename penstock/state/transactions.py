"""Committed transactions, what of them has still to be appended, and all else that a partition asks for.

The commit is one write to `state.db`: from then on everything in the transaction is true, and the next
process finishes what its own did not live to do. A record stays until its last partition has
everything, durably; one with a name stays for ever, so that the same name is never committed twice.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from penstock.errors import AlreadyCommitted, PartitionLost
from penstock.log.staging import Hold, PlacedPiece
from penstock.options import TopicOptions
from penstock.state.consumers import Consumers
from penstock.state.database import Database
from penstock.state.topics import Topics


class PositionUpdate(NamedTuple):
    """A consumer's position as a transaction changes it."""

    consumer: str
    topic_id: int
    partition: int
    #: Who reads now, and from where; another value means that someone else took over.
    epoch: int
    before: int
    after: int


class Part(NamedTuple):
    """What a transaction brings into one partition."""

    topic_id: int
    partition: int
    pieces: Sequence[PlacedPiece]


class DelayedRow(NamedTuple):
    """A message that a transaction delays, until it lies among the waiting messages."""

    tx: int
    number: int
    due_ms: int
    topic: str
    data: bytes


class Transactions:
    """The store's committed transactions."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def commit(
        self,
        tx: int,
        name: str | None,
        parts: Sequence[Part],
        moves: Sequence[PositionUpdate],
        now_ns: int,
        *,
        check: Callable[[], None],
        delayed: Sequence[DelayedRow] = (),
    ) -> None:
        """Make a transaction true, on disk when this returns; nothing of it when this raises.

        `check` is called when nobody can remove staged files any more. Raises `PartitionLost` when a
        consumer was moved by someone else, `AlreadyCommitted` when the name was committed before.
        """
        with self._database.transaction() as connection:
            check()
            for move in moves:
                _move(connection, move, now_ns)
            if not parts and not delayed and name is None:
                return
            connection.executemany("INSERT INTO delayed VALUES (?, ?, ?, ?, ?)", delayed)
            try:
                connection.execute("INSERT INTO transactions VALUES (?, ?, ?)", (tx, name, now_ns))
            except sqlite3.IntegrityError:
                raise AlreadyCommitted(
                    f"transaction {name!r} was committed before", hint="its messages are there: go on"
                ) from None
            connection.executemany(
                "INSERT INTO staged VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (tx, part.topic_id, part.partition, p.number, p.base, p.count, p.file, p.data)
                    for part in parts
                    for p in part.pieces
                ],
            )

    def exists(self, tx: int) -> bool:
        """Whether a transaction is committed and not yet finished."""
        return self._database.row("SELECT 1 FROM transactions WHERE id = ?", (tx,)) is not None

    def names(self, prefix: str) -> list[str]:
        """Names of committed transactions that begin so."""
        rows = self._database.rows(
            "SELECT name FROM transactions WHERE name >= ? AND name < ?", (prefix, prefix + "\U0010ffff")
        )
        return [row[0] for row in rows]

    def forget(self, names: Iterable[str]) -> None:
        """Let names be used again; one whose messages are not all in place yet stays."""
        with self._database.transaction(durable=False) as connection:
            connection.executemany(
                "DELETE FROM transactions WHERE name = ? "
                "AND NOT EXISTS (SELECT 1 FROM staged WHERE staged.tx = transactions.id)",
                [(name,) for name in names],
            )

    def unfinished(self) -> list[tuple[int, int, int]]:
        """(transaction, topic id, partition) of what is committed and not yet known to be in place."""
        return self._database.rows("SELECT DISTINCT tx, topic_id, partition FROM staged")

    def finish(self, tx: int, places: Iterable[tuple[int, int]]) -> None:
        """Take note that a transaction is whole and durable in these (topic id, partition).

        Should the power take this back, the next process finds everything in place and says it again.
        """
        with self._database.transaction(durable=False) as connection:
            connection.executemany(
                "DELETE FROM staged WHERE tx = ? AND topic_id = ? AND partition = ?",
                [(tx, *place) for place in places],
            )
            connection.execute(
                "DELETE FROM transactions WHERE id = ?1 AND name IS NULL "
                "AND NOT EXISTS (SELECT 1 FROM staged WHERE tx = ?1)",
                (tx,),
            )

    def hand_on_delayed(self, store: Callable[[list[DelayedRow]], None], limit: int) -> int:
        """Have `store` put delayed messages where they wait, and forget them here; how many there were.

        One process at a time does so. If it dies in between they are stored twice, but none is lost.
        """
        if self._database.row("SELECT 1 FROM delayed LIMIT 1") is None:
            return 0
        with self._database.transaction(durable=False) as connection:
            found = connection.execute("SELECT * FROM delayed ORDER BY tx, number LIMIT ?", (limit,))
            rows = [DelayedRow(*row) for row in found]
            if rows:
                store(rows)
            connection.executemany(
                "DELETE FROM delayed WHERE tx = ? AND number = ?", [(row.tx, row.number) for row in rows]
            )
            connection.executemany(
                "DELETE FROM transactions WHERE id = ?1 AND name IS NULL "
                "AND NOT EXISTS (SELECT 1 FROM staged WHERE tx = ?1)",
                [(tx,) for tx in {row.tx for row in rows}],
            )
            return len(rows)

    def files(self, topic_id: int, partition: int) -> set[str]:
        """Staged files that committed transactions still need."""
        rows = self._database.rows(
            "SELECT file FROM staged WHERE topic_id = ? AND partition = ? AND file IS NOT NULL",
            (topic_id, partition),
        )
        return {row[0] for row in rows}

    def pieces(self, topic_id: int) -> dict[int, list[PlacedPiece]]:
        """Return what has still to be appended to a topic, by partition; nothing in a store of format 1."""
        if self._database.row("SELECT 1 FROM sqlite_master WHERE name = 'staged'") is None:
            return {}
        found: dict[int, list[PlacedPiece]] = {}
        rows = self._database.rows(
            "SELECT partition, tx, number, base, count, file, data FROM staged WHERE topic_id = ? "
            "ORDER BY base",
            (topic_id,),
        )
        for partition, *piece in rows:
            found.setdefault(partition, []).append(PlacedPiece(*piece))
        return found

    def collect(self, remove: Callable[[], None]) -> None:
        """Call `remove` while no transaction can commit."""
        with self._database.transaction(after=remove) as connection:
            connection.execute("SELECT 1")

    def unfinished_pieces(self, topic_id: int, partition: int) -> list[PlacedPiece]:
        """Pieces that are not yet whole and durable in a partition, by offset."""
        rows = self._database.rows(
            "SELECT tx, number, base, count, file, data FROM staged WHERE topic_id = ? AND partition = ? "
            "ORDER BY base",
            (topic_id, partition),
        )
        return [PlacedPiece(*row) for row in rows]

    def move(self, topic_id: int, partition: int, pieces: Iterable[PlacedPiece]) -> None:
        """Store other offsets for pieces, durably."""
        with self._database.transaction() as connection:
            connection.executemany(
                "UPDATE staged SET base = ? WHERE topic_id = ? AND partition = ? AND tx = ? AND number = ?",
                [(piece.base, topic_id, partition, piece.tx, piece.number) for piece in pieces],
            )


def _move(connection: sqlite3.Connection, move: PositionUpdate, now_ns: int) -> None:
    changed = connection.execute(
        "UPDATE positions SET position = ?, updated = ? "
        "WHERE consumer = ? AND topic_id = ? AND partition = ? AND epoch = ? AND position = ?",
        (move.after, now_ns, move.consumer, move.topic_id, move.partition, move.epoch, move.before),
    )
    if not changed.rowcount:
        raise PartitionLost(
            f"consumer {move.consumer!r} was moved in partition {move.partition} by someone else",
            hint="nothing was committed; the reader goes on at the stored position",
        )


class StoredPartition:
    """What `state.db` says of one partition (`penstock.log.staging.PartitionState`)."""

    def __init__(
        self, topics: Topics, consumers: Consumers, transactions: Transactions, topic_id: int, partition: int
    ) -> None:
        self._topics = topics
        self._consumers = consumers
        self._transactions = transactions
        self.partition = partition
        self._place = (topic_id, partition)

    def options(self) -> TopicOptions:
        """Return the topic's options as they are now, whichever process changed them."""
        return self._topics.by_id(self._place[0]).options

    def require_topic(self) -> None:
        """Raise `TopicReplaced` unless the topic is still there."""
        self._topics.by_id(self._place[0])

    def is_split(self) -> bool:
        """Whether the rows say that the partition has children, and is only read."""
        topic_id, partition = self._place
        tree = self._topics.by_id(topic_id).rows
        return partition in tree and not tree.is_active(partition)

    def highest_position(self) -> int:
        """The highest offset that a consumer has committed."""
        return self._consumers.highest(*self._place)

    def holds(self) -> list[Hold]:
        """Consumers that keep messages of the partition from going by their age."""
        topic_id, partition = self._place
        keeping = [each for each in self._consumers.of_topic(topic_id) if each.options.keeps]
        if not keeping:
            return []
        positions = {
            each.consumer: each.position
            for each in self._consumers.positions(topic_id)
            if each.partition == partition
        }
        return [Hold(each.name, positions.get(each.name, 0), each.options.keeps_ns) for each in keeping]

    def unfinished(self) -> list[PlacedPiece]:
        """Pieces of committed transactions that are not yet whole and durable here, by offset."""
        return self._transactions.unfinished_pieces(*self._place)

    def move(self, pieces: Iterable[PlacedPiece]) -> None:
        """Store other offsets for pieces, durably."""
        self._transactions.move(*self._place, pieces)

    def finish(self, tx: int) -> None:
        """Take note that the transaction is whole and durable in this partition."""
        self._transactions.finish(tx, [self._place])
