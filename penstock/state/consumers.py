"""Consumers and their positions: the next offset to read, per topic and partition."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import NamedTuple

from penstock.errors import AlreadyExists, PartitionLost, UnknownConsumer, WrongType
from penstock.state.database import Database


@dataclass(frozen=True, kw_only=True)
class ConsumerOptions:
    """What a consumer asks of a topic's retention."""

    #: Nothing is removed before this consumer has committed it; the disk can fill up (S001-56).
    important: bool = False
    #: What it has not committed is kept this many seconds even when retention is shorter; None adds nothing.
    availability_period_s: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.important, bool):
            raise WrongType(f"important is True or False, not {type(self.important).__name__}")


class ConsumerRecord(NamedTuple):
    """One consumer of one topic."""

    name: str
    topic_id: int
    options: ConsumerOptions
    created: int


class Position(NamedTuple):
    """Where a consumer stands in one partition."""

    consumer: str
    partition: int
    position: int
    epoch: int
    updated: int


class Consumers:
    """The store's consumers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of_topic(self, topic_id: int) -> list[ConsumerRecord]:
        rows = self._database.rows(
            "SELECT name, topic_id, options, created FROM consumers WHERE topic_id = ? ORDER BY name",
            (topic_id,),
        )
        return [ConsumerRecord(n, t, ConsumerOptions(**json.loads(o)), c) for n, t, o, c in rows]

    def names(self) -> list[str]:
        return [row[0] for row in self._database.rows("SELECT DISTINCT name FROM consumers ORDER BY name")]

    def exists(self, name: str, topic_id: int) -> bool:
        row = self._database.row("SELECT 1 FROM consumers WHERE name = ? AND topic_id = ?", (name, topic_id))
        return row is not None

    def add(
        self, name: str, topic_id: int, options: ConsumerOptions, positions: dict[int, int], now_ns: int
    ) -> None:
        """Declare a consumer of a topic with its first positions; raises `AlreadyExists`."""
        with self._database.transaction() as connection:
            cursor = connection.execute(
                "INSERT OR IGNORE INTO consumers VALUES (?, ?, ?, ?)",
                (name, topic_id, json.dumps(asdict(options)), now_ns),
            )
            if not cursor.rowcount:
                raise AlreadyExists(f"consumer {name!r} exists")
            connection.executemany(
                "INSERT OR IGNORE INTO positions VALUES (?, ?, ?, ?, 0, ?)",
                [(name, topic_id, partition, at, now_ns) for partition, at in positions.items()],
            )

    def alter(self, name: str, topic_id: int, options: ConsumerOptions) -> None:
        with self._database.transaction() as connection:
            connection.execute(
                "UPDATE consumers SET options = ? WHERE name = ? AND topic_id = ?",
                (json.dumps(asdict(options)), name, topic_id),
            )

    def drop(self, name: str, topic_id: int) -> None:
        with self._database.transaction() as connection:
            gone = connection.execute(
                "DELETE FROM consumers WHERE name = ? AND topic_id = ?", (name, topic_id)
            )
            if not gone.rowcount:
                raise UnknownConsumer(f"no consumer {name!r} of this topic")
            connection.execute("DELETE FROM positions WHERE consumer = ? AND topic_id = ?", (name, topic_id))

    def positions(self, topic_id: int, name: str | None = None) -> list[Position]:
        """Stored positions in a topic, of one consumer or of all."""
        condition, arguments = ("", (topic_id,)) if name is None else (" AND consumer = ?", (topic_id, name))
        rows = self._database.rows(
            "SELECT consumer, partition, position, epoch, updated FROM positions "
            f"WHERE topic_id = ?{condition} ORDER BY consumer, partition",
            arguments,
        )
        return [Position(*row) for row in rows]

    def highest(self, topic_id: int, partition: int) -> int:
        """The highest position anyone committed: no offset below it may be given to a new message."""
        row = self._database.row(
            "SELECT max(position) FROM positions WHERE topic_id = ? AND partition = ?", (topic_id, partition)
        )
        return row[0] or 0

    def begin(self, name: str, topic_id: int, partition: int, position: int, now_ns: int) -> None:
        """Give a partition that appeared later its first position, unless it has one."""
        self._database.quick(
            "INSERT OR IGNORE INTO positions VALUES (?, ?, ?, ?, 0, ?)",
            (name, topic_id, partition, position, now_ns),
        )

    def commit(
        self, name: str, topic_id: int, partition: int, position: int, epoch: int, now_ns: int
    ) -> None:
        """Move a position, if nobody took the partition over since `epoch`."""
        changed = self._database.quick(
            "UPDATE positions SET position = ?, updated = ? "
            "WHERE consumer = ? AND topic_id = ? AND partition = ? AND epoch = ?",
            (position, now_ns, name, topic_id, partition, epoch),
        )
        if not changed:
            raise PartitionLost(
                f"consumer {name!r} was moved in partition {partition} by someone else",
                hint="open the reader again: it continues at the stored position",
            )

    def seek(self, name: str, topic_id: int, positions: dict[int, int], now_ns: int) -> None:
        """Put positions anywhere; whoever reads there now loses the partition."""
        with self._database.transaction() as connection:
            connection.executemany(
                "UPDATE positions SET position = ?, epoch = epoch + 1, updated = ? "
                "WHERE consumer = ? AND topic_id = ? AND partition = ?",
                [(at, now_ns, name, topic_id, partition) for partition, at in positions.items()],
            )
