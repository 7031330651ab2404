"""Bodies in S3, read and swept by Spark's tasks; a driver of its own, whose workers have the credentials."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.spark import session
from penstock.spark.pipelines.sweep import sweep
from tests.kit.spark_settings import SETTINGS
from tests.payloads.kit import objects
from tests.payloads.sweep_scene import check_found, check_kept, scene
from tests.s3 import s3_server

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_sources_and_sweep(tmp_path):
    with s3_server() as server:
        environment = {**os.environ, **server.options, "PYTHONPATH": str(ROOT)}
        said = tmp_path / "driver.txt"
        with said.open(
            "wb"
        ) as file:  # not a pipe: Spark's workers outlive the driver for a while, and hold it
            done = subprocess.run(
                [sys.executable, "-m", "tests.spark.test_payloads_s3", str(tmp_path), server.table()],
                cwd=ROOT, env=environment, stdout=file, stderr=file, timeout=500, check=False,
            )  # fmt: skip
    assert done.returncode == 0, said.read_text()[-4000:]


def main(parent: str, place: str) -> None:
    folder = str(Path(parent, "data"))
    spark = session("local[2]", **SETTINGS)
    with penstock.open(folder) as store:
        there = scene(store, place)
        source = spark.read.format("penstock").option("topic", "images")
        rows = source.option("columns", "partition,offset,value,reference").option("onDecodeError", "null")
        found = {(row.partition, row.offset): row for row in rows.load(folder).collect()}
        for message in there.topic.scan().messages():
            row = found[message.partition, message.offset]
            if (message.partition, message.offset) == there.loss[:2]:
                assert row.value is None
                assert row.reference.name == there.loss[2]
            else:
                assert row.value == message.value
        told = source.option("payload", "reference").load(folder).collect()
        names = {json.loads(bytes(row.value))["name"] for row in told if (row.value or b"").startswith(b"{")}
        assert names == there.sound | {there.partly_dead, there.loss[2]}
        listed = spark.read.format("penstock").options(view="payloads", topic="images").load(folder).collect()
        assert sorted(row.name for row in listed) == objects(there.topic)
        assert all(row.path.startswith(f"{place}/{store.id}/") for row in listed)
        done = sweep(store, "images", engine="spark", spark=spark, grace="0s", apply=True)
        check_found(there, done)
        check_kept(there)


if __name__ == "__main__":
    main(*sys.argv[1:])
