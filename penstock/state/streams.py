"""Streams as the store remembers them: how far durable consumers have read, and how long messages live.

A position is the next offset to read, as everywhere; since sequences are offsets plus one, that is the same
number as the last sequence that was read. A consumer that never said has no row.

Positions that were asked for are remembered until somebody changes one (`change_count`).
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from penstock.state.change_count import UNSEEN
from penstock.state.database import Database

_WHOSE = "topic_id = ? AND durable = ? AND subject = ?"
_GET = f"SELECT position FROM stream_positions WHERE {_WHOSE}"
_SET = (
    "INSERT INTO stream_positions VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET position = excluded.position"
)
_ADVANCE = f"{_SET} WHERE excluded.position > position"

_ALL = "SELECT durable, subject, position FROM stream_positions WHERE topic_id = ? ORDER BY subject, durable"
# SQLite would take the primary key, and look at every position of the stream.
_OF_SUBJECT = (
    "SELECT durable, subject, position FROM stream_positions INDEXED BY stream_positions_by_subject "
    "WHERE topic_id = ? AND subject = ? ORDER BY durable"
)

_REMEMBERED_MOST = 10_000


class StreamSettings(NamedTuple):
    """What a stream keeps besides its messages and positions."""

    #: How long messages live, as the stream spells it; empty when nobody chose.
    ttl: dict[str, Any]
    #: Up to which moment expired messages were reported to a clean-up, in nanoseconds.
    swept_ns: int | None


#: The id of a stream's topic, the name of a durable consumer, a subject.
_Place = tuple[int, str, str]


class _Remembered:
    """Positions as they are for as long as one count of changes stands; for another count others are made."""

    __slots__ = ("count", "positions")

    def __init__(self, count: int) -> None:
        self.count = count
        self.positions: dict[_Place, int] = {}


class Streams:
    """The streams of a store, by the ids of their topics."""

    def __init__(self, database: Database) -> None:
        self._database = database
        #: A store of an older format that was opened only to be read has no streams.
        self._exists = database.has_table("stream_positions")
        self._changes = database.changes
        self._remembered = _Remembered(UNSEEN)

    def position(self, topic_id: int, durable: str, subject: str) -> int:
        """How far a durable consumer has read; 0 when it never said."""
        place = topic_id, durable, subject
        remembered = self._remembered
        if self._changes.now() == remembered.count and place in remembered.positions:
            return remembered.positions[place]
        return self._asked(place)

    def _asked(self, place: _Place) -> int:
        """What the database says; remembered if nobody changed a position meanwhile."""
        if not self._exists:
            return 0
        count = self._changes.look()
        row = self._database.row(_GET, place)
        position: int = 0 if row is None else row[0]
        if not count & 1 and self._changes.now() == count:
            remembered = self._remembered
            if remembered.count != count or len(remembered.positions) >= _REMEMBERED_MOST:
                remembered = self._remembered = _Remembered(count)
            remembered.positions[place] = position
        return position

    def put(self, topic_id: int, durable: str, subject: str, position: int) -> None:
        """Put a durable consumer anywhere."""
        self._database.quick(_SET, (topic_id, durable, subject, position), self._changes)

    def advance(self, topic_id: int, durable: str, subject: str, position: int) -> bool:
        """Put a durable consumer forward; False when it stands there or further already."""
        return self._database.quick(_ADVANCE, (topic_id, durable, subject, position), self._changes) > 0

    def positions(self, topic_id: int, subject: str | None) -> list[tuple[str, str, int]]:
        """(durable, subject, position), of one subject or of all, by subject and name."""
        if not self._exists:
            return []
        if subject is None:
            return self._database.rows(_ALL, (topic_id,))
        return self._database.rows(_OF_SUBJECT, (topic_id, subject))

    def forget(self, topic_id: int, durable: str, subject: str | None) -> int:
        """Drop positions of a durable consumer; how many there were."""
        of_one = "" if subject is None else "AND subject = ?"
        return self._database.quick(
            f"DELETE FROM stream_positions WHERE topic_id = ? AND durable = ? {of_one}",
            (topic_id, durable) if subject is None else (topic_id, durable, subject),
            self._changes,
        )

    def settings(self, topic_id: int) -> StreamSettings:
        """Return a stream's settings: its lifetimes, and up to when expired messages were reported."""
        row = None
        if self._exists:
            row = self._database.row("SELECT ttl, swept FROM streams WHERE topic_id = ?", (topic_id,))
        return StreamSettings({}, None) if row is None else StreamSettings(json.loads(row[0]), row[1])

    def keep_settings(self, topic_id: int, settings: StreamSettings) -> None:
        """Store the settings; they are on disk when this returns."""
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO streams VALUES (?, ?, ?)",
                (topic_id, json.dumps(settings.ttl), settings.swept_ns),
            )
