"""A stream in SQLite: the calls of a subject stream as bare statements on tables with the same indexes.

Each statement is a transaction of its own (WAL, NORMAL): none waits for the disk.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_TABLES = """
CREATE TABLE messages (
    sequence INTEGER PRIMARY KEY, headers TEXT, object_name TEXT, subject TEXT, create_at INTEGER
);
CREATE UNIQUE INDEX by_subject ON messages (subject, sequence);
CREATE INDEX by_time ON messages (create_at);
CREATE TABLE consumers (
    durable_name TEXT, subject TEXT, last_sequence INTEGER, PRIMARY KEY (durable_name, subject)
) WITHOUT ROWID;
CREATE INDEX consumers_by_subject ON consumers (subject);
"""
_ROW = "SELECT sequence, headers, object_name, subject, create_at FROM messages"


class SqliteStream:
    """The five calls that are measured, by the names they have in a stream."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = NORMAL")
        self._database.executescript(_TABLES)

    def close(self) -> None:
        self._database.close()

    def publish_message(self, subject: str, object_name: str, headers: Mapping[str, str]) -> int | None:
        return self._database.execute(
            "INSERT INTO messages (headers, object_name, subject, create_at) VALUES (?, ?, ?, ?)",
            (json.dumps(headers), object_name, subject, int(time.time())),
        ).lastrowid

    def get_message_by_sequence(self, sequence: int) -> tuple[Any, ...]:
        row = self._database.execute(f"{_ROW} WHERE sequence = ?", (sequence,)).fetchone()
        return _decoded(row)

    def get_messages_by_subject(self, subject: str, start_sequence: int, limit: int) -> list[Any]:
        rows = self._database.execute(
            f"{_ROW} WHERE subject = ? AND sequence >= ? ORDER BY sequence LIMIT ?",
            (subject, start_sequence, limit),
        )
        return [_decoded(row) for row in rows]

    def update_consumer_position(self, durable_name: str, subject: str, last_sequence: int) -> bool:
        self._database.execute(
            "INSERT INTO consumers VALUES (?, ?, ?) "
            "ON CONFLICT DO UPDATE SET last_sequence = excluded.last_sequence",
            (durable_name, subject, last_sequence),
        )
        return True

    def get_consumer_position(self, durable_name: str, subject: str) -> int:
        found = self._database.execute(
            "SELECT last_sequence FROM consumers WHERE durable_name = ? AND subject = ?",
            (durable_name, subject),
        ).fetchone()
        return int(found[0]) if found else 0


def _decoded(row: tuple[Any, ...]) -> tuple[Any, ...]:
    sequence, headers, *rest = row
    return (sequence, json.loads(headers), *rest)
