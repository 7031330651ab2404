"""Readers that died with messages in hand: how often in a row, and which message may have killed them.

There is a row only while a partition is under suspicion. A reader that takes over what another one left
without a word notes where the consumer stands. If the next one dies at the same place, what had been
delivered is doubtful: it is delivered one by one, each noted before it goes out, until the position has
passed it all.
"""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from penstock.state.database import Database

_OF = "consumer = ? AND topic_id = ? AND partition = ?"


class Doubt(NamedTuple):
    """What is suspected of a partition."""

    #: Where the consumer stood at the last take-over from a reader that died.
    position: int
    #: How many died there, one after another.
    deaths: int
    #: Up to here messages were delivered since.
    reach: int
    #: Up to here they are delivered one by one.
    until: int
    #: The last one that was delivered alone; -1 when none was.
    alone: int


def after_death(before: Doubt | None, position: int) -> Doubt:
    """What is suspected when one more reader died while the consumer stood at `position`."""
    if before is None:
        return Doubt(position, 1, position, position, -1)
    count = before.deaths + 1 if before.position == position else 1
    is_stuck = count > 1 or position < before.until
    until = max(before.until, before.reach) if is_stuck else position
    return Doubt(position, count, before.reach, until, before.alone)


class Deaths:
    """The suspicions of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def note_reach(self, place: tuple[str, int, int], reach: int) -> None:
        """Note that messages up to `reach` are about to be delivered."""
        self._database.quick(f"UPDATE deaths SET reach = ? WHERE {_OF}", (reach, *place))

    def note_alone(self, place: tuple[str, int, int], offset: int) -> None:
        """Note that one message is about to be delivered alone."""
        self._database.quick(f"UPDATE deaths SET alone = ? WHERE {_OF}", (offset, *place))

    def forget(self, place: tuple[str, int, int]) -> None:
        """Forget the suspicion: the position has passed all that was doubtful."""
        self._database.quick(f"DELETE FROM deaths WHERE {_OF}", place)


def take_over(
    connection: sqlite3.Connection, place: tuple[str, int, int], position: int, *, died: bool
) -> Doubt | None:
    """What is suspected of a partition that is taken over; `died` says that its last reader left no word."""
    row = connection.execute(
        f"SELECT position, count, reach, until, alone FROM deaths WHERE {_OF}", place
    ).fetchone()
    doubt = None if row is None else Doubt(*row)
    if died:
        doubt = after_death(doubt, position)
        connection.execute("INSERT OR REPLACE INTO deaths VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*place, *doubt))
    return doubt


def forget_consumer(connection: sqlite3.Connection, consumer: str, topic_id: int) -> None:
    """Forget the suspicions of a consumer that was dropped or moved."""
    connection.execute("DELETE FROM deaths WHERE consumer = ? AND topic_id = ?", (consumer, topic_id))
