"""What commits cost: after every batch, and after every message (a row of reading)."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing

import penstock
from benchmarks.harness import TOPIC, Bench, rate
from benchmarks.rows import Row, ratio_at_least
from benchmarks.stock import Stock

_POSITIONS = """
CREATE TABLE positions (
    consumer TEXT NOT NULL, topic_id INTEGER NOT NULL, partition INTEGER NOT NULL,
    position INTEGER NOT NULL, epoch INTEGER NOT NULL, updated INTEGER NOT NULL,
    PRIMARY KEY (consumer, topic_id, partition)
) WITHOUT ROWID
"""


def run(bench: Bench, stock: Stock) -> Iterator[Row]:
    with_commits, bare = bench.interleave(
        lambda: read_as(stock, bench.sizes.messages, f"batches-{time.time_ns()}"),
        lambda: read_as(stock, bench.sizes.messages, None),
    )
    yield Row(
        name="commit/batches", what="reader with a consumer, a commit for each batch of 1000",
        ours=with_commits, peer="reader without a consumer", theirs=bare, target=ratio_at_least(0.8),
    )  # fmt: skip


def each(bench: Bench, stock: Stock) -> Row:
    """A commit for every message, beside the statement that stores a position."""
    ours, theirs = bench.interleave(lambda: commit(bench, stock), lambda: update(bench))
    return Row(
        name="read/commit-each", what="reader.commit(message), one by one", ours=ours,
        peer="bare sqlite3 UPDATE (WAL, NORMAL)", theirs=theirs, target=ratio_at_least(0.9),
    )  # fmt: skip


def read_as(stock: Stock, count: int, consumer: str | None) -> float:
    """Read everything, committing each batch where there is a consumer."""
    with (
        penstock.open(stock.store) as store,
        store.topic(TOPIC).reader(consumer=consumer, follow=False) as reader,
    ):

        def work() -> None:
            left = count
            while left and (batch := reader.receive_batch(1000)):
                left -= len(batch.messages())
                if consumer is not None:
                    reader.commit(batch)
            assert not left

        return rate(count, work)


def commit(bench: Bench, stock: Stock) -> float:
    """Only the commits are timed, not the receiving."""
    name = f"billing-{time.time_ns()}"
    with (
        penstock.open(stock.store) as store,
        store.topic(TOPIC).reader(consumer=name, follow=False) as reader,
    ):
        messages = reader.receive_batch(bench.sizes.lookups).messages()

        def work() -> None:
            for message in messages:
                reader.commit(message)

        return rate(len(messages), work)


def update(bench: Bench) -> float:
    """The same statement on the same table, with nothing around it."""
    count = bench.sizes.lookups
    with (
        bench.room() as room,
        closing(sqlite3.connect(room / "state.db", isolation_level=None)) as connection,
    ):
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(_POSITIONS)
        connection.execute("INSERT INTO positions VALUES ('billing', 1, 0, 0, 0, 0)")

        def work() -> None:
            for position in range(1, count + 1):
                connection.execute(
                    "UPDATE positions SET position = ?, updated = ? "
                    "WHERE consumer = ? AND topic_id = ? AND partition = ? AND epoch = ?",
                    (position, time.time_ns(), "billing", 1, 0, 0),
                )

        return rate(count, work)
