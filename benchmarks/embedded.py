"""Batches of a thousand, written and read, beside key-value stores that live in the process as we do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.harness import Bench, rate
from benchmarks.peers.key_value import PEERS
from benchmarks.peers.program import Missing, Rates
from benchmarks.reading import read, to_messages
from benchmarks.rows import Row
from benchmarks.stock import Stock
from benchmarks.usual_messages import TextBatch


def run(bench: Bench, stock: Stock) -> Iterator[Row]:
    batches = [TextBatch(batch) for batch in bench.distinct]
    for name, peer in PEERS.items():
        row = f"embedded/{name.lower()}"
        try:
            rounds = [(_ours(bench, stock, batches), _theirs(bench, peer)) for _ in range(bench.sizes.repeat)]
        except Missing as missing:
            yield Row(name=row, what=name, skipped=str(missing))
            continue
        for act, what in (("write", "write_many of 1000, text keys"), ("read", "scan to Message objects")):
            yield Row(
                name=f"{row}-{act}", what=what, ours=tuple(getattr(one, act) for one, _ in rounds),
                peer=f"{name}, 1000 at a time", theirs=tuple(getattr(other, act) for _, other in rounds),
            )  # fmt: skip


def _ours(bench: Bench, stock: Stock, batches: list[TextBatch]) -> Rates:
    count, keys = bench.sizes.messages, {id(each.batch): each.keys for each in batches}  # made before
    with bench.topic("os") as topic:

        def write() -> None:
            for batch in bench.batches():
                topic.write_many(batch.values, keys=keys[id(batch)])

        return Rates(write=rate(count, write), read=read(stock.store, count, to_messages))


def _theirs(bench: Bench, peer: Callable[[Bench, Path], Rates]) -> Rates:
    with bench.room() as room:
        return peer(bench, room)
