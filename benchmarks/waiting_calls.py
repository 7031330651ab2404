"""Messages that wait, through the public calls: one at a time, through a writer, and as a reader's retries.

The peer is the same table as in `benchmarks.waiting`: an INSERT that commits itself, or a thousand of them in
a transaction, with `synchronous` as what is compared promises.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import BATCH, TOPIC, Bench, rate
from benchmarks.rows import Row, ratio_at_least
from penstock.options import Sync

_DELAY, _DELAY_MS = "1h", 3_600_000
_INSERT = "INSERT INTO waiting (due, id, topic, attempts, data) VALUES (?, ?, ?, ?, ?)"
_SYNCHRONOUS = {"os": "NORMAL", "disk": "FULL"}


def run(bench: Bench) -> Iterator[Row]:
    singles, durable, many = bench.sizes.lookups, bench.sizes.durable, bench.sizes.singles
    ours, theirs, retried = bench.interleave(
        lambda: one_by_one(bench, singles, "os"),
        lambda: inserted(bench, singles, "os"),
        lambda: retries(bench, singles),
    )
    yield Row(
        name="wait/write", what="topic.write(delay=) one at a time, sync=os", ours=ours,
        peer="sqlite3, INSERT", theirs=theirs, target=ratio_at_least(0.8),
    )  # fmt: skip
    yield Row(
        name="wait/retry", what="reader.retry(after=) one at a time, sync=os", ours=retried,
        peer="sqlite3, INSERT", theirs=theirs, target=ratio_at_least(0.5),
    )  # fmt: skip
    ours, theirs = bench.interleave(
        lambda: one_by_one(bench, durable, "disk"), lambda: inserted(bench, durable, "disk")
    )
    yield Row(
        name="wait/write-disk", what="topic.write(delay=) one at a time, on disk", ours=ours,
        peer="sqlite3, INSERT, FULL", theirs=theirs, target=ratio_at_least(0.8), by_processor=False,
    )  # fmt: skip
    ours, theirs = bench.interleave(
        lambda: through_writer(bench, many), lambda: inserted(bench, many, "os", by=BATCH)
    )
    yield Row(
        name="wait/writer", what="writer.write(delay=), str keys, sync=os", ours=ours,
        peer="sqlite3, 1000 a transaction", theirs=theirs, target=ratio_at_least(1.5),
    )  # fmt: skip


def one_by_one(bench: Bench, count: int, sync: Sync) -> float:
    """Delayed messages a second, each stored when its call returns."""
    with bench.store() as store:
        topic = store.create_topic(TOPIC, sync=sync)
        topic.write(b"first", delay=_DELAY)  # makes the chain

        def write() -> None:
            for number, (_, value) in enumerate(bench.singles(count)):
                topic.write(value, key=f"order-{number}", delay=_DELAY)

        return rate(count, write)


def through_writer(bench: Bench, count: int) -> float:
    with bench.store() as store:
        topic = store.create_topic(TOPIC, sync="os")
        topic.write(b"first", delay=_DELAY)
        with topic.writer() as writer:

            def write() -> None:
                for number, (_, value) in enumerate(bench.singles(count)):
                    writer.write(value, key=f"order-{number}", delay=_DELAY)
                writer.flush()

            return rate(count, write)


def retries(bench: Bench, count: int) -> float:
    """Messages a second that are stored for another attempt and committed, one by one."""
    with bench.store() as store:
        topic = store.create_topic(TOPIC, sync="os")
        topic.write_many([value for _, value in bench.singles(count + 1)])
        with topic.reader(consumer="bench") as reader:
            first = reader.receive(timeout=10)
            assert first is not None
            reader.retry(first, after=_DELAY)

            def retry() -> None:
                left = count
                while left:
                    for message in reader.receive_batch(left):
                        reader.retry(message, after=_DELAY)
                        left -= 1

            return rate(count, retry)


def inserted(bench: Bench, count: int, sync: Sync, *, by: int = 1) -> float:
    """Rows a second, so many in a transaction."""
    with bench.room() as room:
        connection = table(room / "waiting.db", _SYNCHRONOUS[sync])

        def insert() -> None:
            for place, (_, value) in enumerate(bench.singles(count)):
                if by > 1 and place % by == 0:
                    connection.execute("BEGIN")
                due = time.time_ns() // 1_000_000 + _DELAY_MS
                connection.execute(_INSERT, (due, os.urandom(16), TOPIC, 0, value))
                if by > 1 and place % by == by - 1:
                    connection.execute("COMMIT")

        found = rate(count, insert)
        connection.close()
        return found


def table(path: Path, synchronous: str) -> sqlite3.Connection:
    """The table of waiting messages, with an index on the due time, in WAL mode."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute(
        "CREATE TABLE waiting "
        "(n INTEGER PRIMARY KEY, due INTEGER, id BLOB, topic TEXT, attempts INTEGER, data BLOB)"
    )
    connection.execute("CREATE INDEX due ON waiting (due)")
    return connection
