"""Reading everything, to Python objects and to Arrow: from large frames, small ones, and repacked ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import penstock
from benchmarks.harness import TOPIC, Bench, rate
from benchmarks.rows import Row, Samples, ratio_at_least
from benchmarks.sqlite_table import Table
from benchmarks.stock import Stock

_SQLITE = "sqlite3 fetchmany(1000)"


def run(bench: Bench, stock: Stock) -> Iterator[Row]:
    count, few = bench.sizes.messages, bench.sizes.singles
    table, messages, batches, arrow, whole = bench.interleave(
        lambda: fetch(stock.table, count),
        lambda: read(stock.store, count, to_messages),
        lambda: read(stock.store, count, to_reader_batches),
        lambda: read(stock.store, count, to_four_columns),
        lambda: read(stock.store, count, to_arrow),
    )
    yield _row("read/messages", "scan to Message objects", messages, _SQLITE, table, 4)
    yield _row("read/reader", "reader.receive_batch(1000)", batches, _SQLITE, table, 4)
    yield _row("read/arrow", "scan to Arrow, the same four columns", arrow, _SQLITE, table, 25)
    yield _row("read/arrow-all", "scan to Arrow, all twelve columns", whole, _SQLITE, table)

    live, table = bench.interleave(
        lambda: read(stock.singles, few, to_messages), lambda: fetch(stock.table, count)
    )
    yield _row("read/unsealed", "frames of one, not sealed, to Messages", live, _SQLITE, table, 1)

    stock.seal_singles()
    sealed, sealed_arrow, large, large_arrow = bench.interleave(
        lambda: read(stock.singles, few, to_messages),
        lambda: read(stock.singles, few, to_arrow),
        lambda: read(stock.store, few, to_messages),
        lambda: read(stock.store, few, to_arrow),
    )
    yield _row(
        "read/sealed", "written one by one, sealed, to Messages", sealed, "written by 1000", large, 0.8
    )
    yield _row(
        "read/sealed-arrow", "written one by one, sealed, to Arrow", sealed_arrow,
        "written by 1000", large_arrow, 0.8,
    )  # fmt: skip


def read(path: Path, count: int, how: Callable[[penstock.Topic, int], int]) -> float:
    """A freshly opened store: checksums are checked each time, files are in the page cache."""
    with penstock.open(path) as store:
        topic = store.topic(TOPIC)
        return rate(count, lambda: _expect(count, how(topic, count)))


def to_messages(topic: penstock.Topic, stop: int) -> int:
    return sum(len(batch.messages()) for batch in topic.scan(stop=stop))


def to_reader_batches(topic: penstock.Topic, stop: int) -> int:
    count = 0
    with topic.reader(follow=False) as reader:
        while count < stop and (batch := reader.receive_batch(1000)):
            count += len(batch.messages())
    return count


def to_arrow(topic: penstock.Topic, stop: int) -> int:
    return sum(batch.num_rows for batch in topic.scan(stop=stop).record_batches())


def to_four_columns(topic: penstock.Topic, stop: int) -> int:
    scan = topic.scan(stop=stop, columns=("offset", "timestamp", "key", "value"))
    return sum(batch.num_rows for batch in scan.record_batches())


def fetch(path: Path, count: int) -> float:
    with closing(Table(path)) as table:
        return rate(count, lambda: _expect(count, table.read()))


def _expect(expected: int, found: int) -> None:
    if found != expected:
        raise RuntimeError(f"read {found} messages, not {expected}")


def _row(name: str, what: str, ours: Samples, peer: str, theirs: Samples, bound: float | None = None) -> Row:
    target = None if bound is None else ratio_at_least(bound)
    return Row(name=name, what=what, ours=ours, peer=peer, theirs=theirs, target=target)
