"""Bindings: which partition a producer's group was given, so that all its messages go there (S001-34)."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from typing import NamedTuple

from penstock.clock import NANOSECONDS
from penstock.state.database import Database

#: A binding that nobody used for so long is forgotten (S001-35).
FORGOTTEN_NS = 14 * 86400 * NANOSECONDS
#: How often the store is told that a binding is in use.
_REFRESH_NS = 3600 * NANOSECONDS
#: Forgotten ones are swept out each time so many were made.
_SWEEP_EVERY = 1000


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

    def partition(
        self, producer: str, group: str, partitions: int, now: int, settled: Callable[[], int | None]
    ) -> int:
        """Where messages of this producer and group go.

        At first use they take turns, unless `settled` knows where they went before they were bound.
        A binding is on disk before it is used: a resend must find the same partition.
        """
        bound = self._remembered.get((producer, group))
        if bound is None or abs(now - bound.used) >= _REFRESH_NS:
            with self._mutex:
                bound = self._ask(producer, group, partitions, now, settled)
                self._remembered[producer, group] = bound
        return bound.partition

    def _ask(
        self, producer: str, group: str, partitions: int, now: int, settled: Callable[[], int | None]
    ) -> _Bound:
        who = (self._topic_id, producer, group)
        row = self._database.row(f"SELECT partition, used FROM bindings WHERE {_WHO}", who)
        if row is None or now - row[1] >= FORGOTTEN_NS:
            return self._bind(who, partitions, now, settled() if row is None else None)
        bound = _Bound(*row)
        if abs(now - bound.used) >= _REFRESH_NS:
            self._database.quick(f"UPDATE bindings SET used = ? WHERE {_WHO}", (now, *who))
            bound = _Bound(bound.partition, now)
        return bound

    def _bind(self, who: tuple[int, str, str], partitions: int, now: int, settled: int | None) -> _Bound:
        with self._database.transaction() as connection:
            row = connection.execute(f"SELECT partition, used FROM bindings WHERE {_WHO}", who).fetchone()
            if row is not None and now - row[1] < FORGOTTEN_NS:
                return _Bound(*row)  # another process was quicker
            partition = self._turn(connection, now) % partitions if settled is None else settled
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
            connection.execute(
                "DELETE FROM bindings WHERE topic_id = ? AND used <= ?", (self._topic_id, now - FORGOTTEN_NS)
            )
        return int(turn)


_WHO = "topic_id = ? AND producer = ? AND message_group = ?"
