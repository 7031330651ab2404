"""What exactly-once costs: seqnos against none, and many producers against few."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import penstock
from benchmarks.harness import Bench, rate
from benchmarks.rows import Row, ratio_at_least
from benchmarks.writing import write_buffered

_FEW, _MANY = 10, 100_000
#: Messages a call when many producers take turns.
_EACH = 10


def run(bench: Bench) -> Iterator[Row]:
    numbered, plain, many_numbered, many_plain = bench.interleave(
        lambda: buffered(bench),
        lambda: write_buffered(bench, "os"),
        lambda: many(bench, numbered=True),
        lambda: many(bench, numbered=False),
    )
    yield Row(
        name="producers/buffered", what="writer.write(seqno=…)", ours=numbered,
        peer="without a producer", theirs=plain, target=ratio_at_least(0.7),
    )  # fmt: skip
    yield Row(
        name="producers/many", what="writer.write_many(seqnos=…)", ours=many_numbered,
        peer="without a producer", theirs=many_plain, target=ratio_at_least(0.7),
    )  # fmt: skip
    crowd, few = bench.interleave(lambda: taking_turns(bench, _MANY), lambda: taking_turns(bench, _FEW))
    yield Row(
        name="producers/crowd", what=f"{_MANY:,} producers in one partition, {_EACH} messages a call",
        ours=crowd, peer=f"{_FEW} producers", theirs=few, target=ratio_at_least(0.5),
    )  # fmt: skip


def buffered(bench: Bench) -> float:
    with bench.topic("os") as topic, topic.writer(producer_id="shop-1") as writer:

        def work() -> None:
            write, seqnos = writer.write, count(1)
            for batch in bench.batches():
                for key, value, seqno in zip(batch.keys, batch.values, seqnos, strict=False):
                    write(value, key=key, seqno=seqno)
            writer.flush()

        return rate(bench.sizes.messages, work)


def many(bench: Bench, *, numbered: bool) -> float:
    with bench.topic("os") as topic, topic.writer(producer_id="shop-1" if numbered else None) as writer:

        def work() -> None:
            first = 1
            for batch in bench.batches():
                stop = first + len(batch.values)
                seqnos = list(range(first, stop)) if numbered else None
                writer.write_many(batch.values, keys=batch.keys, seqnos=seqnos)
                first = stop
            writer.flush()

        return rate(bench.sizes.messages, work)


def taking_turns(bench: Bench, producers: int) -> float:
    """The same number of messages and calls, by few producers or by many; opening their writers counts."""
    batch = bench.distinct[0]
    values, keys = batch.values[:_EACH], batch.keys[:_EACH]
    calls = max(bench.sizes.messages // _EACH, _MANY)
    with bench.topic("os") as topic:

        def work() -> None:
            writers: dict[int, penstock.Writer] = {}
            for call in range(calls):
                number = call % producers
                writer = writers.get(number)
                if writer is None:
                    writer = writers[number] = topic.writer(producer_id=f"producer-{number}")
                first = call // producers * _EACH + 1
                writer.write_many(values, keys=keys, seqnos=range(first, first + _EACH))

        return rate(calls * _EACH, work)
