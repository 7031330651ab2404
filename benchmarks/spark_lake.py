"""A topic into a Delta table, against Spark's own Parquet sink: the same rows, whole and divided by JSON."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import penstock
from benchmarks.harness import BATCH, TOPIC, Bench, rate
from benchmarks.rows import Row, ratio_at_least

#: Rows for each message that other subjects write.
_MORE = 4
_PARTITIONS = 4
_SCHEMA = "id long, customer string, amount double, paid boolean, note string, items array<struct<n:int>>"
#: The columns of an archive; it has the nanoseconds besides.
_COLUMNS = (
    "partition", "offset", "timestamp", "written_at", "key", "value", "headers", "producer_id", "group",
    "seqno", "codec",
)  # fmt: skip
_RAW = Row(
    name="archive", what="key and value, 220 random bytes", peer="Spark's Parquet sink",
    target=ratio_at_least(1.2),
)  # fmt: skip
_JSON = Row(
    name="archive/json", what="JSON of 220 bytes into 6 columns",
    peer="from_json and Spark's Parquet sink", target=ratio_at_least(2.0),
)  # fmt: skip


def run(bench: Bench) -> Iterator[Row]:
    try:
        from penstock.spark import session

        spark = session("local[2]", **{"spark.sql.shuffle.partitions": 2})
    except ImportError as error:
        yield Row(name="archive", what="a topic into a Delta table", skipped=str(error))
        return
    try:
        yield _compared(bench, spark, None, fill, _RAW)
        yield _compared(bench, spark, _SCHEMA, fill_json, _JSON)
    finally:
        spark.stop()


def _compared(
    bench: Bench, spark: Any, schema: str | None, fill: Callable[[Bench, penstock.Store, int], None], row: Row
) -> Row:
    count = _MORE * bench.sizes.messages
    with bench.store() as store:
        fill(bench, store, count)
        into_table(bench, spark, store, count, schema)  # the first query of a session pays for all
        into_parquet(bench, spark, store, count, schema)
        ours, theirs = bench.interleave(
            lambda: into_table(bench, spark, store, count, schema),
            lambda: into_parquet(bench, spark, store, count, schema),
        )
    return replace(row, what=f"{count:,} rows of {row.what}, committed", ours=ours, theirs=theirs)


def fill(bench: Bench, store: penstock.Store, count: int) -> None:
    """Incompressible messages."""
    topic = store.create_topic(TOPIC, partitions=_PARTITIONS, sync="os")
    for number, batch in enumerate(bench.batches(count)):
        topic.write_many(batch.values, keys=batch.keys, partition=number % _PARTITIONS)
    store.flush_housekeeping()


def fill_json(bench: Bench, store: penstock.Store, count: int) -> None:
    topic = store.create_topic(TOPIC, partitions=_PARTITIONS, sync="os")
    source = random.Random(220)
    for number in range(count // BATCH):
        values = [_order(source, number * BATCH + n) for n in range(BATCH)]
        topic.write_many(values, partition=number % _PARTITIONS)
    store.flush_housekeeping()


def _order(source: random.Random, number: int) -> str:
    order = {
        "id": number,
        "customer": f"customer-{source.randrange(10**9)}",
        "amount": source.random() * 1000,
        "paid": number % 3 == 0,
        "note": source.randbytes(32).hex(),
        "items": [{"n": n} for n in range(number % 5)],
    }
    return json.dumps(order)


def into_table(bench: Bench, spark: Any, store: penstock.Store, count: int, schema: str | None) -> float:
    from penstock.spark.pipelines.archive import archive

    def work() -> None:
        done = archive(store.path, TOPIC, room / "t", name=room.name, spark=spark, schema=schema)
        assert done.rows == count

    with bench.room() as room:
        return rate(count, work)


def into_parquet(bench: Bench, spark: Any, store: penstock.Store, count: int, schema: str | None) -> float:
    from pyspark.sql.functions import col, from_json

    options = {"topic": TOPIC, "columns": ",".join(_COLUMNS)}
    rows = spark.read.format("penstock").options(**options).load(store.path)
    if schema is not None:
        parsed = from_json(col("value").cast("string"), schema).alias("parsed")
        rest = [col(name) for name in _COLUMNS if name != "value"]
        rows = rows.select(*rest, parsed).select(*rest, "parsed.*")

    def work() -> None:
        sink = rows.write.option("parquet.enable.dictionary", "false").option("compression", "zstd")
        sink.parquet(str(Path(room) / "out"))

    with bench.room() as room:
        return rate(count, work)
