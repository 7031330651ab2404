"""`penstock.spark.read`, `count` and `aggregate` against Parquet of the same rows and the lake alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import penstock
from benchmarks.harness import BATCH, FULL, TOPIC, Bench, rate, seconds
from benchmarks.rows import Row, at_most, ratio_at_least
from penstock.spark import aggregate, count, read, session
from penstock.spark.pipelines.archive import archive
from penstock.spark.source.options import parse
from penstock.spark.source.plan import bundled, divided
from penstock.spark.source.survey import survey

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_VALUE_BYTES = 220
_ROWS = 4_000_000
#: Of all rows, so many come after the archive was made: the live tail.
_TAIL_SHARE = 50
_FULL_ROW = (
    "sum(length(topic))", "sum(partition)", "sum(offset)", "sum(second(timestamp))", "sum(length(key))",
    "sum(length(value))",
)  # fmt: skip
_PARTITIONS, _SEGMENTS = 1000, 10


def run(bench: Bench) -> Iterator[Row]:
    if find_spec("pyspark") is None:
        yield Row(name="spark-read", what="reading topics by read()", skipped="PySpark is not installed")
        return
    is_full = bench.sizes.messages >= FULL.messages
    yield _planning(bench, _PARTITIONS if is_full else 20)
    try:
        spark = session("local[2]", **{"spark.sql.shuffle.partitions": 2, "spark.driver.memory": "2g"})
    except penstock.MissingExtra as error:
        yield Row(name="spark-read", what="reading topics by read()", skipped=str(error))
        return
    try:
        with bench.room() as room:
            yield from _compared(bench, spark, room, _ROWS if is_full else bench.sizes.messages)
    finally:
        spark.stop()


def _compared(bench: Bench, spark: SparkSession, room: Path, rows: int) -> Iterator[Row]:
    store, lake, parquet = str(room / "store"), str(room / "lake"), str(room / "parquet")
    _fill(store, rows - rows // _TAIL_SHARE)
    archive(store, TOPIC, lake, spark=spark)
    _fill(store, rows // _TAIL_SHARE)
    read(spark, store, TOPIC).write.parquet(parquet)

    def turns(
        name: str, what: str, ours: Callable[[], Any], theirs: Callable[[], Any], least: float, peer: str
    ) -> Row:
        for warm in (ours, theirs):
            warm()
        samples = bench.interleave(lambda: rate(rows, ours), lambda: rate(rows, theirs))
        return Row(
            name=f"spark-read/{name}", what=what, ours=samples[0], peer=peer, theirs=samples[1],
            target=ratio_at_least(least),
        )  # fmt: skip

    def both(**how: Any) -> DataFrame:
        return read(spark, store, TOPIC, **how)

    def log(**how: Any) -> DataFrame:
        return read(spark, store, TOPIC, archive=None, **how)

    def files() -> DataFrame:
        return spark.read.parquet(parquet)

    def alone() -> DataFrame:
        return spark.read.parquet(lake).selectExpr("'x' AS topic", "*")

    of = "Parquet of the same rows"
    yield turns("full", "history + tail, six columns", lambda: _full(both()), lambda: _full(files()), 1.0, of)
    yield turns(
        "one",
        "history + tail, one column",
        lambda: _one(both(columns="value")),
        lambda: _one(files()),
        1.0,
        of,
    )
    yield turns("count", "count()", lambda: count(spark, store, TOPIC), lambda: files().count(), 1.0, of)
    what = "history + tail, six columns"
    yield turns("lake", what, lambda: _full(both()), lambda: _full(alone()), 0.95, "lake alone")
    yield turns("log", "log alone, six columns", lambda: _full(log()), lambda: _full(files()), 0.75, of)
    yield turns(
        "log-one",
        "log alone, one column",
        lambda: _one(log(columns="value")),
        lambda: _one(files()),
        0.75,
        of,
    )
    yield turns(
        "aggregate", "count and bytes by partition and hour", lambda: _beside(spark, store),
        lambda: _by_spark(files()), 1.5, of,
    )  # fmt: skip


def _full(frame: DataFrame) -> Any:
    return frame.selectExpr(*_FULL_ROW).collect()


def _one(frame: DataFrame) -> Any:
    return frame.selectExpr("sum(length(value))").collect()


def _beside(spark: SparkSession, store: str) -> Any:
    measures = {"count": "count", "bytes": "sum(size)"}
    return aggregate(spark, store, TOPIC, measures, by=["partition"], window="1h", archive=None).collect()


def _by_spark(frame: DataFrame) -> Any:
    from pyspark.sql import functions as F

    groups = frame.groupBy(F.window("timestamp", "1 hour"), "partition")
    return groups.agg(F.count("*"), F.sum(F.expr("octet_length(key) + octet_length(value)"))).collect()


def _planning(bench: Bench, partitions: int) -> Row:
    """A topic of many partitions and segments, planned as Spark has it planned."""
    with bench.room() as room:
        with penstock.open(room / "store") as store:
            topic = store.create_topic("wide", partitions=partitions, segment_bytes="4KiB", sync="os")
            for _ in range(_SEGMENTS):
                for number in range(partitions):
                    topic.write(b"x" * 3900, partition=number)
        asked = parse({"path": str(room / "store"), "topic": "wide"})
        (ours,) = bench.interleave(lambda: seconds(lambda: bundled(divided(survey(asked)))))
    return Row(
        name="spark-read/planning", what=f"{_SEGMENTS * partitions} segments of {partitions} partitions",
        unit="s", ours=ours, target=at_most(2.0),
    )  # fmt: skip


def _fill(path: str, rows: int) -> None:
    source = random.Random(rows)
    with penstock.open(path) as store:
        there = TOPIC in {each.name for each in store.topics()}
        topic = store.topic(TOPIC) if there else store.create_topic(TOPIC, partitions=2, sync="os")
        for _ in range(0, rows, BATCH):
            keys = [source.randbytes(16) for _ in range(BATCH)]
            topic.write_many([source.randbytes(_VALUE_BYTES) for _ in range(BATCH)], keys=keys)
