"""Executors in JVMs of their own, on one host and on two: a topic is written and read."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.require import require
from tests.spark.sink_cluster_driver import ROWS, TASKS
from tests.spark.standalone import HOSTS, environment, standalone
from tests.spark.streams import numbers, staged_files

ROOT = Path(__file__).parents[2]
__all__ = ["environment"]  # a fixture
pytestmark = pytest.mark.slow


@pytest.fixture
def topic(store):
    require("spark")
    return store.create_topic("orders", partitions=3)


def run(environment, store, tmp_path: Path, master: str, *, slow_s: float = 0, **conf: str) -> list[int]:
    """Run the driver; what it counted: all, different ones, the least, the greatest."""
    (tmp_path / "attempts").mkdir()
    settings = {
        "spark.executor.memory": "512m", "spark.executorEnv.PYTHONPATH": environment["PYTHONPATH"], **conf,
    }  # fmt: skip
    arguments = {
        "master": master, "store": store.path, "folder": str(tmp_path / "attempts"), "slow_s": slow_s,
        "conf": settings,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.sink_cluster_driver", json.dumps(arguments)], cwd=ROOT,
        env=environment, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-5000:]
    return json.loads(done.stdout.splitlines()[-1])


def attempts(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "attempts").iterdir())


def test_local_cluster_writes_and_reads(store, topic, environment, tmp_path):
    found = run(environment, store, tmp_path, "local-cluster[2,1,1024]")
    assert found == [ROWS, ROWS, 0, ROWS - 1]
    assert numbers(topic) == list(range(ROWS))


def test_speculation_on_two_workers_counts_each_row_once(store, topic, environment, tmp_path):
    """A standalone master and two workers; the slow attempt is overtaken by one on the other host."""
    with standalone(environment, tmp_path) as master:
        found = run(
            environment, store, tmp_path, master, slow_s=120,
            **{
                "spark.driver.host": HOSTS[0], "spark.driver.bindAddress": HOSTS[0],
                "spark.ui.enabled": "false",
                "spark.speculation": "true", "spark.speculation.interval": "100ms",
                "spark.speculation.multiplier": "1.1", "spark.speculation.quantile": "0.5",
            },
        )  # fmt: skip
    assert found == [ROWS, ROWS, 0, ROWS - 1]
    assert numbers(topic) == list(range(ROWS))
    by_attempt = {name.rsplit("-", 1)[0]: name.rsplit("-", 1)[1] for name in attempts(tmp_path)}
    last = TASKS - 1
    assert by_attempt[f"{last}-1"] != by_attempt[f"{last}-0"]
    assert len(staged_files(store)) <= 1  # of the attempt that was too late, until a vacuum a day later
