"""`penstock.spark.register`: topics in a session that somebody else made (18.5)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.spark import register, session
from tests.kit.pipelines import refuse_wrong_python

HERE = Path(__file__).parent


def plain_environment(tmp_path: Path) -> dict[str, str]:
    """As cron, systemd or an IDE have it: the virtual environment is not activated."""
    folders = os.environ["PATH"].split(os.pathsep)
    outside = [each for each in folders if Path(each) != Path(sys.executable).parent]
    kept = {name: os.environ[name] for name in ("JAVA_HOME", "HOME", "LANG") if name in os.environ}
    return {**kept, "PATH": os.pathsep.join(outside), "TMPDIR": str(tmp_path), "SPARK_LOCAL_IP": "127.0.0.1"}


@pytest.mark.slow
def test_a_newcomers_script_runs_by_absolute_path_from_another_folder(tmp_path):
    script = HERE / "newcomer.py"
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "data")], cwd=tmp_path, env=plain_environment(tmp_path),
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "[('k0', 34), ('k1', 33), ('k2', 33)]"


def test_registering_twice_and_in_our_own_session_does_no_harm(spark, store):
    topic = store.create_topic("orders")
    topic.write_many([b"x"] * 5)
    assert register(register(spark)) is spark
    assert spark.read.format("penstock").option("topic", "orders").load(store.path).count() == 5


def test_a_python_without_penstock_is_named(tmp_path):
    wrong = tmp_path / "python3"
    wrong.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'penstock'\" >&2\nexit 1\n")
    wrong.chmod(0o755)
    told = f"{wrong}, which cannot read topics: ModuleNotFoundError.*PYSPARK_PYTHON.*{sys.executable}"
    with pytest.raises(penstock.UsageError, match=told):
        refuse_wrong_python(str(wrong))
    with pytest.raises(penstock.UsageError, match="is not there"):
        refuse_wrong_python(str(tmp_path / "nothing"))
    refuse_wrong_python(sys.executable)


def test_a_session_of_ours_names_the_wrong_python_before_java_starts(tmp_path, monkeypatch):
    """It began, and the first read ended with "Failed to find the data source" and a page of Java."""
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "nothing"))
    with pytest.raises(penstock.UsageError, match=r"nothing, which cannot read topics.*PYSPARK_PYTHON"):
        session()
