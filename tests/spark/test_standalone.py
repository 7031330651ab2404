"""A standalone master and two workers read a topic, write it back, and run a pipeline by the same command."""

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests.require import require
from tests.spark.standalone import HOSTS, environment, standalone
from tests.spark.streams import numbers

__all__ = ["environment"]  # a fixture
ROOT = Path(__file__).parents[2]
ROWS = 20_000
COPY = dedent(
    """
    import os, sys
    from penstock.spark import session

    store, master, host, path = sys.argv[1:]
    spark = session(master, **{
        "spark.executor.memory": "512m", "spark.driver.host": host, "spark.driver.bindAddress": host,
        "spark.ui.enabled": "false", "spark.executorEnv.PYTHONPATH": path,
    })
    orders = spark.read.format("penstock").options(topic="orders", minPartitions="4").load(store)
    where = orders.rdd.mapPartitions(lambda rows: [os.environ["SPARK_LOCAL_IP"]]).distinct().collect()
    writer = orders.select("key", "value").write.format("penstock").option("topic", "copies")
    writer.mode("append").save(store)
    print(*sorted(where))
    spark.stop()
    """
)
PIPELINE = dedent(
    """
    import penstock
    from pyspark.sql.functions import col, udf

    def half(text):
        return str(int(text) // 2)

    @penstock.pipeline(source="orders", sink="halves")
    def halves(orders):
        return orders.select("key", udf(half)(col("value").cast("string")).alias("value"))
    """
)


@pytest.mark.slow
def test_two_workers_read_a_topic_write_it_back_and_run_a_pipeline(store, environment, tmp_path):
    require("spark")
    topic = store.create_topic("orders", partitions=2, segment_bytes="64KiB", sync="os")
    for begin in range(0, ROWS, 1000):
        topic.write_many([b"%d" % n for n in range(begin, begin + 1000)])
    copies, halves = store.create_topic("copies", partitions=3), store.create_topic("halves")
    (tmp_path / "halves.py").write_text(PIPELINE)
    path = environment["PYTHONPATH"]

    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command], env=environment, cwd=ROOT, capture_output=True, text=True,
            timeout=400,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-5000:]
        return done.stdout

    with standalone(environment, tmp_path) as master:
        assert run("-c", COPY, store.path, master, HOSTS[0], path).split() == list(HOSTS)
        settings = {
            "spark.executor.memory": "512m", "spark.driver.host": HOSTS[0],
            "spark.driver.bindAddress": HOSTS[0], "spark.executorEnv.PYTHONPATH": path,
        }  # fmt: skip
        conf = [word for item in settings.items() for word in ("--conf", "=".join(item))]
        file = str(tmp_path / "halves.py")
        run("-m", "penstock", "run", file, "-s", store.path, "--once", "--master", master, *conf)
    assert numbers(copies) == list(range(ROWS))
    assert numbers(halves) == sorted(n // 2 for n in range(ROWS))
