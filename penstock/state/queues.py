"""Queues: consumers whose readers take single messages of the same partition, each for a time.

For each partition there is the next offset that nobody was given, and the messages before it that are out:
who has them, until when, and how often they were delivered. What is neither is done. A lease that ran out is
anybody's. The consumer's position is the first offset that is not done, as for any other consumer: it is
computed when somebody asks, and stored now and then.

Nothing here waits for the disk, but for messages that come from the files of waiting ones: should the power
take the last changes back, messages are delivered again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from penstock.state.database import Database

_OF = "consumer = ? AND topic_id = ? AND partition = ?"
#: Nobody's.
FREE = 0
#: The time of a lease whose reader died; given back, a lease is nobody's.
ENDED = 0
#: The position of a row `p` of `positions`, for a queue as its leases say; and the rows that this needs.
POSITION = (
    "CASE WHEN q.next IS NULL THEN p.position ELSE min(q.next, ifnull((SELECT min(l.first) FROM leases l "
    "WHERE l.consumer = p.consumer AND l.topic_id = p.topic_id AND l.partition = p.partition "
    "AND l.data IS NULL), q.next)) END"
)
JOIN = (
    "LEFT JOIN queues q ON q.consumer = p.consumer AND q.topic_id = p.topic_id AND q.partition = p.partition"
)


class QueuePlace(NamedTuple):
    """One partition of a queue."""

    consumer: str
    topic_id: int
    partition: int


class Lease(NamedTuple):
    """Messages `first` to `stop` that one reader has."""

    first: int
    stop: int
    #: How often they were delivered, this time included.
    attempts: int
    #: The whole message, where it waited for another attempt; else it is in the log.
    data: bytes | None
    #: Another reader had them, and did not settle them in its time, or died.
    ran_out: bool = False
    #: Its process died: this is one message, and comes alone.
    died: bool = False


class Queues:
    """The store's queues."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._is_known = False

    def begin(self, place: QueuePlace) -> None:
        """Make a partition of a consumer a queue, from its position on, unless it is one."""
        self._database.quick(
            "INSERT OR IGNORE INTO queues SELECT consumer, topic_id, partition, position FROM positions "
            f"WHERE {_OF}",
            place,
        )
        if self._overlapping(place):
            with self._database.transaction(durable=False) as connection:
                for first, stop, behind in self._overlapping(place):
                    _cut(connection, place, first, (stop, behind), behind)
        ahead = f"FROM leases WHERE {_OF} AND first >= (SELECT next FROM queues WHERE {_OF})"
        if self._database.row(f"SELECT 1 {ahead}", (*place, *place)) is not None:
            self._database.quick(f"DELETE {ahead}", (*place, *place))  # the log delivers them

    def _overlapping(self, place: QueuePlace) -> list[tuple[int, int, int]]:
        """Leases that reach into the next one, as earlier versions left them: (first, where to end, stop)."""
        rows = self._database.rows(f"SELECT first, stop FROM leases WHERE {_OF} ORDER BY first", place)
        return [(first, begin, stop) for (first, stop), (begin, _) in pairwise(rows) if stop > begin]

    def is_known(self) -> bool:
        """Whether the format of this store has queues; only one that is read only may lack them."""
        if not self._is_known:
            self._is_known = self._database.has_table("queues")
        return self._is_known

    def highest(self, topic_id: int, partition: int) -> int:
        """The highest offset that any queue was given."""
        if not self.is_known():
            return 0
        asked = (topic_id, partition)
        row = self._database.row("SELECT max(next) FROM queues WHERE topic_id = ? AND partition = ?", asked)
        return row[0] or 0

    def is_queue(self, consumer: str, topic_id: int) -> bool:
        """Whether a consumer is a queue; in a store that may only be read perhaps none can be."""
        asked = (consumer, topic_id)
        return (
            self.is_known()
            and self._database.row("SELECT 1 FROM queues WHERE consumer = ? AND topic_id = ?", asked)
            is not None
        )

    def next(self, place: QueuePlace) -> int | None:
        """The first offset that nobody was given; None when the consumer was dropped."""
        row = self._database.row(f"SELECT next FROM queues WHERE {_OF}", place)
        return None if row is None else int(row[0])

    def take_new(
        self, place: QueuePlace, runs: Sequence[tuple[int, int]], behind: int, expected: int, member: int,
        until_ms: int,
    ) -> bool:  # fmt: skip
        """Take runs of messages that nobody was given; False when another reader was quicker."""
        moved = f"UPDATE queues SET next = ? WHERE {_OF} AND next = ?", (behind, *place, expected)
        taken = [
            ("INSERT INTO leases VALUES (?, ?, ?, ?, ?, ?, ?, 1, NULL)", (*place, *run, member, until_ms))
            for run in runs
        ]
        return self._database.quick_all(moved, *taken)

    def take_free(
        self, place: QueuePlace, limit: int, member: int, now_ms: int, until_ms: int
    ) -> list[Lease]:
        """Take what is nobody's any more, what has been so for longest first, at most `limit` messages."""
        if not self._is_any_free(place, now_ms):
            return []
        taken: list[Lease] = []
        with self._database.transaction(durable=False) as connection:
            rows = connection.execute(
                f"SELECT first, stop, attempts, data, member, until FROM leases WHERE {_OF} AND until <= ? "
                "ORDER BY until, first LIMIT ?",
                (*place, now_ms, limit),
            ).fetchall()
            for first, stop, attempts, data, before, until in rows:
                died = before != FREE and until == ENDED
                if limit <= 0 or (died and taken):
                    break
                end = first + 1 if died else min(stop, first + limit)
                lease = Lease(first, end, attempts + 1, data, before != FREE, died)
                _cut(connection, place, first, (first, end), stop)
                _insert(connection, place, lease, member, until_ms)
                taken.append(lease)
                limit -= end - first
                if died:
                    break
        return taken

    def done(self, place: QueuePlace, first: int, stop: int, member: int) -> int:
        """Settle messages `first` to `stop` that this reader has; return how many."""
        gone = self._database.quick(
            f"DELETE FROM leases WHERE {_OF} AND first = ? AND stop = ? AND member = ?",
            (*place, first, stop, member),
        )
        if gone:
            return stop - first
        count = 0
        with self._database.transaction(durable=False) as connection:
            for begin, end in _held(connection, place, first, stop, member):
                part = max(begin, first), min(end, stop)
                _cut(connection, place, begin, part, end)
                count += part[1] - part[0]
        return count

    def store_position(self, place: QueuePlace, now_ns: int) -> None:
        """Store the position as it is now."""
        self._database.quick(
            "UPDATE positions SET updated = ?, position = (SELECT ifnull(min(next, "
            f"(SELECT min(first) FROM leases WHERE {_OF} AND data IS NULL)), next) "
            f"FROM queues WHERE {_OF}) WHERE {_OF}",
            (now_ns, *place, *place, *place),
        )

    def has(self, place: QueuePlace, offset: int, member: int) -> bool:
        """Whether a reader has a message."""
        row = self._database.row(
            f"SELECT 1 FROM leases WHERE {_OF} AND first <= ? AND stop > ? AND member = ?",
            (*place, offset, offset, member),
        )
        return row is not None

    def add_due(self, place: QueuePlace, waited: Iterable[tuple[int, int, bytes]], *, durable: bool) -> None:
        """Add messages whose next attempt is due, for any reader: (offset, attempts so far, the message).

        A reader that retries a message stores it first and then says that it is done. If it falls due before
        that, it takes the place of the one that is out, or that word would be for both. One that was
        delivered more often meanwhile stays: a crash left the message twice. One that nobody was
        given yet, since the consumer was moved back, is delivered by the log.
        """
        with self._database.transaction(durable=durable) as connection:
            row = connection.execute(f"SELECT next FROM queues WHERE {_OF}", place).fetchone()
            behind = 0 if row is None else row[0]
            for at, attempts, data in waited:
                if at >= behind:
                    continue
                there = connection.execute(
                    f"SELECT first, stop, attempts FROM leases WHERE {_OF} AND first <= ? AND stop > ?",
                    (*place, at, at),
                ).fetchone()
                if there is not None and there[2] > attempts:
                    continue
                if there is not None:
                    _cut(connection, place, there[0], (at, at + 1), there[1])
                _insert(connection, place, Lease(at, at + 1, attempts, data), FREE, 0)

    def extend(self, place: QueuePlace, member: int, until_ms: int) -> None:
        """Extend the leases of all that a reader has."""
        self._database.quick(
            f"UPDATE leases SET until = ? WHERE {_OF} AND member = ?", (until_ms, *place, member)
        )

    def end(self, place: QueuePlace, member: int) -> None:
        """End the leases of a reader: what it has is free for all."""
        self._database.quick(
            f"UPDATE leases SET until = {ENDED} WHERE {_OF} AND member = ?", (*place, member)
        )

    def give_back(self, place: QueuePlace, member: int, *, undelivered: Iterable[int]) -> None:
        """Give back all that a reader has; what it did not deliver counts as no attempt."""
        with self._database.transaction(durable=False) as connection:
            for offset in undelivered:
                _uncount(connection, place, offset, member, member)
            connection.execute(
                f"UPDATE leases SET until = 0, member = {FREE} WHERE {_OF} AND member = ?", (*place, member)
            )

    def put_back(self, place: QueuePlace, member: int, offsets: Iterable[int]) -> None:
        """Give back what a reader took and did not deliver: that was no attempt."""
        with self._database.transaction(durable=False) as connection:
            for offset in offsets:
                _uncount(connection, place, offset, member, FREE)

    def members(self, place: QueuePlace) -> set[int]:
        """All readers that have something."""
        rows = self._database.rows(
            f"SELECT DISTINCT member FROM leases WHERE {_OF} AND member <> {FREE}", place
        )
        return {row[0] for row in rows}

    def next_free_ms(self, place: QueuePlace) -> int | None:
        """When the next lease runs out; None when nothing is out."""
        row = self._database.row(f"SELECT min(until) FROM leases WHERE {_OF}", place)
        return None if row is None else row[0]

    def _is_any_free(self, place: QueuePlace, now_ms: int) -> bool:
        row = self._database.row(f"SELECT 1 FROM leases WHERE {_OF} AND until <= ? LIMIT 1", (*place, now_ms))
        return row is not None


