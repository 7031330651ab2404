"""Executors in processes of their own, as on a cluster; everything from the pip package."""

import subprocess
import sys
from textwrap import dedent

import pytest

import penstock
from tests.require import require

PROGRAM = dedent(
    """
    import os, sys
    from penstock.spark import session
    spark = session("local-cluster[2,1,1024]", **{"spark.sql.shuffle.partitions": 2})

    def reader(kind):
        return getattr(spark, kind).format("penstock").option("topic", "orders").option("minPartitions", 4)

    frame = reader("read").load(sys.argv[1])
    print("batch", *frame.selectExpr("count(*)", "count(distinct offset)", "sum(offset)").first())
    drivers = os.getpid()
    pids = frame.rdd.mapPartitions(lambda rows: [os.getppid()]).distinct().collect()
    print("executors", len(pids) >= 2 and drivers not in pids)
    out, checkpoint = sys.argv[1] + "-out", sys.argv[1] + "-checkpoint"
    writer = reader("readStream").option("consumer", "c").load(sys.argv[1]).writeStream.format("parquet")
    writer.option("path", out).option("checkpointLocation", checkpoint).trigger(availableNow=True).start(
    ).awaitTermination()
    print("stream", spark.read.parquet(out).select("offset").distinct().count())
    spark.stop()
    """
)


@pytest.mark.slow
def test_executors_of_their_own_read_batches_and_streams(tmp_path):
    require("spark")
    with penstock.open(tmp_path / "data") as store:
        topic = store.create_topic("orders", segment_bytes="64KiB", sync="os")
        for _ in range(10):
            topic.write_many([b"x" * 100] * 1000)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "data")],
        capture_output=True, text=True, timeout=360, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"batch 10000 10000 {sum(range(10000))}", "executors True", "stream 10000",
    ]  # fmt: skip
    with penstock.open(tmp_path / "data") as store:
        assert store.topic("orders").consumers()[0].lag == 0
