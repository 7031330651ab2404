"""The ready pipelines: replay against `write_many`, compact against one pass that shuffles values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import penstock
from benchmarks.harness import TOPIC, Bench, rate
from benchmarks.rows import Row, ratio_at_least

#: Messages of each key, about.
_VERSIONS = 5


def run(bench: Bench) -> Iterator[Row]:
    ours, theirs = bench.interleave(lambda: replayed(bench), lambda: written(bench))
    yield Row(
        name="pipelines/replay", what=f"{bench.sizes.messages:,} messages, topic to topic, exactly once",
        ours=ours, peer="write_many of 1000", theirs=theirs, target=ratio_at_least(0.5),
    )  # fmt: skip
    yield from compacting(bench)


def replayed(bench: Bench) -> float:
    from penstock.store.replay import replay

    with bench.store() as store:
        fill(bench, store.create_topic(TOPIC))
        sink = store.create_topic("again")
        found = rate(bench.sizes.messages, lambda: replay(store, TOPIC, "again"))
        assert sink.stats().messages == bench.sizes.messages
        return found


def written(bench: Bench) -> float:
    with bench.topic("disk") as topic:
        return rate(bench.sizes.messages, lambda: fill(bench, topic))


def fill(bench: Bench, topic: penstock.Topic) -> None:
    """Every message, by a writer, all of it on disk at the end."""
    with topic.writer() as writer:
        for batch in bench.batches():
            writer.write_many(batch.values, keys=batch.keys)


def compacting(bench: Bench) -> Iterator[Row]:
    try:
        from penstock.spark import session

        spark = session("local[2]", **{"spark.sql.shuffle.partitions": 2})
    except ImportError as error:
        yield Row(name="pipelines/compact", what="the latest message of each key", skipped=str(error))
        return
    count = bench.sizes.messages
    try:
        with bench.store() as store:
            keyed(bench, store.create_topic(TOPIC))
            compacted(store, spark, 0, count)  # the first query of a session pays for all
            shuffled(store, spark, 0, count)
            turns = iter(range(1, 1000))
            ours, theirs = bench.interleave(
                lambda: compacted(store, spark, next(turns), count),
                lambda: shuffled(store, spark, next(turns), count),
            )
    finally:
        spark.stop()
    yield Row(
        name="pipelines/compact", what=f"{count:,} messages, the latest of {count // _VERSIONS:,} keys",
        ours=ours, peer="max_by(value, offset) in one pass", theirs=theirs, target=ratio_at_least(1.3),
    )  # fmt: skip


def keyed(bench: Bench, topic: penstock.Topic) -> None:
    keys = bench.sizes.messages // _VERSIONS
    with topic.writer() as writer:
        for number, batch in enumerate(bench.batches()):
            first = number * len(batch.values)
            writer.write_many(
                batch.values, keys=[b"%016d" % ((first + i) * 7919 % keys) for i in range(len(batch.values))]
            )


def compacted(store: penstock.Store, spark: Any, turn: int, count: int) -> float:
    from penstock.spark.pipelines.compact import compact

    sink = f"compacted-{turn}"
    store.create_topic(sink)
    return rate(count, lambda: compact(store, TOPIC, sink, name=sink, engine="spark", spark=spark))


def shuffled(store: penstock.Store, spark: Any, turn: int, count: int) -> float:
    """What one would write: the latest row of each key by an aggregate that carries the value along."""
    from pyspark.sql import functions as F

    sink = f"shuffled-{turn}"
    store.create_topic(sink)

    def work() -> None:
        rows = spark.read.format("penstock").option("topic", TOPIC).option("columns", "offset,key,value")
        latest = rows.load(store.path).groupBy("key").agg(F.max_by("value", "offset").alias("value"))
        latest.write.format("penstock").option("topic", sink).mode("append").save(store.path)

    return rate(count, work)
