"""`reader.process` with one worker and with four, beside a loop over a table, and beside bytewax.

The peer's loop reads rows in order, calls the same empty handler and stores its position each hundred, each
time in a transaction of its own (WAL, NORMAL). Ours does not wait for the disk either.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec

import penstock
from benchmarks.harness import TOPIC, Bench, rate
from benchmarks.peers import bytewax_flow
from benchmarks.peers.program import Missing
from benchmarks.rows import Row, ratio_at_least
from benchmarks.usual_messages import Order, TextBatch

_EACH = 100
_LOOP = "a loop over sqlite3 rows, a commit each hundred"

Handler = Callable[[Any], object]


def run(bench: Bench) -> Iterator[Row]:
    yield from _plain(bench)
    yield _typed(bench)
    try:
        yield _beside_bytewax(bench)
    except Missing as missing:
        yield Row(name="handle/bytewax", what="process with an empty handler", skipped=str(missing))


def _plain(bench: Bench) -> Iterator[Row]:
    with handled_topic(bench) as topic, bench.room() as room, closing(Rows(room / "rows.db")) as rows:
        count = bench.sizes.messages
        for batch in bench.batches():
            text = TextBatch(batch)
            rows.insert(text.keys, batch.values)
        one, four, loop = bench.interleave(
            lambda: process(topic, count),
            lambda: process(topic, count, workers=4),
            lambda: rate(count, lambda: rows.loop(_nothing)),
        )
    yield Row(
        name="handle/process", what="process with an empty handler", ours=one, peer=_LOOP, theirs=loop,
        target=ratio_at_least(0.7),
    )  # fmt: skip
    yield Row(
        name="handle/process-4", what="process with 4 workers", ours=four, peer="with 1 worker", theirs=one,
        target=ratio_at_least(0.25),
    )  # fmt: skip


def _typed(bench: Bench) -> Row:
    """A handler that looks at a field, as real ones do."""
    decode = msgspec.json.Decoder(Order).decode
    with bench.store() as store, bench.room() as room, closing(Rows(room / "rows.db")) as rows:
        store.create_topic(TOPIC, sync="os")
        topic, count = store.topic(TOPIC, type=Order), bench.sizes.messages
        for batch in bench.batches():
            text = TextBatch(batch)
            topic.write_many(text.orders, keys=text.keys)
            rows.insert(text.keys, [msgspec.json.encode(order) for order in text.orders])
        ours, theirs = bench.interleave(
            lambda: process(topic, count, handler=lambda message: message.value.amount),
            lambda: rate(count, lambda: rows.loop(lambda row: decode(row[2]).amount)),
        )
    return Row(
        name="handle/typed", what="process of a typed topic, the handler looks at a field", ours=ours,
        peer=f"{_LOOP}, decoded by msgspec", theirs=theirs,
    )  # fmt: skip


def _beside_bytewax(bench: Bench) -> Row:
    bytewax_flow.require()
    pairs = [
        pair for batch in bench.batches() for pair in zip(TextBatch(batch).keys, batch.values, strict=True)
    ]
    with handled_topic(bench) as topic:
        ours, theirs = bench.interleave(
            lambda: process(topic, len(pairs)),
            lambda: rate(len(pairs), lambda: bytewax_flow.handle(pairs, _nothing)),
        )
    return Row(
        name="handle/bytewax", what="process with an empty handler", ours=ours,
        peer="bytewax, a map over a list in memory", theirs=theirs,
    )  # fmt: skip


@contextmanager
def handled_topic(bench: Bench) -> Iterator[penstock.Topic]:
    """A topic with all messages of the run, their keys text."""
    with bench.topic("os") as topic:
        for batch in bench.batches():
            topic.write_many(batch.values, keys=TextBatch(batch).keys)
        yield topic


def process(
    topic: penstock.Topic[Any], count: int, *, workers: int = 1, handler: Handler | None = None,
    kind: Literal["stream", "queue"] = "stream",
) -> float:  # fmt: skip
    """Handle everything."""
    with topic.reader(consumer=f"c{time.monotonic_ns()}", kind=kind) as reader:

        def work() -> None:
            summary = reader.process(handler or _nothing, workers=workers, follow=False)
            assert summary.handled == count

        return rate(count, work)


def _nothing(message: object) -> None:
    return None


class Rows:
    """The messages in a table, and one position."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        execute = self._database.execute
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = NORMAL")
        execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, key TEXT, value BLOB)")
        execute("CREATE TABLE positions (consumer TEXT PRIMARY KEY, position INTEGER)")
        execute("INSERT INTO positions VALUES ('c', 0)")

    def close(self) -> None:
        self._database.close()

    def insert(self, keys: list[str], values: list[bytes]) -> None:
        self._database.execute("BEGIN")
        self._database.executemany(
            "INSERT INTO messages (key, value) VALUES (?, ?)", zip(keys, values, strict=True)
        )
        self._database.execute("COMMIT")

    def loop(self, handle: Handler) -> None:
        """Handle everything."""
        rows = self._database.execute("SELECT id, key, value FROM messages ORDER BY id")
        for done, row in enumerate(rows, 1):
            handle(row)
            if done % _EACH == 0:
                self._database.execute("UPDATE positions SET position = ? WHERE consumer = 'c'", (done,))
