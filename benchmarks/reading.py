"""Reading everything, to Python objects and to Arrow: from large frames, small ones, and repacked ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import penstock
from benchmarks import commits
from benchmarks.harness import TOPIC, Bench, rate
from benchmarks.rows import Row, Samples, ratio_at_least
from benchmarks.sqlite_table import Table
from benchmarks.stock import Stock

_SQLITE = "sqlite3 fetchmany(1000)"


def run(bench: Bench, stock: Stock) -> Iterator[Row]:
    yield from _large_frames(bench, stock)
    yield from _usual(bench, stock)
    yield commits.each(bench, stock)
    yield from _small_frames(bench, stock)


def _large_frames(bench: Bench, stock: Stock) -> Iterator[Row]:
    """Written by a thousand."""
    count = bench.sizes.messages
    table, scanned, batches, walked, iterated, taken, arrow, whole = bench.interleave(
        lambda: fetch(stock.table, count),
        lambda: read(stock.store, count, to_messages),
        lambda: receive(stock.store, count, to_committed_batches),
        lambda: receive(stock.store, count, one_by_one_of_batches),
        lambda: receive(stock.store, count, one_by_one),
        lambda: receive(stock.store, count, to_reader_tables),
        lambda: read(stock.store, count, to_four_columns),
        lambda: read(stock.store, count, to_arrow),
    )
    yield _row("read/batches", "receive_batch(1000) and commit(batch)", batches, _SQLITE, table, 2.5)
    yield _row(
        "read/iterate", "for message in reader", iterated, "for message in receive_batch(1000)", walked, 0.8
    )
    yield _row("read/to-arrow", "receive_batch(100_000).to_arrow()", taken, _SQLITE, table, 12)
    yield _row("read/scan", "scan to Message objects", scanned, _SQLITE, table, 4)
    yield _row("read/scan-arrow", "scan to Arrow, the same four columns", arrow, _SQLITE, table, 25)
    yield _row("read/scan-arrow-all", "scan to Arrow, all twelve columns", whole, _SQLITE, table)


def _usual(bench: Bench, stock: Stock) -> Iterator[Row]:
    """What most topics hold: text keys and headers, in several partitions, from a buffered writer."""
    count = bench.sizes.messages
    usual, table = bench.interleave(
        lambda: receive(stock.usual, count, to_committed_batches), lambda: fetch(stock.table, count)
    )
    yield _row(
        "read/usual", "text keys, headers, 4 partitions: receive_batch(1000) and commit(batch)", usual,
        _SQLITE, table,
    )  # fmt: skip


def _small_frames(bench: Bench, stock: Stock) -> Iterator[Row]:
    """Written one at a time, before and after housekeeping."""
    count, few = bench.sizes.messages, bench.sizes.singles
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


def receive(path: Path, count: int, how: Callable[[penstock.Reader], int]) -> float:
    """Through a consumer that has read nothing; registering it is not reading."""
    with (
        penstock.open(path) as store,
        store.topic(TOPIC).reader(consumer=f"c{time.monotonic_ns()}", follow=False) as reader,
    ):
        return rate(count, lambda: _expect(count, how(reader)))


def to_committed_batches(reader: penstock.Reader) -> int:
    count = 0
    while batch := reader.receive_batch(1000):
        count += len(batch.messages())
        reader.commit(batch)
    return count


def one_by_one_of_batches(reader: penstock.Reader) -> int:
    count = 0
    while batch := reader.receive_batch(1000):
        for _ in batch:
            count += 1
    return count


def one_by_one(reader: penstock.Reader) -> int:
    count = 0
    for _ in reader:
        count += 1
    return count


def to_reader_tables(reader: penstock.Reader) -> int:
    count = 0
    while batch := reader.receive_batch(100_000):
        count += batch.to_arrow().num_rows
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
