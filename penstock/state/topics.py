"""Topics as the store remembers them: id, name, options, and the number of the partition tree."""

from __future__ import annotations

import json
import secrets
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.clock import NANOSECONDS
from penstock.errors import AlreadyExists, DataError, InvalidOption, TopicReplaced, UnknownTopic
from penstock.options import TopicOptions
from penstock.partition_tree import PartitionTree
from penstock.state.database import Database
from penstock.state.partitions import Gates, PartitionRows, StoredRow, save_rows, tree_of

#: A binding is forgotten when its producer, or a group without one, wrote nothing for so long (S001-35).
FORGOTTEN_NS = 14 * 86400 * NANOSECONDS
#: How often the store is told that a binding is in use.
_REFRESH_NS = 3600 * NANOSECONDS
#: Forgotten ones are swept out each time so many were made.
_SWEEP_EVERY = 1000


#: Where a pair's messages lie, given the partition of its forgotten binding; None: it has none.
Settled = Callable[[int | None], int | None]


class _Bound(NamedTuple):
    partition: int
    #: When the store was last told, or told us, that it is in use.
    used: int


class Bindings:
    """The bindings of one topic, remembered by this process for as long as they cannot change."""

    def __init__(self, database: Database, topic_id: int) -> None:
        self._database = database
        self._topic_id = topic_id
        self._remembered: dict[tuple[str, str], _Bound] = {}
        self._mutex = threading.Lock()

    def partition(self, producer: str, group: str, active: Sequence[int], now: int, settled: Settled) -> int:
        """The partition that messages of this producer and group go to.

        At first use they take turns among the active ones, unless `settled` knows where they went before,
        given the partition of a binding that was forgotten. A binding is on disk before it is used: a resend
        must find the same partition.
        """
        bound = self._remembered.get((producer, group))
        if bound is None or abs(now - bound.used) >= _REFRESH_NS:
            with self._mutex:
                bound = self._ask(producer, group, active, now, settled)
                self._remembered[producer, group] = bound
        return bound.partition

    def _ask(self, producer: str, group: str, active: Sequence[int], now: int, settled: Settled) -> _Bound:
        who = (self._topic_id, producer, group)
        row = self._database.row(f"SELECT partition, used FROM bindings WHERE {_WHO}", who)
        if row is None:
            return self._bind(who, active, now, settled(None))
        if self._is_forgotten(producer, row[1], now):
            return self._bind(who, active, now, settled(row[0]))
        bound = _Bound(*row)
        if abs(now - bound.used) >= _REFRESH_NS:
            self._database.quick(f"UPDATE bindings SET used = ? WHERE {_WHO}", (now, *who))
            bound = _Bound(bound.partition, now)
        return bound

    def sweep(self, now: int) -> None:
        """Remove the bindings that are forgotten."""
        with self._database.transaction() as connection:
            connection.execute(_SWEEP, (self._topic_id, now - FORGOTTEN_NS))

    def _is_forgotten(self, producer: str, used: int, now: int) -> bool:
        """Whether a binding last used then is forgotten; bindings of a producer last equally long."""
        if producer and now - used >= FORGOTTEN_NS:
            last = "SELECT max(used) FROM bindings WHERE topic_id = ? AND producer = ?"
            row = self._database.row(last, (self._topic_id, producer))
            used = used if row is None or row[0] is None else row[0]
        return now - used >= FORGOTTEN_NS

    def _bind(
        self, who: tuple[int, str, str], active: Sequence[int], now: int, settled: int | None
    ) -> _Bound:
        with self._database.transaction() as connection:
            row = connection.execute(f"SELECT partition, used FROM bindings WHERE {_WHO}", who).fetchone()
            if row is not None and now - row[1] < FORGOTTEN_NS:
                return _Bound(*row)  # another process was quicker
            partition = settled
            if partition is None:
                partition = active[self._turn(connection, now) % len(active)]
            connection.execute(
                "INSERT OR REPLACE INTO bindings VALUES (?, ?, ?, ?, ?)", (*who, partition, now)
            )
        return _Bound(partition, now)

    def _turn(self, connection: sqlite3.Connection, now: int) -> int:
        (turn,) = connection.execute(
            "INSERT INTO turns VALUES (?, 1) ON CONFLICT (topic_id) DO UPDATE SET bound = bound + 1 "
            "RETURNING bound - 1",
            (self._topic_id,),
        ).fetchone()
        if turn % _SWEEP_EVERY == _SWEEP_EVERY - 1:
            connection.execute(_SWEEP, (self._topic_id, now - FORGOTTEN_NS))
        return int(turn)


