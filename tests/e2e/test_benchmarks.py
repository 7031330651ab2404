"""`python -m benchmarks` says what it measured and leaves nothing behind. How fast is not asked here."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
STATUSES = {"ok", "short", "info", "skipped", "failed"}


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_a_tiny_run_prints_a_table_and_writes_json(tmp_path):
    data, file = tmp_path / "data", tmp_path / "found.json"
    data.mkdir()

    done = bench(
        "--quick", "--only", "import", "lookup", "--messages", "1000", "--repeat", "2",
        "--json", str(file), "--dir", str(data),
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert "topic.get(offset), at random" in done.stdout
    found = json.loads(file.read_text(encoding="utf-8"))
    assert set(found) == {"date", "machine", "sizes", "seconds", "rows"}
    assert {"cpu", "kernel", "python", "penstock"} <= set(found["machine"])
    assert [row["name"] for row in found["rows"]] == ["import", "lookup"]
    lookup = found["rows"][1]
    assert lookup["status"] in STATUSES
    assert lookup["target"] == {"on": "ratio", "sign": "≥", "bound": 0.7}
    assert len(lookup["ours"]["samples"]) == len(lookup["peer"]["samples"]) == 2
    assert lookup["ratio"] == lookup["ours"]["median"] / lookup["peer"]["median"]
    assert list(data.iterdir()) == []


def test_subjects_are_listed_and_unknown_ones_refused():
    assert "latency" in bench("--list").stdout

    refused = bench("--only", "nonsense")

    assert refused.returncode == 2
    assert "nonsense" in refused.stderr
