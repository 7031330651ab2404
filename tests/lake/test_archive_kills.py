"""kill -9 at each step of the archive loop: run again, the table equals the log."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.archives import open_archive, storage
from tests.kit.patience import PATIENCE_S
from tests.lake.killed_archive import POINTS
from tests.lake.rows import check_files, of_log, of_table

ROOT = Path(__file__).parents[2]


def killed(store, table: Path, point: str, times: int) -> None:
    """Archive in another process until it kills itself."""
    arguments = {"store": store.path, "into": str(table), "point": point, "times": times}
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    child = subprocess.run(
        [sys.executable, "-m", "tests.lake.killed_archive", json.dumps(arguments)], cwd=ROOT, check=False,
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert child.returncode == -signal.SIGKILL, child.stderr


QUICK = ("writing", "written", "committed", "merged")


@pytest.mark.parametrize(
    "point", [each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in POINTS]
)
def test_killed_at_any_step_nothing_is_lost_or_doubled(store, run, table, point):
    topic = store.create_topic("orders", partitions=2)
    for n in range(24):
        topic.write_many([f"{n}-{m}".encode() * 8 for m in range(20)], keys=[f"{m}" for m in range(20)])
    times = {"table made": 1, "merging": 2, "merged": 1, "replaced": 1}.get(point, 3)
    killed(store, table, point, times)
    assert store.pipeline("archive-orders-orders").state == "killed"
    rows = of_table(table)
    assert all(row in of_log(topic) for row in rows)
    topic.write_many([b"later"] * 5)
    run()
    assert of_table(table) == of_log(topic)
    check_files(table)
    live = {each.path for each in open_archive(storage(table)).files()}
    open_archive(storage(table)).vacuum(0)
    assert {str(path.relative_to(table)) for path in table.glob("*/*.parquet")} == live
    assert of_table(table) == of_log(topic)