#: What is left out are bindings of producers that have used another one since.
_SWEEP = """
DELETE FROM bindings AS old WHERE topic_id = ?1 AND used <= ?2 AND (producer = '' OR NOT EXISTS (
    SELECT 1 FROM bindings WHERE topic_id = ?1 AND producer = old.producer AND used > ?2))
"""
_WHO = "topic_id = ? AND producer = ? AND message_group = ?"


class TopicRecord(NamedTuple):
    """One topic, as it was when this was read."""

    id: int
    name: str
    options: TopicOptions
    #: Changes with the partitions; writers compare it under the append lock.
    tree: int
    created: int
    #: The partitions themselves.
    rows: PartitionTree


_COLUMNS = "id, name, options, tree, created"


class ForgottenRow(NamedTuple):
    """A topic to be taken back into the list, as its own folder knows it."""

    id: int
    name: str
    options: Mapping[str, Any]
    tree: int
    created: int
    gates: Sequence[tuple[int, int, int]]
    rows: Sequence[StoredRow] = ()


class TreeChanged(Exception):
    """The topic's partitions changed since its record was read: nothing was stored, read it again."""


class Topics:
    """The store's list of topics."""

    def __init__(self, database: Database) -> None:
        self._database = database
        #: Their partitions.
        self.partitions = PartitionRows(database)

    @property
    def store_id(self) -> str:
        """The id of the store whose topics these are."""
        return self._database.store_id

    def names(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return [row[0] for row in self._database.rows("SELECT name FROM topics ORDER BY name")]

    def find(self, name: str) -> TopicRecord:
        """Return the topic of that name; raise `UnknownTopic`, which names those that exist."""
        while True:
            row = self._database.row(f"SELECT {_COLUMNS} FROM topics WHERE name = ?", (name,))
            if row is None:
                raise UnknownTopic(name, tuple(self.names()))
            record = self._record(row)
            if record is not None:
                return record

    def all(self) -> list[TopicRecord]:
        """Every topic that can be understood, as it is now."""
        rows = self._database.rows(f"SELECT {_COLUMNS} FROM topics")
        found = []
        for row in rows:
            try:
                record = self._record(row)
                found.append(self.by_id(row[0]) if record is None else record)
            except (DataError, TopicReplaced):  # `find` says so to whoever asks for it
                continue
        return found

    def by_id(self, topic_id: int) -> TopicRecord:
        """The topic as it is now; raises `TopicReplaced` when it was dropped."""
        while True:
            row = self._database.row(f"SELECT {_COLUMNS} FROM topics WHERE id = ?", (topic_id,))
            if row is None:
                raise TopicReplaced("the topic was dropped", hint="open it anew by its name")
            record = self._record(row)
            if record is not None:
                return record

    def _record(self, row: tuple[int, str, str, int, int]) -> TopicRecord | None:
        """The record of a row; None when the topic's partitions changed while they were read."""
        topic_id, name, options, tree, created = row
        understood = _options(name, options)
        rows = self.partitions.tree(topic_id, tree, understood.partitions)
        return None if rows is None else TopicRecord(topic_id, name, understood, tree, created, rows)

    def understood(self, name: str) -> TopicRecord | None:
        """The topic of that name, or None when its row cannot be understood."""
        try:
            return self.find(name)
        except DataError:
            return None

    def take_back(self, row: ForgottenRow) -> None:
        """Put a topic into the list again, in place of a row of its id or its name."""
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM topics WHERE id = ? OR name = ?", (row.id, row.name))
            connection.execute(
                f"INSERT INTO topics ({_COLUMNS}) VALUES (?, ?, ?, ?, ?)",
                (row.id, row.name, json.dumps(dict(row.options)), row.tree, row.created),
            )
            connection.executemany(
                "INSERT OR REPLACE INTO gates VALUES (?, ?, ?, ?)", [(row.id, *gate) for gate in row.gates]
            )
            if row.rows:
                save_rows(connection, row.id, tree_of(row.rows, {}))
        self.partitions.forget(row.id)

    def create(
        self, name: str, options: TopicOptions, now_ns: int, *, before: Callable[[], None]
    ) -> TopicRecord:
        """Add a topic; `before` runs before the commit, when it is certain that there is none so far."""
        topic_id = secrets.randbits(62) | 1
        try:
            with self._database.transaction() as connection:
                connection.execute(
                    "INSERT INTO topics (id, name, options, created) VALUES (?, ?, ?, ?)",
                    (topic_id, name, json.dumps(options.as_dict()), now_ns),
                )
                before()
        except sqlite3.IntegrityError:
            raise AlreadyExists(f"topic {name!r} exists", hint="exists_ok=True accepts it") from None
        return self.by_id(topic_id)

    def alter(
        self, record: TopicRecord, options: TopicOptions, *, tree: PartitionTree | None = None,
        gates: Sequence[tuple[int, int, int]] = (),
    ) -> TopicRecord:  # fmt: skip
        """Store new options, and with added partitions the tree that has them.

        Where partitions are chosen by their count, `gates` says behind which (partition, parent, offset)
        the added ones open. None of it unless the topic's tree is still that of `record`.
        """
        # A new number sends writers of other processes here with their next append.
        is_told = bool(gates) or tree is not None or options.for_writers != record.options.for_writers
        with self._database.transaction() as connection:
            changed = connection.execute(
                "UPDATE topics SET options = ?, tree = tree + ? WHERE id = ? AND tree = ?",
                (json.dumps(options.as_dict()), 1 if is_told else 0, record.id, record.tree),
            )
            if not changed.rowcount:
                raise TreeChanged
            connection.executemany(
                "INSERT OR REPLACE INTO gates VALUES (?, ?, ?, ?)", [(record.id, *gate) for gate in gates]
            )
            if tree is not None:
                save_rows(connection, record.id, tree)
        return self.by_id(record.id)

    def gates(self, topic_id: int) -> Gates:
        """For each partition that opens later: up to which offset of which earlier ones must be read first.

        What those had to wait for comes on top; partitions that are gone have theirs too.
        """
        return {row.partition: dict(row.gates) for row in self.by_id(topic_id).rows if row.gates}

    def bindings(self, topic_id: int) -> Bindings:
        """Which partitions producers and groups of a topic were given."""
        return Bindings(self._database, topic_id)

    def make_durable(self) -> None:
        """Return when everything written to `state.db` so far would survive a power cut."""
        with self._database.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO meta VALUES ('synced', hex(randomblob(4)))")

    def sweep(self, after: Callable[[list[str]], None]) -> None:
        """Call `after` with all names while nobody can create or drop."""
        names: list[str] = []
        with self._database.transaction(after=lambda: after(names)) as connection:
            names += [row[0] for row in connection.execute("SELECT name FROM topics")]

    def drop(self, topic_id: int, *, after: Callable[[], None]) -> None:
        """Forget a topic, its consumers' positions and all.

        `after` runs behind the commit, before anyone else can create or drop.
        """
        changes = self._database.changes

        def gone() -> None:
            changes.end_change()
            after()

        with self._database.transaction(after=gone) as connection:
            changes.begin_change()  # positions in streams may be remembered, and a topic's id comes again
            for table, column in (
                ("positions", "topic_id"), ("consumers", "topic_id"), ("gates", "topic_id"),
                ("bindings", "topic_id"), ("turns", "topic_id"), ("staged", "topic_id"),
                ("stream_positions", "topic_id"), ("streams", "topic_id"), ("queues", "topic_id"),
                ("deaths", "topic_id"), ("partitions", "topic_id"), ("splits", "topic_id"),
                ("leases", "topic_id"), ("topics", "id"),
            ):  # fmt: skip
                connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (topic_id,))


def _options(name: str, text: str) -> TopicOptions:
    try:
        return TopicOptions(**json.loads(text))
    except (ValueError, TypeError, InvalidOption) as error:
        raise DataError(
            f"state.db: the options of topic {name!r} cannot be understood: {error}",
            hint="penstock repair takes them from the topic's folder",
        ) from error
