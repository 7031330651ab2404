"""Reading topics from Spark, against Spark's own Parquet reader and its rate source."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import penstock
from benchmarks.harness import BATCH, FULL, TOPIC, Bench
from benchmarks.rows import Row, ratio_at_least, ratio_at_most
from benchmarks.spark_clock import rate, started
from benchmarks.stock import seal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_VALUE_BYTES = 220
_ROWS_LEAST = 4_000_000
#: Written one at a time.
_SINGLES_SHARE = 4
_MICRO_BATCHES = 30
#: Every default column is read, and of none does Parquet's footer tell the answer.
_FULL_ROW = (
    "sum(length(topic))", "sum(partition)", "sum(offset)", "sum(second(timestamp))", "sum(length(key))",
    "sum(length(value))",
)  # fmt: skip


def run(bench: Bench) -> Iterator[Row]:
    if find_spec("pyspark") is None:
        yield Row(name="spark", what="reading topics from Spark", skipped="PySpark is not installed")
        return
    try:
        spark = started(2)
    except penstock.MissingExtra as error:
        yield Row(name="spark", what="reading topics from Spark", skipped=str(error))
        return
    with bench.room() as room:
        rows = bench.sizes.messages if bench.sizes.messages < FULL.messages else _ROWS_LEAST
        store = _filled(room / "store", rows)
        yield from _scans(bench, spark, room, store, rows)
        yield _micro_batches(bench, spark, room, store)
        if rows >= _ROWS_LEAST:  # with few rows two cores would only share the start of a query
            yield _cores(bench, store, rows)
        else:
            spark.stop()


def _scans(bench: Bench, spark: SparkSession, room: Path, store: Path, rows: int) -> Iterator[Row]:
    parquet = str(room / "parquet")
    _load(spark, store).write.parquet(parquet)
    ours, theirs = bench.interleave(
        lambda: rate(rows, lambda: _full_row(_load(spark, store))),
        lambda: rate(rows, lambda: _full_row(spark.read.parquet(parquet))),
    )
    yield Row(
        name="spark/full-row", what=f"aggregate over six columns, {rows / 1e6:g} M rows", ours=ours,
        peer="spark.read.parquet", theirs=theirs, target=ratio_at_least(0.75),
    )  # fmt: skip
    ours, theirs = bench.interleave(
        lambda: rate(rows, lambda: _only_values(_load(spark, store, columns="value"))),
        lambda: rate(rows, lambda: _only_values(_load(spark, store, columns="*"))),
    )
    yield Row(
        name="spark/columns", what='columns="value", sum of lengths', ours=ours,
        peer='columns="*"', theirs=theirs, target=ratio_at_least(1.5),
    )  # fmt: skip
    few = rows // _SINGLES_SHARE
    ours, theirs = bench.interleave(
        lambda: rate(few, lambda: _full_row(_load(spark, store, topic="singles"))),
        lambda: rate(few, lambda: _full_row(_load(spark, store, topic="batches"))),
    )
    yield Row(
        name="spark/singles", what="written one by one, sealed", ours=ours,
        peer="written by 1000", theirs=theirs, target=ratio_at_least(0.8),
    )  # fmt: skip


def _micro_batches(bench: Bench, spark: SparkSession, room: Path, store: Path) -> Row:
    def ours() -> float:
        source = spark.readStream.format("penstock").options(topic="live", startingOffsets="latest")
        with bench.room() as checkpoint, _writing(store):
            return _median_ms(source.load(str(store)), checkpoint)

    def theirs() -> float:
        with bench.room() as checkpoint:
            source = spark.readStream.format("rate").option("rowsPerSecond", 1000)
            return _median_ms(source.load(), checkpoint)

    samples = bench.interleave(ours, theirs)
    return Row(
        name="spark/micro-batch", what="micro-batch to noop, median", unit="ms", ours=samples[0],
        peer="rate source to noop", theirs=samples[1], target=ratio_at_most(1.2),
    )  # fmt: skip


def _cores(bench: Bench, store: Path, rows: int) -> Row:
    """Sessions take turns: one that is stopped lets the next begin in the same Java."""

    def measure(cores: int) -> float:
        started(1).stop()
        spark = started(cores)
        _full_row(_load(spark, store, topic="batches"))  # Python and Java are warm then
        return rate(rows, lambda: _full_row(_load(spark, store)))

    ours, theirs = bench.interleave(lambda: measure(2), lambda: measure(1))
    started(1).stop()
    return Row(
        name="spark/cores", what="full-row aggregate, local[2]", ours=ours,
        peer="local[1]", theirs=theirs, target=ratio_at_least(1.3),
    )  # fmt: skip


def _load(spark: SparkSession, store: Path, topic: str = TOPIC, **options: str) -> DataFrame:
    return spark.read.format("penstock").options(topic=topic, **options).load(str(store))


def _full_row(frame: DataFrame) -> Any:
    return frame.selectExpr(*_FULL_ROW).collect()


def _only_values(frame: DataFrame) -> Any:
    return frame.selectExpr("sum(length(value))").collect()


def _filled(path: Path, rows: int) -> Path:
    """One topic of `rows`, and two of a quarter: written by one and by a thousand. All differ."""
    source = random.Random(220)
    few = rows // _SINGLES_SHARE
    with penstock.open(path) as store:
        topics = {name: store.create_topic(name, sync="os") for name in (TOPIC, "singles", "batches", "live")}
        for at in range(0, rows, BATCH):
            keys = [source.randbytes(16) for _ in range(BATCH)]
            values = [source.randbytes(_VALUE_BYTES) for _ in range(BATCH)]
            topics[TOPIC].write_many(values, keys=keys)
            if at < few:
                topics["batches"].write_many(values, keys=keys)
                for key, value in zip(keys, values, strict=True):
                    topics["singles"].write(value, key=key)
        for topic in topics.values():
            seal(topic)
    return path


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Messages keep coming, a few every few milliseconds."""
    stop = threading.Event()

    def write() -> None:
        with penstock.open(path) as store:
            topic = store.topic("live")
            while not stop.wait(0.005):
                topic.write_many([b"x" * _VALUE_BYTES] * 5)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _median_ms(frame: DataFrame, checkpoint: Path) -> float:
    """How long a micro-batch takes, from its trigger to its commit; the first few warm up."""
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    running = writer.trigger(processingTime="0 seconds").start()
    try:
        while running.isActive and (running.lastProgress or {"batchId": 0})["batchId"] < _MICRO_BATCHES + 5:
            running.awaitTermination(1)
        found = [each.durationMs["triggerExecution"] for each in running.recentProgress if each.numInputRows]
    finally:
        running.stop()
    return float(median(found[5:]))
