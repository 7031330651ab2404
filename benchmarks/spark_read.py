"""`penstock.spark.read`, `count` and `aggregate` against Parquet of the same rows and the lake alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import penstock
from benchmarks.harness import BATCH, FULL, TOPIC, Bench, seconds
from benchmarks.rows import Row, at_most, ratio_at_least
from benchmarks.spark_clock import rate, started
from penstock.spark import aggregate, count, read
from penstock.spark.pipelines.archive import archive
from penstock.spark.source.options import parse
from penstock.spark.source.plan import bundled, divided
from penstock.spark.source.survey import survey

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_VALUE_BYTES = 220
_ROWS = 4_000_000
#: In a quick run, for each of its messages: with few rows, the start of a query would be all that is seen.
_QUICK_TIMES = 5
#: Of all rows, so many come after the archive was made: the live tail.
_TAIL_SHARE = 50
_FULL_ROW = (
    "sum(length(topic))", "sum(partition)", "sum(offset)", "sum(second(timestamp))", "sum(length(key))",
    "sum(length(value))",
)  # fmt: skip
#: So many partitions, with so many segments each, are to be planned in so many seconds.
_PARTITIONS, _SEGMENTS, _PLANNED_S = 1000, 10, 2.0
_OF = "Parquet of the same rows"
_LAKE = "the archive's files alone"
#: What issue 18 asks for: the least ratio, and of what.
_TARGETS = {
    "full": (1.0, _OF),
    "full-lake": (0.95, _LAKE),
    "one": (1.0, _OF),
    "one-lake": (0.95, _LAKE),
    "count": (1.0, _OF),
    "count-lake": (0.95, _LAKE),
    "log": (0.75, _OF),
    "log-one": (0.75, _OF),
    "aggregate": (1.5, _OF),
}


def run(bench: Bench) -> Iterator[Row]:
    if find_spec("pyspark") is None:
        yield Row(name="spark-read", what="reading topics by read()", skipped="PySpark is not installed")
        return
    is_full = bench.sizes.messages >= FULL.messages
    yield _planning(bench, _PARTITIONS if is_full else _PARTITIONS // 10)
    try:
        spark = started(2)
    except penstock.MissingExtra as error:
        yield Row(name="spark-read", what="reading topics by read()", skipped=str(error))
        return
    try:
        with bench.room() as room:
            yield from _compared(
                bench, spark, room, _ROWS if is_full else bench.sizes.messages * _QUICK_TIMES
            )
    finally:
        spark.stop()


def _compared(bench: Bench, spark: SparkSession, room: Path, rows: int) -> Iterator[Row]:
    data = _Data(spark, room, rows)
    for name, what, ours, theirs in data.pairs():
        for warm in (ours, theirs):
            warm()
        least, peer = _TARGETS[name]
        there = rows - rows // _TAIL_SHARE if peer == _LAKE else rows
        # Both by turns; the comparison is one line of the issue, so one row.
        samples = bench.interleave(partial(rate, rows, ours), partial(rate, there, theirs))
        yield Row(
            name=f"spark-read/{name}", what=f"{what}, {rows / 1e6:g} M rows", ours=samples[0], peer=peer,
            theirs=samples[1], target=ratio_at_least(least),
        )  # fmt: skip


class _Data:
    """The same rows in a topic of which most is archived, in its archive, and as Spark's own Parquet."""

    def __init__(self, spark: SparkSession, room: Path, rows: int) -> None:
        self._spark = spark
        self._store, self._lake, self._parquet = (str(room / name) for name in ("store", "lake", "parquet"))
        _fill(self._store, rows - rows // _TAIL_SHARE)
        archive(self._store, TOPIC, self._lake, spark=spark)
        _fill(self._store, rows // _TAIL_SHARE)
        read(spark, self._store, TOPIC).write.parquet(self._parquet)

    def pairs(self) -> Iterator[tuple[str, str, Callable[[], Any], Callable[[], Any]]]:
        """What is compared: its name, in words, ours, and the peer."""
        full, one = "history + tail, six columns", "history + tail, one column"
        yield "full", full, lambda: _full(self.both()), lambda: _full(self.files())
        yield "full-lake", full, lambda: _full(self.both()), lambda: _full(self.alone())
        yield "one", one, lambda: _one(self.both("value")), lambda: _one(self.files())
        yield "one-lake", one, lambda: _one(self.both("value")), lambda: _one(self.alone())
        yield "count", "history + tail, count", self.counted, lambda: self.files().count()
        yield "count-lake", "history + tail, count", self.counted, lambda: self.alone().count()
        yield "log", "log alone, six columns", lambda: _full(self.log()), lambda: _full(self.files())
        yield "log-one", "log alone, one column", lambda: _one(self.log("value")), lambda: _one(self.files())
        what = "log alone, count and bytes by partition and hour"
        yield "aggregate", what, self.aggregated, lambda: _by_spark(self.files())

    def both(self, columns: str | None = None) -> DataFrame:
        return read(self._spark, self._store, TOPIC, columns=columns)

    def log(self, columns: str | None = None) -> DataFrame:
        return read(self._spark, self._store, TOPIC, columns=columns, archive=None)

    def counted(self) -> int:
        return count(self._spark, self._store, TOPIC)

    def aggregated(self) -> Any:
        measures = {"count": "count", "bytes": "sum(size)"}
        frame = aggregate(
            self._spark, self._store, TOPIC, measures, by=["partition"], window="1h", archive=None
        )
        return frame.collect()

    def files(self) -> DataFrame:
        return self._spark.read.parquet(self._parquet)

    def alone(self) -> DataFrame:
        """The archive as it is now: files that were merged since lie there, too, and are not part of it."""
        from deltalake import DeltaTable

        paths = [each.removeprefix("file://") for each in DeltaTable(self._lake).file_uris()]
        return self._spark.read.parquet(*paths).selectExpr("'x' AS topic", "*")


def _full(frame: DataFrame) -> Any:
    return frame.selectExpr(*_FULL_ROW).collect()


def _one(frame: DataFrame) -> Any:
    return frame.selectExpr("sum(length(value))").collect()


def _by_spark(frame: DataFrame) -> Any:
    from pyspark.sql import functions as F

    groups = frame.groupBy(F.window("timestamp", "1 hour"), "partition")
    return groups.agg(F.count("*"), F.sum(F.expr("octet_length(key) + octet_length(value)"))).collect()


def _planning(bench: Bench, partitions: int) -> Row:
    """Many segments of many partitions, planned as Spark has it planned."""
    with bench.room() as room:
        with penstock.open(room / "store") as store:
            topic = store.create_topic("wide", partitions=partitions, segment_bytes="4KiB", sync="os")
            for _ in range(_SEGMENTS):
                for number in range(partitions):
                    topic.write(b"x" * 3900, partition=number)
        asked = parse({"path": str(room / "store"), "topic": "wide"})
        (ours,) = bench.interleave(lambda: seconds(lambda: bundled(divided(survey(asked)))))
    return Row(
        name="spark-read/planning", what=f"{_SEGMENTS * partitions:,} segments of {partitions:,} partitions",
        unit="s", ours=ours, target=at_most(_PLANNED_S * partitions / _PARTITIONS),
    )  # fmt: skip


def _fill(path: str, rows: int) -> None:
    source = random.Random(rows)
    with penstock.open(path) as store:
        there = TOPIC in {each.name for each in store.topics()}
        topic = store.topic(TOPIC) if there else store.create_topic(TOPIC, partitions=2, sync="os")
        for _ in range(0, rows, BATCH):
            keys = [source.randbytes(16) for _ in range(BATCH)]
            topic.write_many([source.randbytes(_VALUE_BYTES) for _ in range(BATCH)], keys=keys)
