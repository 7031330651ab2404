"""`make demo`, with small numbers."""

import importlib.util
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import penstock
from tests.kit.patience import PATIENCE_S
from tests.kit.pipelines import find_java
from tests.require import absent, require

DEMO = Path(__file__).parents[2] / "examples" / "demo"


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", str(DEMO), *arguments],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=folder,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.spark
def test_demo_loses_nothing_and_repeats_nothing(tmp_path):
    require("spark")
    try:
        find_java(os.environ)
    except penstock.MissingExtra as error:
        absent("java", str(error))
    done = run(tmp_path, "--orders", "400")
    assert done.returncode == 0, done.stdout + done.stderr
    for told in ("kill -9 shop 1", "shop 1 is back", "kill -9 the Spark driver", "DuckDB asks the lake"):
        assert told in done.stdout
    counted = re.findall(
        r"^  (acknowledged|stored|rolled|in the lake).* ([\d,]+)$", done.stdout, re.MULTILINE
    )
    assert counted == [(party, "1,200") for party in ("acknowledged", "stored", "in the lake", "rolled")]
    assert "0 lost, 0 twice" in done.stdout
    assert (tmp_path / "demo-orders.png").read_bytes().startswith(b"\x89PNG")


def test_everything_is_kept_when_asked_for(tmp_path):
    done = run(tmp_path, "--orders", "200", "--no-spark", "--keep", "kept")
    assert done.returncode == 0, done.stdout + done.stderr
    with penstock.open(tmp_path / "kept" / "data", read_only=True) as store:
        assert store.topic("orders").stats().messages == 600
    again = run(tmp_path, "--keep", "kept")
    assert again.returncode == 2
    assert "is there already" in again.stderr


@pytest.fixture
def audit():
    spec = importlib.util.spec_from_file_location("audit", DEMO / "audit.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["audit"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    yield module
    del sys.modules["audit"]


@pytest.mark.parametrize(
    ("change", "lost", "twice"),
    [
        (lambda stored, lake, sums: None, 0, 0),
        (lambda stored, lake, sums: (stored.pop((1, 7)), lake.pop((1, 7))), 1, 0),
        (lambda stored, lake, sums: stored.update([(1, 7)]), 0, 1),
        (lambda stored, lake, sums: lake.pop((1, 7)), 1, 0),
        (lambda stored, lake, sums: lake.update([(1, 7)]), 0, 1),
        (lambda stored, lake, sums: sums.update({"de": 5, "fr": -2}), 2, 5),
    ],
    ids=["sound", "lost", "twice", "not in the lake", "twice in the lake", "wrong sums"],
)
def test_canary_the_ledger_notices_what_is_lost_or_there_twice(audit, change, lost, twice):
    stored = Counter((shop, n) for shop in range(3) for n in range(1, 11))
    lake, sums = stored.copy(), Counter({"de": 20, "fr": 10})
    change(stored, lake, sums)
    ledger = audit.Ledger()
    ledger.acknowledged(dict.fromkeys(range(3), 10), stored)
    ledger.stored(stored)
    ledger.orders("in the lake", lake, stored)
    ledger.sums("rolled up", sums, {"de": 20, "fr": 10})
    assert (ledger.lost, ledger.twice) == (lost, twice)
    assert ledger.is_sound == (not lost and not twice)
