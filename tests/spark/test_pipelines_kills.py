"""kill -9 of driver and JVM before and after the commit: run again, nothing is lost and nothing twice."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.spark.pipelines.archive import archive
from penstock.spark.pipelines.compact import compact
from penstock.spark.pipelines.dedup import dedup
from penstock.spark.pipelines.replay_table import replay_table
from tests.spark.pipeline_driver import POINTS

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def killed(store: penstock.Store, job: str, point: str, table: str = "") -> None:
    arguments = json.dumps({"store": store.path, "job": job, "point": point, "table": table})
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    said = Path(store.path, "driver.txt")
    with said.open("wb") as file:  # not a pipe: Spark's workers outlive the driver for a while, and hold it
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.pipeline_driver", arguments], cwd=ROOT, timeout=500,
            env={**os.environ, "PYTHONPATH": path}, stdout=file, stderr=file, start_new_session=True,
            check=False,
        )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, said.read_text()


@pytest.fixture
def topics(store):
    source, sink = store.create_topic("source", partitions=2), store.create_topic("sink", partitions=2)
    source.write_many([b"%d" % n for n in range(400)], keys=[b"k%d" % (n % 70) for n in range(400)])
    return source, sink


def content(topic) -> list[tuple]:
    return [(m.partition, m.key, m.value) for m in topic.scan().messages()]


@pytest.mark.parametrize("point", POINTS)
def test_compact(spark, store, topics, point):
    source, sink = topics
    killed(store, "compact", point)
    done = compact(store, "source", "sink", engine="spark", spark=spark)
    assert done.written == (70 if point == "before" else 0)
    latest = {m.key: m.value for m in source.scan().messages()}
    assert sorted(content(sink)) == sorted(each for each in content(source) if latest[each[1]] == each[2])


@pytest.mark.parametrize("point", POINTS)
def test_dedup(spark, store, topics, point):
    source, sink = topics
    killed(store, "dedup", point)
    dedup(store, "source", "sink", within="1h", once=True, spark=spark)
    first: dict[bytes, tuple] = {}
    for each in content(source):
        first.setdefault(each[1], each)
    assert content(sink) == list(first.values())


@pytest.mark.parametrize("point", POINTS)
def test_replay_of_a_table(spark, store, topics, tmp_path, point):
    source, sink = topics
    table = str(tmp_path / "table")
    archive(store.path, "source", table, spark=spark)
    killed(store, "replay", point, table)
    replay_table(store, table, "sink", spark=spark)
    assert content(sink) == content(source)
