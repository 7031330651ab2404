"""Writing as users do: text keys, headers, times, several partitions, typed values; and the narrow road."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import chain, islice
from sqlite3 import connect
from time import time_ns
from typing import Any

import pyarrow as pa

import penstock
from benchmarks.harness import TOPIC, Batch, Bench, rate
from benchmarks.rows import Row, Samples, ratio_at_least
from benchmarks.sqlite_table import Table
from benchmarks.usual_messages import (
    PARTITIONS,
    Calls,
    Order,
    TextBatch,
    with_equal_headers,
    with_headers,
    with_key,
    with_order,
    with_own_headers,
    with_text,
    with_time,
)

_SQLITE = "sqlite3, 1000 a transaction, text keys"


def run(bench: Bench) -> Iterator[Row]:
    text = TextWrites(bench)
    rows: dict[str, Callable[[], float]] = {
        "sqlite": lambda: insert(bench, text.batches),
        "key": lambda: text.written(with_key),
        "key and value": lambda: text.written(with_text),
        "same headers": lambda: text.written(with_headers),
        "equal headers": lambda: text.written(with_equal_headers),
        "other headers": lambda: text.written(with_own_headers),
        "time": lambda: text.written(with_time),
        "partitions": lambda: text.written(with_key, partitions=PARTITIONS),
        "typed": lambda: text.written(with_order, kind=Order),
        "numbered": lambda: text.written(with_key, producer_id="shop-1"),
        "many": lambda: text.written_together(lambda topic, b: topic.write_many(b.batch.values, keys=b.keys)),
        "many in partitions": lambda: text.written_together(
            lambda topic, b: topic.write_many(b.batch.values, keys=b.keys), PARTITIONS
        ),
        "table": lambda: text.written_together(lambda topic, b: topic.write_many(b.table)),
        "ipc": text.as_ipc,
        "narrow": lambda: write_buffered(bench, "os"),
        "narrow, disk": lambda: write_buffered(bench, "disk"),
        "narrow many": lambda: write_many(bench),
    }
    found = dict(zip(rows, bench.interleave(*rows.values()), strict=True))
    yield from _rows(found)
    one, inserted = bench.interleave(lambda: text.one_by_one(), lambda: insert_each(bench, text.batches))
    yield Row(
        name="write/one", what='topic.write(value, key=str), sync="os"', ours=one,
        peer="sqlite3, an INSERT that commits itself", theirs=inserted,
    )  # fmt: skip


def _rows(found: dict[str, Samples]) -> Iterator[Row]:
    sqlite = found["sqlite"]

    def against_sqlite(name: str, what: str, of: str, bound: float) -> Row:
        return Row(
            name=f"write/{name}", what=what, ours=found[of], peer=_SQLITE, theirs=sqlite,
            target=ratio_at_least(bound),
        )  # fmt: skip

    yield against_sqlite("str-key", "writer.write(value, key=str)", "key", 3)
    yield against_sqlite("str-value", "writer.write(str, key=str)", "key and value", 2.6)
    yield against_sqlite("headers-same", "… and one dict of two headers for all", "same headers", 2)
    yield against_sqlite("headers-equal", "… and a new dict each, all equal", "equal headers", 2)
    yield against_sqlite("headers-differ", "… and a new dict each, all different", "other headers", 1)
    yield against_sqlite("timestamp", "… and a timestamp", "time", 2)
    yield against_sqlite("partitions", f"… into {PARTITIONS} partitions", "partitions", 1.9)
    yield against_sqlite("typed", "writer.write(Struct, key=str)", "typed", 1.7)
    yield against_sqlite("many-str", "write_many of 1000, text keys", "many", 6)
    yield against_sqlite("many-partitions", f"… into {PARTITIONS} partitions", "many in partitions", 2.5)
    yield against_sqlite("table", "write_many of an Arrow table of 1000", "table", 9)
    yield Row(
        name="write/table-ipc", what="write_many of an Arrow table of 1000", ours=found["table"],
        peer="Arrow IPC stream to a file", theirs=found["ipc"], target=ratio_at_least(0.4),
    )  # fmt: skip
    yield Row(
        name="write/numbered", what="writer(producer_id=…), text keys", ours=found["numbered"],
        peer="without a producer", theirs=found["key"], target=ratio_at_least(0.85),
    )  # fmt: skip
    yield Row(
        name="write/str-to-bytes", what="writer.write(value, key=str)", ours=found["key"],
        peer="bytes keys", theirs=found["narrow"], target=ratio_at_least(0.85),
    )  # fmt: skip
    yield against_sqlite("narrow", "narrow: bytes key, bytes value, nothing else", "narrow", 3)
    yield against_sqlite("narrow-many", "narrow: write_many of 1000, all bytes", "narrow many", 9)
    yield Row(
        name="write/narrow-disk", what='narrow: writer.write(), sync="disk"', ours=found["narrow, disk"],
        peer='sync="os"', theirs=found["narrow"], target=ratio_at_least(0.6),
    )  # fmt: skip


class TextWrites:
    """Measurements of messages with text keys."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        distinct = [TextBatch(batch) for batch in bench.distinct]
        for each in distinct:  # made before anything is measured
            _ = each.keys, each.texts, each.orders, each.table
        self._of = dict(zip(map(id, bench.distinct), distinct, strict=True))

    @property
    def batches(self) -> Iterator[TextBatch]:
        return (self._of[id(batch)] for batch in self._bench.batches())

    def written(
        self, calls: Calls, *, partitions: int = 1, kind: Any = None,
        topic_options: dict[str, Any] | None = None, **options: Any,
    ) -> float:  # fmt: skip
        """Messages a second through a writer."""
        with self._topic(partitions, kind, topic_options) as topic, topic.writer(**options) as writer:

            def work() -> None:
                for batch in self.batches:
                    calls(writer.write, batch)
                writer.flush()

            return rate(self._bench.sizes.messages, work)

    def written_together(
        self, write: Callable[[penstock.Topic, TextBatch], object], partitions: int = 1
    ) -> float:
        """Messages a second, a thousand a call."""
        with self._topic(partitions) as topic:

            def work() -> None:
                for batch in self.batches:
                    write(topic, batch)

            return rate(self._bench.sizes.messages, work)

    def one_by_one(self) -> float:
        """Messages a second, each in its file when its call returns."""
        pairs = _pairs(self.batches, self._bench.sizes.lookups)
        with self._topic(1) as topic:

            def work() -> None:
                for key, value in pairs:
                    topic.write(value, key=key)

            return rate(len(pairs), work)

    def as_ipc(self) -> float:
        """What is left when nobody keeps offsets, checksums or positions: buffers to a file."""
        with self._bench.room() as room:

            def work() -> None:
                schema = self._of[id(self._bench.distinct[0])].table.schema
                with pa.OSFile(str(room / "stream"), "wb") as sink, pa.ipc.new_stream(sink, schema) as stream:
                    for batch in self.batches:
                        stream.write_table(batch.table)

            return rate(self._bench.sizes.messages, work)

    @contextmanager
    def _topic(
        self, partitions: int, kind: Any = None, options: dict[str, Any] | None = None
    ) -> Iterator[penstock.Topic[Any]]:
        with self._bench.store() as store:
            topic = store.create_topic(TOPIC, sync="os", partitions=partitions, **(options or {}))
            topic.stats()  # opens all partitions: that is not writing
            yield topic if kind is None else store.topic(TOPIC, type=kind)


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


def insert(bench: Bench, batches: Iterator[TextBatch]) -> float:
    with bench.room() as room, closing(Table(room / "log.db")) as table:
        texts = (Batch(each.keys, each.batch.values) for each in batches)  # type: ignore[arg-type]
        return rate(bench.sizes.messages, lambda: table.insert(texts))


def insert_each(bench: Bench, batches: Iterator[TextBatch]) -> float:
    """Rows a second, each a transaction that does not wait for the disk."""
    pairs = _pairs(batches, bench.sizes.lookups)
    with bench.room() as room, closing(connect(room / "log.db", isolation_level=None)) as database:
        Table(room / "log.db").close()  # makes the table
        database.execute("PRAGMA synchronous = NORMAL")

        def work() -> None:
            for offset, (key, value) in enumerate(pairs):
                database.execute("INSERT INTO messages VALUES (?, ?, ?, ?)", (offset, time_ns(), key, value))

        return rate(len(pairs), work)


def _pairs(batches: Iterator[TextBatch], count: int) -> list[tuple[str, bytes]]:
    """Key and value of the first so many."""
    pairs = (zip(each.keys, each.batch.values, strict=True) for each in batches)
    return list(islice(chain.from_iterable(pairs), count))
