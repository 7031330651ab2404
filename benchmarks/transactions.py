"""Transactions: a large one against writing without, its memory, and a small one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import penstock
from benchmarks.harness import TOPIC, Bench, Sizes, rate
from benchmarks.rows import Row, ratio_at_least, ratio_at_most

#: The memory of a transaction is compared with that of one this many times smaller.
_LARGER = 10


def run(bench: Bench) -> Iterator[Row]:
    many, plain_many, single, plain_single = bench.interleave(
        lambda: in_transaction(bench, one_by_one=False),
        lambda: with_writer(bench, one_by_one=False),
        lambda: in_transaction(bench, one_by_one=True),
        lambda: with_writer(bench, one_by_one=True),
    )
    count = f"{bench.sizes.messages:,}"
    yield Row(
        name="transaction/many", what=f"one transaction of {count}, write_many of 1000", ours=many,
        peer="writer.write_many() without", theirs=plain_many, target=ratio_at_least(0.5),
    )  # fmt: skip
    yield Row(
        name="transaction/one-by-one", what=f"one transaction of {count}, write()", ours=single,
        peer="writer.write() without", theirs=plain_single, target=ratio_at_least(0.5),
    )  # fmt: skip
    large, small = (
        tuple(memory(bench.sizes.messages // part) for _ in range(bench.sizes.repeat))
        for part in (1, _LARGER)
    )
    yield Row(
        name="transaction/memory", what=f"memory that a transaction of {count} adds", unit="MB", ours=large,
        peer=f"{_LARGER} times smaller", theirs=small, target=ratio_at_most(1.5),
    )  # fmt: skip
    tiny, durable = bench.interleave(lambda: small_ones(bench), lambda: durable_ones(bench))
    yield Row(
        name="transaction/small", what="transactions of one message", ours=tiny,
        peer="topic.write()", theirs=durable,
    )  # fmt: skip


def in_transaction(bench: Bench, *, one_by_one: bool) -> float:
    with bench.store() as store:
        topic = store.create_topic(TOPIC)
        return rate(bench.sizes.messages, lambda: fill(bench, store, topic, one_by_one=one_by_one))


def fill(bench: Bench, store: penstock.Store, topic: penstock.Topic, *, one_by_one: bool) -> None:
    with store.transaction() as tx:
        for batch in bench.batches():
            if one_by_one:
                for key, value in zip(batch.keys, batch.values, strict=True):
                    tx.write(topic, value, key=key)
            else:
                tx.write_many(topic, batch.values, keys=batch.keys)


def with_writer(bench: Bench, *, one_by_one: bool) -> float:
    with bench.topic("disk") as topic, ExitStack() as stack:
        writer = stack.enter_context(topic.writer())

        def work() -> None:
            for batch in bench.batches():
                if one_by_one:
                    for key, value in zip(batch.keys, batch.values, strict=True):
                        writer.write(value, key=key)
                else:
                    writer.write_many(batch.values, keys=batch.keys)
            writer.flush()

        return rate(bench.sizes.messages, work)


def small_ones(bench: Bench) -> float:
    with bench.store() as store:
        topic = store.create_topic(TOPIC)

        def work() -> None:
            for key, value in bench.singles(bench.sizes.durable):
                with store.transaction() as tx:
                    tx.write(topic, value, key=key)

        return rate(bench.sizes.durable, work)


def durable_ones(bench: Bench) -> float:
    with bench.topic("disk") as topic:

        def work() -> None:
            for key, value in bench.singles(bench.sizes.durable):
                topic.write(value, key=key)

        return rate(bench.sizes.durable, work)


def memory(messages: int) -> float:
    """Megabytes that a transaction adds to a process of its own, at most."""
    command = [sys.executable, "-m", "benchmarks.transactions", str(messages)]
    answer: float = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return answer


def _fill_and_look(messages: int) -> float:
    sizes = Sizes(messages=messages, repeat=1, together_s=0, segments=0, growth=1)
    bench = Bench(sizes, Path())
    _ = bench.distinct  # made before we look
    with bench.store() as store:
        topic = store.create_topic(TOPIC)
        topic.write(b"first")
        before = _anonymous_megabytes()
        most = before
        with store.transaction() as tx:
            for number, batch in enumerate(bench.batches()):
                tx.write_many(topic, batch.values, keys=batch.keys)
                if number % 10 == 0:
                    most = max(most, _anonymous_megabytes())
        return max(most, _anonymous_megabytes()) - before


def _anonymous_megabytes() -> float:
    with open("/proc/self/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    return int(fields["RssAnon"].split()[0]) * 1024 / 1e6


if __name__ == "__main__":
    print(json.dumps(_fill_and_look(int(sys.argv[1]))))
