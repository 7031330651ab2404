"""Drivers that die or come too late: whatever the moment, every row is in the topic once."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.kit.patience import PATIENCE_S
from tests.spark.sink_driver import POINTS
from tests.spark.streams import Stream, numbers, staged_files

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture
def topic(store):
    return store.create_topic("orders", partitions=3)


@pytest.fixture
def stream(spark, store, topic, tmp_path) -> Stream:
    return Stream(spark, store, tmp_path)


def driver(stream: Stream, store, point: str, wait_for: str = "") -> subprocess.Popen:
    """Another driver from the same checkpoint, in a process group with its JVM."""
    arguments = {
        "store": store.path, "files": str(stream.input), "checkpoint": str(stream.checkpoint()),
        "point": point, "wait_for": wait_for,
    }  # fmt: skip
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        [sys.executable, "-m", "tests.spark.sink_driver", json.dumps(arguments)], cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


@pytest.mark.parametrize("point", POINTS)
def test_killed_driver_and_jvm_leave_nothing_twice_and_nothing_out(store, topic, stream, point):
    """kill -9 while tasks stage, before the commit, right behind its record, and before Spark notes it."""
    stream.add(3)
    with driver(stream, store, point) as killed:
        killed.communicate(timeout=500)
    assert killed.returncode == -signal.SIGKILL
    assert stream.batches() == [0]
    assert numbers(topic)[:40] == stream.all[:40]
    stream.run()
    assert numbers(topic) == stream.all
    assert stream.batches() == [0, 1, 2]


def test_stale_driver_loses_loudly(store, topic, stream, tmp_path):
    """One stops before its commit, another goes on from the same checkpoint, then the first wakes."""
    stream.add(3)
    go = tmp_path / "go"
    with driver(stream, store, "waiting", str(go)) as stale:
        try:
            deadline = time.monotonic() + 400
            while not Path(f"{go}.reached").exists() and time.monotonic() < deadline:
                assert stale.poll() is None, stale.communicate()[1][-3000:]
                time.sleep(0.2)
            stream.run()
            assert numbers(topic) == stream.all
            go.touch()
            _, told = stale.communicate(timeout=PATIENCE_S)
        finally:
            if stale.poll() is None:
                os.killpg(stale.pid, signal.SIGKILL)
    assert stale.returncode == 1
    assert "batch 1 of query" in told
    assert "another driver runs from the same checkpoint" in told
    assert numbers(topic) == stream.all
    assert not staged_files(store)
