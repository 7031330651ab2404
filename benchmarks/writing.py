"""Writing as users do: text keys, headers, times, several partitions, typed values; and the narrow road."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any

import msgspec
import pyarrow as pa

import penstock
from benchmarks.harness import TOPIC, Batch, Bench, rate
from benchmarks.rows import Row, Samples, ratio_at_least
from benchmarks.sqlite_table import Table

#: What most messages of a program have in common, and what differs from message to message.
HEADERS = {"source": "web", "trace": "4bf92f3577b34da6"}
_SQLITE = "sqlite3, 1000 a transaction, text keys"
_PARTITIONS = 4


class Order(msgspec.Struct):
    """What typed topics hold: about 170 bytes of JSON."""

    id: str
    customer: str
    amount: float
    items: list[str]
    note: str


@dataclass(frozen=True)
class TextBatch:
    """A thousand messages as users have them: keys are text."""

    batch: Batch

    @cached_property
    def keys(self) -> list[str]:
        return [key.hex()[: len(key)] for key in self.batch.keys]

    @cached_property
    def texts(self) -> list[str]:
        return [value.hex()[: len(value)] for value in self.batch.values]

    @cached_property
    def orders(self) -> list[Order]:
        return [Order(key, key[:6], 12.5, ["pen", "ink"], "x" * 90) for key in self.keys]

    @cached_property
    def table(self) -> pa.Table:
        return pa.table({"value": pa.array(self.batch.values, pa.binary()), "key": self.keys})


#: Writes the messages of one batch through `writer.write`.
Calls = Callable[[Callable[..., None], TextBatch], None]


def run(bench: Bench) -> Iterator[Row]:
    text = _Text(bench)
    rows: dict[str, Callable[[], float]] = {
        "sqlite": lambda: insert(bench, text.batches),
        "key": lambda: text.written(with_key),
        "key and value": lambda: text.written(with_text),
        "same headers": lambda: text.written(with_headers),
        "other headers": lambda: text.written(with_own_headers),
        "time": lambda: text.written(with_time),
        "partitions": lambda: text.written(with_key, partitions=_PARTITIONS),
        "typed": lambda: text.written(with_order, kind=Order),
        "numbered": lambda: text.written(with_key, producer_id="shop-1"),
        "many": lambda: text.written_together(lambda topic, b: topic.write_many(b.batch.values, keys=b.keys)),
        "many in partitions": lambda: text.written_together(
            lambda topic, b: topic.write_many(b.batch.values, keys=b.keys), _PARTITIONS
        ),
        "table": lambda: text.written_together(lambda topic, b: topic.write_many(b.table)),
        "ipc": text.as_ipc,
        "narrow": lambda: write_buffered(bench, "os"),
        "narrow, disk": lambda: write_buffered(bench, "disk"),
        "narrow many": lambda: write_many(bench),
    }
    found = dict(zip(rows, bench.interleave(*rows.values()), strict=True))
    yield from _rows(found)


def _rows(found: dict[str, Samples]) -> Iterator[Row]:
    sqlite = found["sqlite"]

    def against_sqlite(name: str, what: str, of: str, bound: float) -> Row:
        return Row(
            name=f"write/{name}", what=what, ours=found[of], peer=_SQLITE, theirs=sqlite,
            target=ratio_at_least(bound),
        )  # fmt: skip

    yield against_sqlite("str-key", "writer.write(value, key=str)", "key", 3)
    yield against_sqlite("str-value", "writer.write(str, key=str)", "key and value", 2.6)
    yield against_sqlite("headers-alike", "… and the same two headers", "same headers", 2)
    yield against_sqlite("headers-differ", "… and headers that all differ", "other headers", 1)
    yield against_sqlite("timestamp", "… and a timestamp", "time", 2)
    yield against_sqlite("partitions", f"… into {_PARTITIONS} partitions", "partitions", 1.9)
    yield against_sqlite("typed", "writer.write(Struct, key=str)", "typed", 1.7)
    yield against_sqlite("many-str", "write_many of 1000, text keys", "many", 6)
    yield against_sqlite("many-partitions", f"… into {_PARTITIONS} partitions", "many in partitions", 2.5)
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


class _Text:
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

    def written(self, calls: Calls, *, partitions: int = 1, kind: Any = None, **options: Any) -> float:
        """Messages a second through a writer."""
        with self._topic(partitions, kind) as topic, topic.writer(**options) as writer:

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
    def _topic(self, partitions: int, kind: Any = None) -> Iterator[penstock.Topic[Any]]:
        with self._bench.store() as store:
            topic = store.create_topic(TOPIC, sync="os", partitions=partitions)
            topic.stats()  # opens all partitions: that is not writing
            yield topic if kind is None else store.topic(TOPIC, type=kind)


def with_key(write: Callable[..., None], batch: TextBatch) -> None:
    for value, key in zip(batch.batch.values, batch.keys, strict=True):
        write(value, key=key)


def with_text(write: Callable[..., None], batch: TextBatch) -> None:
    for value, key in zip(batch.texts, batch.keys, strict=True):
        write(value, key=key)


def with_headers(write: Callable[..., None], batch: TextBatch) -> None:
    for value, key in zip(batch.batch.values, batch.keys, strict=True):
        write(value, key=key, headers=HEADERS)


def with_own_headers(write: Callable[..., None], batch: TextBatch) -> None:
    for value, key in zip(batch.batch.values, batch.keys, strict=True):
        write(value, key=key, headers={"source": "web", "trace": key})


def with_time(write: Callable[..., None], batch: TextBatch) -> None:
    for value, key, moment in zip(batch.batch.values, batch.keys, count(10**18, 1000), strict=False):
        write(value, key=key, timestamp=moment)


def with_order(write: Callable[..., None], batch: TextBatch) -> None:
    for order, key in zip(batch.orders, batch.keys, strict=True):
        write(order, key=key)


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
