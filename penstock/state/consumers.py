"""Consumers and their positions: the next offset to read, per topic and partition."""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import NamedTuple

from penstock.clock import NANOSECONDS
from penstock.errors import AlreadyExists, PartitionLost, UnknownConsumer, WrongType
from penstock.parse import whole
from penstock.state import deaths, queues
from penstock.state.database import Database
from penstock.state.deaths import Deaths, Doubt
from penstock.state.queues import QueuePlace, Queues


@dataclass(frozen=True, kw_only=True)
class ConsumerOptions:
    """What a consumer asks of a topic: of its retention, and where its messages begin."""

    #: Nothing is removed before this consumer has committed it; the disk can fill up (S001-56).
    important: bool = False
    #: What it has not committed is kept this many seconds even when retention is shorter; None adds nothing.
    availability_period_s: float | None = None
    #: Messages written before this moment are skipped, in nanoseconds (B001-04); None skips none.
    read_from_ns: int | None = None
    #: All its readers together get so many bytes of frames a second, and so many at once; None is no limit,
    #: and one second's worth.
    read_speed: int | None = None
    read_burst: int | None = None

    @property
    def read_limit(self) -> tuple[int, int] | None:
        """Bytes a second and at once that its readers are held to; None where they are not."""
        return None if self.read_speed is None else (self.read_speed, self.read_burst or self.read_speed)

    @property
    def keeps(self) -> bool:
        """Whether messages stay for this consumer that retention would remove."""
        return self.important or self.availability_period_s is not None

    @property
    def keeps_ns(self) -> int | None:
        """How young a message is that stays for this consumer; None: it stays until it is committed."""
        if self.important or self.availability_period_s is None:
            return None
        return round(self.availability_period_s * NANOSECONDS)

    def __post_init__(self) -> None:
        if not isinstance(self.important, bool):
            raise WrongType(f"important is True or False, not {type(self.important).__name__}")
        for name, value in (("read_speed", self.read_speed), ("read_burst", self.read_burst)):
            if value is not None:
                whole(name, value, 1, 2**40)


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
    #: What is suspected of its messages, where readers died with them.
    doubt: Doubt | None = None


