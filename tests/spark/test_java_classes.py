"""Spark's Java classes kept ready (18.10): used when whole and of this Java, made by a rehearsal."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from tests.kit.pipelines import java_classes
from tests.require import require


@pytest.fixture
def environment(tmp_path) -> dict[str, str]:
    require("java")
    return {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}


def kept(environment: dict[str, str], size: int, said: int | None = None) -> Path:
    """A file as `prepare` leaves it, which is `size` bytes and says that it is `said`."""
    folder = Path(environment["XDG_CACHE_HOME"], "penstock")
    folder.mkdir(exist_ok=True)
    name = f"spark-{java_classes.signature(environment)}-{size if said is None else said}.jsa"
    path = folder / name
    path.write_bytes(bytes(size))
    return path


def test_without_a_file_java_is_told_nothing(environment):
    assert java_classes.java_options(environment) == ""


def test_a_whole_file_is_used(environment):
    path = kept(environment, 10)
    assert java_classes.java_options(environment).startswith(f"-XX:SharedArchiveFile={path} ")


def test_one_that_was_cut_short_is_not_used(environment):
    """Java dies of it."""
    kept(environment, 10, said=11)
    assert java_classes.java_options(environment) == ""


def test_one_of_another_java_or_pyspark_is_not_used(environment, monkeypatch):
    kept(environment, 10)
    monkeypatch.setattr("pyspark.__version__", "0.0")
    assert java_classes.find_classes(environment) is None


def test_forget_removes_them_all(environment):
    path = kept(environment, 10)
    kept(environment, 10, said=11)
    assert java_classes.forget(environment) == 2
    assert not path.exists()


def test_a_rehearsal_that_fails_says_so_and_leaves_what_was_there(environment, monkeypatch):
    path = kept(environment, 10)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(penstock.Unavailable, match="rehearsal"):
        java_classes.prepare(environment)
    assert list(path.parent.glob("spark-*")) == [path]


@pytest.mark.slow
def test_a_prepared_session_maps_the_file_and_says_nothing_of_it(environment):
    path = java_classes.prepare(environment)
    script = """
from penstock.spark import session
spark = session("local[1]")
java = spark.sparkContext._gateway.proc.pid
print(open(f"/proc/{java}/maps").read().count(".jsa"), spark.range(3).count())
"""
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    mapped, count = map(int, done.stdout.split())
    assert (mapped > 0, count, path.exists()) == (True, 3, True)
    assert "cds" not in done.stderr
