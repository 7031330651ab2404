"""Spark Connect: a client without a JVM of its own reads and writes topics through a server."""

import os
import subprocess
import sys
from textwrap import dedent

import pytest

import penstock
from tests.kit.pipelines import find_java
from tests.require import absent, require

PROGRAM = dedent(
    """
    import sys
    import penstock
    import penstock.spark
    from penstock.spark.pipelines.compact import compact
    from pyspark.sql import SparkSession

    store, checkpoint = sys.argv[1:]
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    frame = spark.read.format("penstock").option("topic", "orders").load(store)
    print("read", frame.count())
    frame.select("key", "value").write.format("penstock").option("topic", "copies").mode("append").save(store)
    stream = spark.readStream.format("penstock").options(topic="orders", consumer="connect").load(store)
    for _ in range(2):
        query = stream.select("key", "value").writeStream.format("penstock").option("topic", "streamed")
        query = query.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        query.start(store).awaitTermination()
    try:
        penstock.pipeline(source="orders", sink="copies", name="own")(lambda o: o).run(store, spark=spark)
    except penstock.UsageError as error:
        print(error)
    spark = penstock.spark.register(spark)
    with penstock.open(store) as opened:
        opened.create_topic("latest")
        print(compact(opened, "orders", "latest", engine="spark", keyless="keep", spark=spark).written)
    spark.stop()
    """
)


@pytest.mark.slow
def test_connect_client_reads_writes_and_streams(store, tmp_path):
    require("connect")
    try:
        java = find_java(os.environ).home
    except penstock.MissingExtra as error:
        absent("java", str(error))
    orders = store.create_topic("orders", partitions=2)
    orders.write_many([b"%d" % n for n in range(1000)])
    copies, streamed = store.create_topic("copies"), store.create_topic("streamed")
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, **({"JAVA_HOME": java} if java else {})}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, store.path, str(tmp_path / "checkpoint")],
        capture_output=True, text=True, timeout=360, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-5000:]
    assert "read 1000" in done.stdout
    assert "pipelines need a classic Spark session" in done.stdout
    assert "1000" in done.stdout.splitlines()
    assert copies.stats().messages == streamed.stats().messages == 1000
    assert orders.consumers()[0].lag == 0
