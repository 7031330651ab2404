"""Messages handled: `process`, iteration, a queue one message at a time, retries; each beside SQLite.

The peer's loop reads rows in order, calls the same empty handler and stores its position each hundred. The
peer's queue selects the next row, marks it as taken, and deletes it when it is done. Each statement is a
transaction of its own (WAL, NORMAL), as ours are: none waits for the disk.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal

import penstock
from benchmarks.harness import TOPIC, Bench, rate
from benchmarks.rows import Row, ratio_at_least

_EACH = 100
_SQLITE = "sqlite3 (WAL, NORMAL)"


def run(bench: Bench) -> Iterator[Row]:
    count, few = bench.sizes.messages, max(bench.sizes.messages // 20, 1000)
    with bench.room() as folder, penstock.open(folder / "store") as store:
        topic = store.create_topic(TOPIC, sync="os")
        for batch in bench.batches():
            topic.write_many(batch.values, keys=batch.keys)
        peer = Peer(folder / "peer.db", bench, count)
        with closing(peer):
            pairs = (
                _row("process", "process with an empty handler", bench, 0.7,
                     lambda: process(topic, count, 1), "a loop over rows, a commit each hundred",
                     lambda: rate(count, peer.loop)),
                _row("process-4", "process with 4 workers", bench, 0.25,
                     lambda: process(topic, count, 4), "with 1 worker", lambda: process(topic, count, 1)),
                _row("iterate", "for message in reader", bench, 0.8,
                     lambda: iterate(topic, count), "by batches of 1000", lambda: batches(topic, count)),
                _row("queue", "a queue, receive and commit one at a time", bench, 1.0,
                     lambda: queue(topic, few), "a queue in a table", lambda: peer.queue(few)),
                _row("queue-process", "process on a queue", bench, 1.5,
                     lambda: process(topic, count, 1, kind="queue"), "a queue in a table",
                     lambda: peer.queue(few)),
                _row("retry", "reader.retry, due in an hour", bench, 0.5,
                     lambda: retry(topic, few), "an INSERT each", lambda: peer.insert(few)),
            )  # fmt: skip
            yield from pairs


def _row(
    name: str, what: str, bench: Bench, least: float, ours: Callable[[], float], peer: str,
    theirs: Callable[[], float],
) -> Row:  # fmt: skip
    one, other = bench.interleave(ours, theirs)
    shown = peer if peer.startswith(("with", "by")) else f"{_SQLITE}: {peer}"
    return Row(
        name=f"handling/{name}", what=what, ours=one, peer=shown, theirs=other, target=ratio_at_least(least)
    )


def _consumer() -> str:
    """One that has read nothing."""
    return f"c{time.monotonic_ns()}"


def process(
    topic: penstock.Topic, count: int, workers: int, kind: Literal["stream", "queue"] = "stream"
) -> float:
    """Handle everything."""
    with topic.reader(consumer=_consumer(), kind=kind) as reader:

        def work() -> None:
            summary = reader.process(lambda message: None, workers=workers, follow=False)
            assert summary.handled == count

        return rate(count, work)


def iterate(topic: penstock.Topic, count: int) -> float:
    """Read everything, message by message."""
    with topic.reader(consumer=_consumer(), follow=False) as reader:

        def work() -> None:
            for _ in reader:
                pass

        return rate(count, work)


def batches(topic: penstock.Topic, count: int) -> float:
    """Read everything, and look at each message."""
    with topic.reader(consumer=_consumer(), follow=False) as reader:

        def work() -> None:
            while batch := reader.receive_batch(1000):
                for _ in batch:
                    pass

        return rate(count, work)


def queue(topic: penstock.Topic, count: int) -> float:
    """Take and settle one message at a time."""
    with topic.reader(consumer=_consumer(), kind="queue", follow=False) as reader:

        def work() -> None:
            for _ in range(count):
                message = reader.receive()
                assert message is not None
                reader.commit(message)

        return rate(count, work)


def retry(topic: penstock.Topic, count: int) -> float:
    """Have messages wait, one at a time."""
    with topic.reader(consumer=_consumer(), follow=False) as reader:
        messages = reader.receive_batch(count, max_bytes="1GiB").messages()

        def work() -> None:
            for message in messages:
                reader.retry(message, after="1h", error="not yet")

        return rate(len(messages), work)


class Peer:
    """The same messages in a table."""

    def __init__(self, path: Path, bench: Bench, count: int) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        execute = self._database.execute
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = NORMAL")
        execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, key BLOB, value BLOB)")
        execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY, key BLOB, value BLOB, until INTEGER DEFAULT 0)")
        execute("CREATE INDEX jobs_by_time ON jobs (until, id)")
        execute("CREATE TABLE waiting (id INTEGER PRIMARY KEY, due INTEGER, value BLOB)")
        execute("CREATE INDEX waiting_by_time ON waiting (due)")
        execute("CREATE TABLE positions (consumer TEXT PRIMARY KEY, position INTEGER)")
        execute("INSERT INTO positions VALUES ('c', 0)")
        self._fill("messages", bench, count)
        self._bench = bench

    def close(self) -> None:
        self._database.close()

    def _fill(self, table: str, bench: Bench, count: int) -> None:
        self._database.execute("BEGIN")
        self._database.executemany(f"INSERT INTO {table} (key, value) VALUES (?, ?)", bench.singles(count))
        self._database.execute("COMMIT")

    def loop(self) -> None:
        """Handle everything."""

        def handle(row: tuple[int, bytes, bytes]) -> None:
            return None

        done = 0
        for row in self._database.execute("SELECT id, key, value FROM messages ORDER BY id"):
            handle(row)
            done += 1  # noqa: SIM113 - as a consumer counts
            if done % _EACH == 0:
                self._database.execute("UPDATE positions SET position = ? WHERE consumer = 'c'", (done,))

    def queue(self, count: int) -> float:
        """Take and settle one message at a time."""
        execute = self._database.execute
        execute("DELETE FROM jobs")
        self._fill("jobs", self._bench, count)

        def work() -> None:
            for number in range(count):
                select = "SELECT id, key, value FROM jobs WHERE until = 0 ORDER BY id LIMIT 1"
                (found, _, _) = execute(select).fetchone()
                execute("UPDATE jobs SET until = ? WHERE id = ?", (number + 1, found))
                execute("DELETE FROM jobs WHERE id = ?", (found,))

        return rate(count, work)

    def insert(self, count: int) -> float:
        """Have messages wait, one at a time."""
        values = [value for _, value in self._bench.singles(count)]
        execute = self._database.execute

        def work() -> None:
            for due, value in enumerate(values):
                execute("INSERT INTO waiting (due, value) VALUES (?, ?)", (due, value))

        return rate(count, work)
