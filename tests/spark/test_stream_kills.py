"""kill -9 of driver and JVM at any moment of a stateful stream into a topic: exactly once (18)."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from penstock.spark import to_topic
from tests.spark.stream_driver import counts
from tests.spark.streams import stored

ROOT = Path(__file__).parents[2]
KILLS = 10
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_killed_ten_times_a_stateful_stream_writes_each_update_once(spark, store, tmp_path):
    source = random.Random(6)
    orders, sink = store.create_topic("orders"), store.create_topic("counts")
    checkpoint = str(tmp_path / "checkpoint")
    total: Counter[bytes] = Counter()
    for _ in range(KILLS):
        keys = [f"k{source.randrange(9)}" for _ in range(200)]
        orders.write_many([b"x"] * 200, keys=keys)
        total.update(key.encode() for key in keys)
        run_and_kill(store.path, checkpoint, source.uniform(0.5, 6.0))
    to_topic(
        counts(spark, store.path),
        store.path,
        "counts",
        output_mode="update",
        checkpoint=checkpoint,
        once=True,
    ).awaitTermination()
    seen: dict[bytes, list[int]] = {}
    for message in stored(sink):
        seen.setdefault(bytes(message.key), []).append(int(message.value))
    assert {key: values[-1] for key, values in seen.items()} == dict(total)
    for values in seen.values():  # a batch that was written twice would show the same count twice
        assert values == sorted(set(values))


def run_and_kill(store: str, checkpoint: str, after_s: float) -> None:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with subprocess.Popen(
        [sys.executable, "-m", "tests.spark.stream_driver", store, checkpoint], cwd=ROOT, text=True,
        env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        assert child.stdout.readline() == "begun\n"
        time.sleep(after_s)
        os.killpg(child.pid, signal.SIGKILL)
