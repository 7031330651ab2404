"""A standalone Spark master with two workers, on two addresses of this machine, from the pip package."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import penstock
from tests.kit.patience import PATIENCE_S
from tests.kit.pipelines import find_java
from tests.require import absent

ROOT = Path(__file__).parents[2]
HOSTS = ("127.0.0.1", "127.0.0.2")


@pytest.fixture
def environment() -> dict[str, str]:
    try:
        java = find_java(os.environ).home
    except penstock.MissingExtra as error:
        absent("java", str(error))
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    found = {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
    return found if java is None else {**found, "JAVA_HOME": java}


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
            process.wait(timeout=PATIENCE_S)


def _wait_for(log: Path, pattern: re.Pattern[str]) -> str:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        found = pattern.search(log.read_text())
        if found:
            return found.group()
        time.sleep(0.2)
    raise AssertionError(f"{pattern.pattern!r} did not come:\n{log.read_text()[-3000:]}")
