"""`make demo`, with small numbers."""

import importlib.util
import os
import re
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

import penstock
from penstock.spark.java import find_java
from tests.require import require

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", str(DEMO), *arguments],
        capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip


@pytest.mark.spark
def test_demo_loses_nothing_and_repeats_nothing():
    require("spark", find_spec("pyspark") is not None, "PySpark is not installed")
    try:
        find_java(os.environ)
    except penstock.MissingExtra as error:
        require("java", False, str(error))
    done = run("--messages", "400")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kill -9 writer 2" in done.stdout
    assert "writer 2 came back" in done.stdout
    assert "0 lost, 0 twice" in done.stdout
    counts = dict(
        re.findall(r"^  (stored|read by \w+|counted by Spark) +([\d,]+)$", done.stdout, re.MULTILINE)
    )
    assert counts == dict.fromkeys(
        ("stored", "read by billing", "read by shipping", "counted by Spark"), "1,605"
    )


def test_store_is_kept_when_asked_for(tmp_path):
    done = run("--messages", "200", "--no-spark", "--keep", str(tmp_path / "kept"))
    assert done.returncode == 0, done.stdout + done.stderr
    with penstock.open(tmp_path / "kept", read_only=True) as store:
        assert store.topic("orders").stats().messages == 805
    again = run("--keep", str(tmp_path / "kept"))
    assert again.returncode == 2
    assert "is there already" in again.stderr


@pytest.fixture
def demo():
    spec = importlib.util.spec_from_file_location("demo", DEMO)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("change", "sound"),
    [
        (lambda stored: None, True),
        (lambda stored: stored.pop("1 n 7"), False),
        (lambda stored: stored.update(["1 n 7"]), False),
    ],
    ids=["sound", "lost", "twice"],
)
def test_canary_the_demo_notices_what_is_lost_or_there_twice(demo, tmp_path, capsys, change, sound):
    show = demo.Demo(str(tmp_path), 10, spark=False)
    stored = Counter(f"{writer} {kind} {n}" for writer in range(4) for kind, n in
                     [("hello", 1), *(("n", n) for n in range(1, 11))])  # fmt: skip
    for number in range(4):
        show._lives[number] = [SimpleNamespace(facts={"resumed": 0, "acknowledged": 10})]
    followers = {"billing": SimpleNamespace(facts={"read": 44, "distinct": 44, "disorder": 0})}
    change(stored)
    assert show._sum_up(stored, followers, None) is sound
    assert ("0 lost, 0 twice" in capsys.readouterr().out) is sound