def forget(connection: sqlite3.Connection, consumer: str, topic_id: int) -> None:
    """Delete the queue of a consumer that was dropped."""
    for table in ("queues", "leases"):
        connection.execute(f"DELETE FROM {table} WHERE consumer = ? AND topic_id = ?", (consumer, topic_id))


def move(connection: sqlite3.Connection, place: QueuePlace, offset: int) -> None:
    """Move a queue to another offset: readers lose what they have."""
    connection.execute(f"UPDATE queues SET next = ? WHERE {_OF}", (offset, *place))
    connection.execute(f"DELETE FROM leases WHERE {_OF} AND (data IS NULL OR first >= ?)", (*place, offset))
    connection.execute(f"UPDATE leases SET until = 0, member = {FREE} WHERE {_OF}", place)


def _held(
    connection: sqlite3.Connection, place: QueuePlace, first: int, stop: int, member: int
) -> list[tuple[int, int]]:
    return connection.execute(
        f"SELECT first, stop FROM leases WHERE {_OF} AND first < ? AND stop > ? AND member = ?",
        (*place, stop, first, member),
    ).fetchall()


def _cut(
    connection: sqlite3.Connection, place: QueuePlace, begin: int, part: tuple[int, int], end: int
) -> None:
    """Take a part out of a lease `begin` to `end`; what is left of it stays as it was."""
    at = (*place, begin)
    if part[1] < end:
        connection.execute(
            "INSERT INTO leases SELECT consumer, topic_id, partition, ?, ?, member, until, attempts, data "
            f"FROM leases WHERE {_OF} AND first = ?",
            (part[1], end, *at),
        )
    if part[0] > begin:
        connection.execute(f"UPDATE leases SET stop = ? WHERE {_OF} AND first = ?", (part[0], *at))
    else:
        connection.execute(f"DELETE FROM leases WHERE {_OF} AND first = ?", at)


def _insert(
    connection: sqlite3.Connection, place: QueuePlace, lease: Lease, member: int, until_ms: int
) -> None:
    row = (*place, lease.first, lease.stop, member, until_ms, lease.attempts, lease.data)
    connection.execute("INSERT INTO leases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)


def _uncount(connection: sqlite3.Connection, place: QueuePlace, offset: int, member: int, owner: int) -> None:
    """Take back the attempt of a message that was taken and not delivered; `owner` has it then."""
    row = connection.execute(
        f"SELECT first, stop, attempts, data FROM leases WHERE {_OF} AND first <= ? AND stop > ? "
        "AND member = ?",
        (*place, offset, offset, member),
    ).fetchone()
    if row is not None:
        first, stop, attempts, data = row
        _cut(connection, place, first, (offset, offset + 1), stop)
        _insert(connection, place, Lease(offset, offset + 1, attempts - 1, data), owner, 0)
