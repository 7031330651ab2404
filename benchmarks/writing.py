"""Writing in batches and through the buffered writer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from benchmarks.harness import Bench, rate
from benchmarks.rows import Row, ratio_at_least
from benchmarks.sqlite_table import Table


def run(bench: Bench) -> Iterator[Row]:
    many, buffered, durable, table = bench.interleave(
        lambda: write_many(bench),
        lambda: write_buffered(bench, "os"),
        lambda: write_buffered(bench, "disk"),
        lambda: insert(bench),
    )
    yield Row(
        name="write/many", what='write_many of 1000, sync="os"', ours=many,
        peer="sqlite3, 1000 a transaction", theirs=table, target=ratio_at_least(10),
    )  # fmt: skip
    yield Row(
        name="write/buffered", what='writer.write(), sync="os"', ours=buffered,
        peer="sqlite3, 1000 a transaction", theirs=table, target=ratio_at_least(5),
    )  # fmt: skip
    yield Row(
        name="write/buffered-disk", what='writer.write(), sync="disk"', ours=durable,
        peer='the same, sync="os"', theirs=buffered, target=ratio_at_least(0.6),
    )  # fmt: skip


def write_many(bench: Bench) -> float:
    with bench.topic("os") as topic:

        def work() -> None:
            for batch in bench.batches():
                topic.write_many(batch.values, keys=batch.keys)

        return rate(bench.sizes.messages, work)


def write_buffered(bench: Bench, sync: str) -> float:
    with bench.topic(sync) as topic, topic.writer() as writer:

        def work() -> None:
            write = writer.write
            for batch in bench.batches():
                for key, value in zip(batch.keys, batch.values, strict=True):
                    write(value, key=key)
            writer.flush()

        return rate(bench.sizes.messages, work)


def insert(bench: Bench) -> float:
    with bench.room() as room, closing(Table(room / "log.db")) as table:
        return rate(bench.sizes.messages, lambda: table.insert(bench.batches()))
