"""kill -9 of `upsert` at any moment, forty times: the table is the latest of each key, nothing else."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.kit.pipelines import upsert

ROOT = Path(__file__).parents[2]
KILLS = 40


@pytest.mark.slow
def test_killed_forty_times_every_message_counts_once(store, table):
    source = random.Random(18)
    topic = store.create_topic("users", partitions=2)
    latest: dict[bytes, bytes | None] = {}
    killed = number = 0
    while killed < KILLS:
        for _ in range(40):
            keys = [f"k{source.randrange(60)}" for _ in range(20)]
            values = [None if source.random() < 0.2 else b"%d" % (number + n) for n in range(20)]
            topic.write_many(values, keys=keys)
            number += 20
            latest |= {key.encode(): value for key, value in zip(keys, values, strict=True)}
        killed += run_and_kill(store.path, table, source.uniform(0.0, 0.6))
    upsert(store, "users", table, engine="python")
    rows = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    assert len({row["key"] for row in rows}) == len(rows)
    assert {row["key"]: row["value"] for row in rows} == {k: v for k, v in latest.items() if v is not None}


def run_and_kill(store: str, table: Path, after_s: float) -> bool:
    """Whether it was killed before it was done."""
    words = [sys.executable, "-m", "tests.lake.upsert_driver", store, str(table)]
    with subprocess.Popen(
        words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "begun\n"
        time.sleep(after_s)
        child.send_signal(signal.SIGKILL)
        return "done" not in child.stdout.read()
