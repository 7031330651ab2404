"""Spark writes to a topic, against Spark's own Parquet sink; both from the same Parquet files."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import KEY_BYTES, TOPIC, VALUE_BYTES, Bench
from benchmarks.rows import Row, ratio_at_least
from benchmarks.spark_clock import rate, started

#: Rows for each message that other subjects write.
_MORE = 4
_FILES = 4
#: Made at a time.
_ROWS = 50_000


def run(bench: Bench) -> Iterator[Row]:
    try:
        spark = started(2)
    except ImportError as error:
        yield Row(name="spark-sink", what="Spark writes to a topic", skipped=str(error))
        return
    try:
        with bench.room() as room:
            yield from _measured(bench, spark, room)
    finally:
        spark.stop()


def _measured(bench: Bench, spark: Any, room: Path) -> Iterator[Row]:
    count = _MORE * bench.sizes.messages
    make_input(room / "input", count)
    rows = spark.read.parquet(str(room / "input"))
    into_topic(bench, rows, 1_000, partitions=1)  # the first query of a session pays for all
    into_parquet(bench, rows, 1_000)
    ours, spread, theirs, nowhere = bench.interleave(
        lambda: into_topic(bench, rows, count, partitions=1),
        lambda: into_topic(bench, rows, count, partitions=8),
        lambda: into_parquet(bench, rows, count),
        lambda: rate(count, rows.write.format("noop").mode("overwrite").save),
    )
    what = f"{count:,} rows of key and value"
    yield Row(
        name="spark-sink", what=f"{what}, on disk and visible", ours=ours,
        peer="Spark's Parquet sink", theirs=theirs, target=ratio_at_least(0.8),
    )  # fmt: skip
    yield Row(
        name="spark-sink/keys", what=f"{what}, 8 partitions by key", ours=spread,
        peer="Spark's Parquet sink", theirs=theirs, target=ratio_at_least(0.8),
    )  # fmt: skip
    yield Row(name="spark-sink/input", what=f"{what} read and dropped (noop)", ours=nowhere)


def make_input(folder: Path, count: int) -> None:
    """Incompressible rows, the same in every run."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    source = random.Random(220)
    schema = pa.schema([("key", pa.binary()), ("value", pa.binary())])
    for number in range(_FILES):
        path = folder / f"{number}.parquet"
        with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as file:
            left = count // _FILES
            while left:
                now = min(left, _ROWS)
                keys = pa.array(_cut(source.randbytes(KEY_BYTES * now), KEY_BYTES), pa.binary())
                values = pa.array(_cut(source.randbytes(VALUE_BYTES * now), VALUE_BYTES), pa.binary())
                file.write_batch(pa.record_batch([keys, values], schema=schema))
                left -= now


def _cut(data: bytes, step: int) -> list[bytes]:
    return [data[at : at + step] for at in range(0, len(data), step)]


def into_topic(bench: Bench, rows: Any, count: int, *, partitions: int) -> float:
    with bench.store() as store:
        topic = store.create_topic(TOPIC, partitions=partitions)
        write = rows.limit(count) if count <= 1_000 else rows
        sink = write.write.format("penstock").option("topic", TOPIC).mode("append")
        found = rate(count, lambda: sink.save(store.path))
        assert topic.stats().messages == count
        return found


def into_parquet(bench: Bench, rows: Any, count: int) -> float:
    with bench.room() as room:
        write = rows.limit(count) if count <= 1_000 else rows
        found = rate(count, lambda: write.write.parquet(str(room / "out")))
        shutil.rmtree(room / "out")
        return found
