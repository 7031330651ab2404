"""Executors in JVMs of their own, on one host and on two: a topic is written and read."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

import penstock
from penstock.spark.java import find_java
from tests.require import require
from tests.spark.sink_cluster_driver import ROWS, TASKS
from tests.spark.streams import numbers, staged_files

ROOT = Path(__file__).parents[2]
HOSTS = ("127.0.0.1", "127.0.0.2")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def topic(store):
    require("spark", find_spec("pyspark") is not None, "PySpark is not installed")
    return store.create_topic("orders", partitions=3)


@pytest.fixture
def environment() -> dict[str, str]:
    try:
        java = find_java(os.environ).home
    except penstock.MissingExtra as error:
        require("java", False, str(error))
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    found = {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
    return found if java is None else {**found, "JAVA_HOME": java}


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


@contextmanager
def standalone(environment, tmp_path: Path) -> Iterator[str]:
    """A master and a worker on each host, for as long as it is needed; its address."""
    with ExitStack() as processes:
        log = processes.enter_context(_process(environment, tmp_path, "master", HOSTS[0], _MASTER))
        address = _wait_for(log, re.compile(r"spark://127\.0\.0\.1:\d+"))
        for host in HOSTS:
            worker = (*_WORKER, "--host", host, address)
            log = processes.enter_context(_process(environment, tmp_path, f"worker-{host}", host, worker))
            _wait_for(log, re.compile("Successfully registered with master"))
        yield address


_MASTER = ("master.Master", "--host", HOSTS[0], "--port", "0", "--webui-port", "0")
_WORKER = ("worker.Worker", "--cores", "1", "--memory", "600m", "--webui-port", "0")


@contextmanager
def _process(environment, tmp_path: Path, name: str, host: str, command: tuple[str, ...]) -> Iterator[Path]:
    import pyspark

    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    log = tmp_path / f"{name}.log"
    kind, *rest = command
    with log.open("w") as out:
        process = subprocess.Popen(
            [str(program), f"org.apache.spark.deploy.{kind}", *rest], stdout=out, stderr=out,
            env={**environment, "SPARK_LOCAL_IP": host, "SPARK_WORKER_DIR": str(tmp_path / name)},
            start_new_session=True,
        )  # fmt: skip
        try:
            yield log
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(timeout=60)


def _wait_for(log: Path, pattern: re.Pattern[str]) -> str:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        found = pattern.search(log.read_text())
        if found:
            return found.group()
        time.sleep(0.2)
    raise AssertionError(f"{pattern.pattern!r} did not come:\n{log.read_text()[-3000:]}")
