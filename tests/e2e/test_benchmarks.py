"""`python -m benchmarks` says what it measured and leaves nothing behind. How fast is not asked here.

Figures become a page by `benchmarks.report`; `benchmarks.gate` compares with a commit, and has a canary.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import report
from tests.kit.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
STATUSES = {"ok", "short", "info", "skipped", "failed"}


# What every run must be able to tell of writing, handling, queues and waiting messages.
EXPECTED = {
    "write": "str-key str-value headers-same headers-equal headers-differ timestamp partitions typed "
    "many-str many-partitions table table-ipc numbered str-to-bytes narrow narrow-many narrow-disk one",
    "read": "batches iterate to-arrow usual commit-each unsealed",
    "handle": "process process-4 typed",
    "queue": "one process",
    "wait": "write retry write-disk writer",
}

# Makes one call slow without changing what it does.
CANARY = """
from penstock.store import Topic

_quick = Topic.write_many


def _slow(self, *values, **options):
    for _ in range(30_000_000):
        pass
    return _quick(self, *values, **options)


Topic.write_many = _slow
"""


def bench(*words: str, module: str = "benchmarks", folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
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
    assert set(found) == {"date", "commit", "machine", "sizes", "seconds", "rows"}
    assert {"cpu", "kernel", "python", "penstock"} <= set(found["machine"])
    assert [row["name"] for row in found["rows"]] == ["import", "lookup"]
    lookup = found["rows"][1]
    assert lookup["status"] in STATUSES
    assert lookup["target"] == {"on": "ratio", "sign": "≥", "bound": 0.7}
    assert len(lookup["ours"]["samples"]) == len(lookup["peer"]["samples"]) == 2
    assert len(lookup["ours"]["processor"]) == len(lookup["peer"]["processor"]) == 2
    assert lookup["ratio_processor"] > 0
    assert lookup["ratio"] == lookup["ours"]["median"] / lookup["peer"]["median"]
    assert list(data.iterdir()) == []


def test_subjects_are_listed_and_unknown_ones_refused():
    assert "latency" in bench("--list").stdout

    refused = bench("--only", "nonsense")

    assert refused.returncode == 2
    assert "nonsense" in refused.stderr


@pytest.mark.slow
def test_the_rows_that_users_ask_for_are_measured(tmp_path):
    file = tmp_path / "found.json"

    done = bench(
        "--messages", "1000", "--repeat", "1", "--only", *EXPECTED,
        "--json", str(file), "--dir", str(tmp_path),
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(file.read_text(encoding="utf-8"))["rows"]}
    expected = {f"{subject}/{name}" for subject, names in EXPECTED.items() for name in names.split()}
    assert expected <= set(rows)
    assert [name for name in expected if rows[name]["ratio"] is None] == []


def test_figures_become_a_page_and_a_picture_and_leave_the_rest_of_the_page(tmp_path):
    file, page = tmp_path / "found.json", tmp_path / "README.md"
    page.write_text(f"# Title\n\n{report.BEGIN}\nold\n{report.END}\n\n## Method\n", encoding="utf-8")
    shutil.copy(report.LATEST, file)

    done = bench(str(file), "--folder", str(tmp_path), module="benchmarks.report")

    assert done.returncode == 0, done.stderr
    written = page.read_text(encoding="utf-8")
    found = json.loads(file.read_text(encoding="utf-8"))
    assert written.startswith("# Title\n")
    assert written.endswith("## Method\n")
    assert "old" not in written.split("## Results")[0]
    assert found["date"][:10] in written
    assert found["commit"] in written
    assert all(row["name"] in written for row in found["rows"])
    picture = ElementTree.parse(tmp_path / "summary.svg").getroot()
    assert picture.tag.endswith("svg")
    assert any("Write a thousand" in (text.text or "") for text in picture.iter())


def test_a_report_of_no_run_says_what_to_do(tmp_path):
    done = bench(str(tmp_path / "none.json"), module="benchmarks.report")

    assert done.returncode == 2
    assert "make bench" in done.stderr


def test_the_page_in_the_repository_is_that_of_the_latest_run():
    found = json.loads(report.LATEST.read_text(encoding="utf-8"))
    text, picture = report.figures(found)

    page = (report.HERE / "README.md").read_text(encoding="utf-8")

    assert page == report.replaced(page, text), "run `make bench-report`"
    assert (report.HERE / "summary.svg").read_text(encoding="utf-8") == picture, "run `make bench-report`"


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A repository of its own with the package and the benchmarks, all of it committed."""
    if shutil.which("git") is None:
        pytest.skip("no git")
    folder = tmp_path / "checkout"
    for part in ("penstock", "benchmarks"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    me = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    for words in (["init", "--quiet"], ["add", "--all"], [*me, "commit", "--quiet", "--message", "all"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


def gate(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The gate in its smallest form; tenfold is what it takes to fail, and no noise does that."""
    small = ["--rows", "many", "--turns", "1", "--messages", "1000", "--bound", "0.9"]
    return bench(*words, *small, module="benchmarks.gate", folder=checkout)


def test_the_gate_passes_what_is_as_quick_as_before_and_stops_what_is_not(checkout):
    same = gate(checkout, "HEAD")

    assert same.returncode == 0, same.stdout + same.stderr
    assert "ok" in same.stdout

    with open(checkout / "penstock" / "__init__.py", "a", encoding="utf-8") as file:
        file.write(CANARY)
    slower = gate(checkout, "HEAD")

    assert slower.returncode == 1, slower.stdout + slower.stderr
    assert "SLOWER" in slower.stdout
    assert sorted(path.name for path in checkout.iterdir()) == [".git", "benchmarks", "penstock"]
    worktrees = subprocess.run(["git", "worktree", "list"], cwd=checkout, capture_output=True, text=True)
    assert len(worktrees.stdout.splitlines()) == 1


def test_the_gate_refuses_a_commit_that_is_not_there(checkout):
    refused = gate(checkout, "nonsense")

    assert refused.returncode == 2
    assert "nonsense" in refused.stderr
