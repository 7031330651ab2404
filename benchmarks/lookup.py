"""One message by its offset, chosen at random."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing

import penstock
from benchmarks.harness import TOPIC, Bench, rate
from benchmarks.rows import Row, ratio_at_least
from benchmarks.sqlite_table import Table
from benchmarks.stock import Stock


def run(bench: Bench, stock: Stock) -> Iterator[Row]:
    chosen = random.Random(7).choices(range(bench.sizes.messages), k=bench.sizes.lookups)
    with penstock.open(stock.store) as store, closing(Table(stock.table)) as table:
        topic = store.topic(TOPIC)
        get_each(topic, chosen)  # both have been open for a while: blocks checked, pages cached
        table.get(chosen)
        ours, theirs = bench.interleave(
            lambda: rate(len(chosen), lambda: get_each(topic, chosen)),
            lambda: rate(len(chosen), lambda: table.get(chosen)),
        )
    yield Row(
        name="lookup", what="topic.get(offset), at random", ours=ours,
        peer="sqlite3 SELECT by primary key", theirs=theirs, target=ratio_at_least(0.7),
    )  # fmt: skip


def get_each(topic: penstock.Topic, offsets: list[int]) -> None:
    for offset in offsets:
        topic.get(offset)
