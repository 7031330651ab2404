"""Whether the cost of writing and reading stays the same as a topic grows."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import penstock
from benchmarks.harness import TOPIC, Bench, rate
from benchmarks.rows import Row, ratio_at_least
from benchmarks.stock import seal

_BYTES_EACH = 240
#: Flat, as far as a noisy machine lets one see.
_FLAT = ratio_at_least(0.8)


def run(bench: Bench) -> Iterator[Row]:
    small, large = bench.sizes.messages, bench.sizes.messages * bench.sizes.growth
    missing = _missing_bytes(bench, large)
    if missing > 0:
        yield Row(
            name="growth", what="cost as a topic grows", skipped=f"{missing / 1e9:.1f} GB more of disk needed"
        )
        return
    with (
        bench.room() as room,
        penstock.open(room / "small") as first,
        penstock.open(room / "large") as second,
    ):
        few, many = filled(first, bench, small), filled(second, bench, large)
        yield from _rows(bench, few, many, f"at {large / 1e6:g} M messages", f"at {small / 1e6:g} M messages")


def _rows(bench: Bench, few: penstock.Topic, many: penstock.Topic, here: str, there: str) -> Iterator[Row]:
    for name, measure in (("append", append), ("read", read), ("lookup", lookup)):
        ours, theirs = bench.interleave(lambda: measure(bench, many), lambda: measure(bench, few))  # noqa: B023
        yield Row(
            name=f"growth/{name}", what=f"{name} {here}", ours=ours, peer=there, theirs=theirs, target=_FLAT
        )


def filled(store: penstock.Store, bench: Bench, messages: int) -> penstock.Topic:
    topic = store.create_topic(TOPIC, sync="os")
    for batch in bench.batches(messages):
        topic.write_many(batch.values, keys=batch.keys)
    seal(topic)
    return topic


def append(bench: Bench, topic: penstock.Topic) -> float:
    count = bench.sizes.singles

    def work() -> None:
        for batch in bench.batches(count):
            topic.write_many(batch.values, keys=batch.keys)

    return rate(count, work)


def read(bench: Bench, topic: penstock.Topic) -> float:
    """The same number of messages, from a third of the way on."""
    count = bench.sizes.singles
    ((_, _, end),) = topic.scan().ranges
    scan = topic.scan(start=end // 3, stop=end // 3 + count)
    return rate(count, lambda: sum(len(batch.messages()) for batch in scan))


def lookup(bench: Bench, topic: penstock.Topic) -> float:
    """Around one place, so that both sizes touch equally many pages."""
    ((_, _, end),) = topic.scan().ranges
    chosen = random.Random(7).choices(range(end // 3, end // 3 + bench.sizes.singles), k=bench.sizes.lookups)

    def work() -> None:
        for offset in chosen:
            topic.get(offset)

    return rate(len(chosen), work)


def _missing_bytes(bench: Bench, messages: int) -> int:
    free = shutil.disk_usage(Path(bench.folder)).free
    return 2 * messages * _BYTES_EACH - free
