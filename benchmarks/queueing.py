"""A queue, one message at a time and by `process`, beside a queue in a SQLite table.

The peer selects the next row, marks it as taken, and deletes it when it is done. Each statement is a
transaction of its own (WAL, NORMAL), as each step of ours is: none waits for the disk.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import penstock
from benchmarks.handling import handled_topic, process
from benchmarks.harness import Bench, rate
from benchmarks.rows import Row, ratio_at_least

_PEER = "a queue in a sqlite3 table, one at a time"


def run(bench: Bench) -> Iterator[Row]:
    count, few = bench.sizes.messages, max(bench.sizes.messages // 20, 1000)
    with handled_topic(bench) as topic, bench.room() as room, closing(Jobs(room / "jobs.db", bench)) as jobs:
        alone, handled, theirs = bench.interleave(
            lambda: one_at_a_time(topic, few),
            lambda: process(topic, count, kind="queue"),
            lambda: jobs.one_at_a_time(few),
        )
    yield Row(
        name="queue/one", what="receive() and commit(), one at a time", ours=alone, peer=_PEER,
        theirs=theirs, target=ratio_at_least(1),
    )  # fmt: skip
    yield Row(
        name="queue/process", what="process on a queue", ours=handled, peer=_PEER, theirs=theirs,
        target=ratio_at_least(1.5),
    )  # fmt: skip


def one_at_a_time(topic: penstock.Topic, count: int) -> float:
    """Take and settle one message after another."""
    with topic.reader(consumer=f"c{time.monotonic_ns()}", kind="queue", follow=False) as reader:

        def work() -> None:
            for _ in range(count):
                message = reader.receive()
                assert message is not None
                reader.commit(message)

        return rate(count, work)


class Jobs:
    """A table that is used as a queue."""

    def __init__(self, path: Path, bench: Bench) -> None:
        self._bench = bench
        self._database = sqlite3.connect(path, isolation_level=None)
        execute = self._database.execute
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = NORMAL")
        execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY, key BLOB, value BLOB, until INTEGER DEFAULT 0)")
        execute("CREATE INDEX jobs_by_time ON jobs (until, id)")

    def close(self) -> None:
        self._database.close()

    def one_at_a_time(self, count: int) -> float:
        """Take and settle one row after another."""
        execute = self._database.execute
        self._fill(count)

        def work() -> None:
            for number in range(count):
                select = "SELECT id, key, value FROM jobs WHERE until = 0 ORDER BY id LIMIT 1"
                (found, _, _) = execute(select).fetchone()
                execute("UPDATE jobs SET until = ? WHERE id = ?", (number + 1, found))
                execute("DELETE FROM jobs WHERE id = ?", (found,))

        return rate(count, work)

    def _fill(self, count: int) -> None:
        self._database.execute("BEGIN")
        self._database.execute("DELETE FROM jobs")
        self._database.executemany("INSERT INTO jobs (key, value) VALUES (?, ?)", self._bench.singles(count))
        self._database.execute("COMMIT")
