"""Batches of a thousand, written and read, beside systems that are programs of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.harness import Bench, rate
from benchmarks.peers import jetstream, redis_streams, tarantool
from benchmarks.peers.program import Missing, Rates
from benchmarks.reading import read, to_messages
from benchmarks.rows import Row
from benchmarks.stock import Stock

Peer = Callable[[Bench, Path], Rates]
_PEERS: dict[str, Peer] = {each.NAME: each.measure for each in (redis_streams, jetstream, tarantool)}


def run(bench: Bench, stock: Stock) -> Iterator[Row]:
    for name, peer in _PEERS.items():
        row = f"servers/{name.split()[0].lower()}"
        try:
            rounds = [(ours(bench, stock), theirs(bench, peer)) for _ in range(bench.sizes.repeat)]
        except Missing as missing:
            yield Row(name=row, what=name, skipped=str(missing))
            continue
        for act, what in (("write", 'write_many of 1000, sync="os"'), ("read", "scan to Message objects")):
            yield Row(
                name=f"{row}-{act}", what=what, ours=tuple(getattr(one, act) for one, _ in rounds),
                peer=name, theirs=tuple(getattr(other, act) for _, other in rounds),
                by_processor=False,
            )  # fmt: skip


def ours(bench: Bench, stock: Stock) -> Rates:
    count = bench.sizes.networked
    with bench.topic("os") as topic:

        def work() -> None:
            for batch in bench.batches(count):
                topic.write_many(batch.values, keys=batch.keys)

        return Rates(write=rate(count, work), read=read(stock.store, count, to_messages))


def theirs(bench: Bench, peer: Peer) -> Rates:
    with bench.room() as room:
        return peer(bench, room)