class Consumers:
    """The store's consumers."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.queues = Queues(database)
        self.deaths = Deaths(database)

    def of_topic(self, topic_id: int) -> list[ConsumerRecord]:
        """Return the consumers of a topic, by name."""
        rows = self._database.rows(
            "SELECT name, topic_id, options, created FROM consumers WHERE topic_id = ? ORDER BY name",
            (topic_id,),
        )
        return [ConsumerRecord(n, t, ConsumerOptions(**json.loads(o)), c) for n, t, o, c in rows]

    def names(self) -> list[str]:
        """Return the names of all consumers of the store, each once."""
        return [row[0] for row in self._database.rows("SELECT DISTINCT name FROM consumers ORDER BY name")]

    def exists(self, name: str, topic_id: int) -> bool:
        """Whether the topic has a consumer of that name."""
        row = self._database.row("SELECT 1 FROM consumers WHERE name = ? AND topic_id = ?", (name, topic_id))
        return row is not None

    def options(self, name: str, topic_id: int) -> ConsumerOptions:
        """What a consumer asked for; raises `UnknownConsumer`."""
        row = self._database.row(
            "SELECT options FROM consumers WHERE name = ? AND topic_id = ?", (name, topic_id)
        )
        if row is None:
            raise UnknownConsumer(f"no consumer {name!r} of this topic")
        return ConsumerOptions(**json.loads(row[0]))

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
                "INSERT OR IGNORE INTO positions VALUES (?, ?, ?, ?, ?, ?)",
                [(name, topic_id, number, at, _first_epoch(), now_ns) for number, at in positions.items()],
            )

    def alter(self, name: str, topic_id: int, options: ConsumerOptions) -> None:
        """Change what a consumer asks for; raises `UnknownConsumer`."""
        with self._database.transaction() as connection:
            changed = connection.execute(
                "UPDATE consumers SET options = ? WHERE name = ? AND topic_id = ?",
                (json.dumps(asdict(options)), name, topic_id),
            )
            if not changed.rowcount:
                raise UnknownConsumer(f"no consumer {name!r} of this topic")

    def drop(self, name: str, topic_id: int) -> None:
        """Delete a consumer and its positions; raise `UnknownConsumer` if there is none."""
        with self._database.transaction() as connection:
            gone = connection.execute(
                "DELETE FROM consumers WHERE name = ? AND topic_id = ?", (name, topic_id)
            )
            if not gone.rowcount:
                raise UnknownConsumer(f"no consumer {name!r} of this topic")
            connection.execute("DELETE FROM positions WHERE consumer = ? AND topic_id = ?", (name, topic_id))
            queues.forget(connection, name, topic_id)
            deaths.forget_consumer(connection, name, topic_id)

    def positions(self, topic_id: int, name: str | None = None) -> list[Position]:
        """Stored positions in a topic, of one consumer or of all."""
        condition, arguments = (
            ("", (topic_id,)) if name is None else (" AND p.consumer = ?", (topic_id, name))
        )
        position, source = "p.position", "positions p"
        if self.queues.is_known():
            position, source = queues.POSITION, f"positions p {queues.JOIN}"
        rows = self._database.rows(
            f"SELECT p.consumer, p.partition, {position}, p.epoch, p.updated FROM {source} "
            f"WHERE p.topic_id = ?{condition} ORDER BY p.consumer, p.partition",
            arguments,
        )
        return [Position(*row) for row in rows]

    def highest(self, topic_id: int, partition: int) -> int:
        """The highest position anyone committed: no offset below it may be given to a new message."""
        row = self._database.row(
            "SELECT max(position) FROM positions WHERE topic_id = ? AND partition = ?", (topic_id, partition)
        )
        return max(row[0] or 0, self.queues.highest(topic_id, partition))

    def begin(self, name: str, topic_id: int, partition: int, position: int, now_ns: int) -> None:
        """Give a partition that appeared later its first position, unless it has one."""
        self._database.quick(
            "INSERT OR IGNORE INTO positions SELECT ?, ?, ?, ?, ?, ? "
            "WHERE EXISTS (SELECT 1 FROM consumers WHERE name = ? AND topic_id = ?)",
            (name, topic_id, partition, position, _first_epoch(), now_ns, name, topic_id),
        )

    def take(
        self, name: str, topic_id: int, partitions: Iterable[int], left: Collection[int] = ()
    ) -> dict[int, Position]:
        """Take partitions over, whose leases the caller holds: earlier holders can commit no more.

        `left` are those whose last reader died. Returns where each stands, with its new epoch, as it was in
        the same moment.
        """
        wanted = set(partitions)
        with self._database.transaction(durable=False) as connection:
            _count_up(connection, name, topic_id, wanted)
            rows = connection.execute(
                "SELECT consumer, partition, position, epoch, updated FROM positions "
                "WHERE consumer = ? AND topic_id = ?",
                (name, topic_id),
            ).fetchall()
            found = {row[1]: Position(*row) for row in rows if row[1] in wanted}
            for number, each in found.items():
                place, died = (name, topic_id, number), number in left
                doubt = deaths.take_over(connection, place, each.position, died=died)
                found[number] = each._replace(doubt=doubt)
        return found

    def kick(self, name: str, topic_id: int, partitions: Iterable[int]) -> None:
        """Take partitions from their holders; where they stand does not change."""
        with self._database.transaction(durable=False) as connection:
            _count_up(connection, name, topic_id, partitions)

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
            raise self._lost(name, topic_id, partition)

    def seek(
        self, name: str, topic_id: int, positions: Mapping[int, int], now_ns: int,
        epochs: Mapping[int, int] | None = None,
    ) -> dict[int, int]:  # fmt: skip
        """Put positions anywhere and return their new epochs; a reader there now loses the partition.

        With `epochs`, only if nobody took any of them over since.
        """
        with self._database.transaction() as connection:
            for partition, at in positions.items():
                epoch = None if epochs is None else epochs[partition]
                changed = connection.execute(
                    "UPDATE positions SET position = ?, epoch = epoch + 1, updated = ? "
                    "WHERE consumer = ? AND topic_id = ? AND partition = ? AND epoch = ifnull(?, epoch)",
                    (at, now_ns, name, topic_id, partition, epoch),
                )
                if not changed.rowcount and epochs is not None:
                    raise self._lost(name, topic_id, partition)
                queues.move(connection, QueuePlace(name, topic_id, partition), at)
            deaths.forget_consumer(connection, name, topic_id)
            rows = connection.execute(
                "SELECT partition, epoch FROM positions WHERE consumer = ? AND topic_id = ?", (name, topic_id)
            ).fetchall()
        return dict(rows)

    def _lost(self, name: str, topic_id: int, partition: int) -> PartitionLost | UnknownConsumer:
        """Why a position could not be moved."""
        if not self.exists(name, topic_id):
            return UnknownConsumer(f"consumer {name!r} was dropped", hint="open a new reader to make it anew")
        return PartitionLost(
            f"partition {partition} of consumer {name!r} was taken over or moved by someone else",
            hint="what was not committed comes again, here or to another member: go on receiving",
        )


def _count_up(connection: sqlite3.Connection, name: str, topic_id: int, partitions: Iterable[int]) -> None:
    connection.executemany(
        "UPDATE positions SET epoch = epoch + 1 WHERE consumer = ? AND topic_id = ? AND partition = ?",
        [(name, topic_id, partition) for partition in partitions],
    )


def _first_epoch() -> int:
    """A random first epoch: a reader of a dropped consumer must not pass for one of the next of that name."""
    return secrets.randbits(40)
