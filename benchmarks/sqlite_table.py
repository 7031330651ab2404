"""The peer that everyone has: a `sqlite3` table used as a log."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable
from itertools import repeat
from pathlib import Path

from benchmarks.harness import BATCH, Batch


class Table:
    """WAL, synchronous NORMAL, a thousand rows a transaction."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS messages "
            "(offset INTEGER PRIMARY KEY, ts INTEGER, key BLOB, value BLOB)"
        )

    def insert(self, batches: Iterable[Batch]) -> None:
        execute, offset = self._connection.execute, 0
        for batch in batches:
            execute("BEGIN")
            self._connection.executemany(
                "INSERT INTO messages VALUES (?, ?, ?, ?)",
                zip(range(offset, offset + BATCH), repeat(time.time_ns()), batch.keys, batch.values),
            )
            execute("COMMIT")
            offset += BATCH

    def read(self) -> int:
        cursor = self._connection.execute("SELECT offset, ts, key, value FROM messages ORDER BY offset")
        count = 0
        while rows := cursor.fetchmany(BATCH):
            count += len(rows)
        return count

    def get(self, offsets: Iterable[int]) -> None:
        execute = self._connection.execute
        for offset in offsets:
            execute("SELECT offset, ts, key, value FROM messages WHERE offset = ?", (offset,)).fetchone()

    def close(self) -> None:
        self._connection.close()
