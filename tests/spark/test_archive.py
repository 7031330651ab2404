"""Archives on Spark: tasks write the table's files, the driver commits them."""

import datetime
import os
import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import polars
import pytest
from deltalake import DeltaTable

import penstock
from penstock.spark.pipelines.archive import archive
from tests.kit.pipelines import executors_module as executors
from tests.kit.slices import plan_module
from tests.kit.topics import inside
from tests.lake.rows import check_files, of_log, of_table
from tests.lake.test_archive import damage, write_all_kinds

ROOT = Path(__file__).parents[2]


def test_table_equals_log_and_the_source(spark, store, tmp_path):
    topic = store.create_topic("orders", partitions=3)
    write_all_kinds(topic)
    summary = archive(store.path, "orders", tmp_path / "t", spark=spark)
    assert of_table(tmp_path / "t") == of_log(topic)
    assert summary.rows == len(of_log(topic))
    columns = ["partition", "offset", "timestamp", "written_at", "key", "value", "headers", "codec", "seqno"]
    source = spark.read.format("penstock").options(topic="orders", columns="*").load(store.path)
    expected = sorted(tuple(row) for row in _plain(source.select(columns).toArrow(), columns))
    table = DeltaTable(tmp_path / "t").to_pyarrow_table(columns=columns)
    assert sorted(_plain(table, columns)) == expected


def _plain(table, columns) -> list[tuple]:
    return [tuple(str(row[name]) for name in columns) for row in table.select(columns).to_pylist()]


def test_a_topic_is_divided_among_tasks_and_stays_in_order(spark, store, tmp_path, monkeypatch):
    monkeypatch.setattr(plan_module, "TASK_BYTES_LEAST", 4096)
    topic = store.create_topic("orders", segment_bytes="16KiB")
    for _ in range(20):
        topic.write_many([os.urandom(200) for _ in range(20)])
    assert archive(store.path, "orders", tmp_path / "t", spark=spark, compact=False).files > 3
    assert of_table(tmp_path / "t") == of_log(topic)
    check_files(tmp_path / "t")


def test_an_error_of_a_task_is_told_as_what_it_is(spark, store, tmp_path):
    topic = store.create_topic("orders")
    topic.write_many([b"x" * 100] * 10)
    damage(inside(topic).log(0))
    with pytest.raises(penstock.Corrupt) as told:
        archive(store.path, "orders", tmp_path / "t", spark=spark)
    assert (told.value.partition, told.value.first) == (0, 0)
    assert "on_gap" in told.value.hint


def test_results_come_in_the_order_of_the_work(spark):
    assert executors.spread(spark, abs, [-3, 2, -1]) == [3, 2, 1]
    assert executors.spread(spark, abs, []) == []


def test_json_becomes_columns(spark, store, tmp_path):
    topic = store.create_topic("orders")
    topic.write_many(
        [
            b'{"id": 1, "paid": true, "items": [{"name": "x"}], "day": "2026-03-01"}',
            b"nonsense",
            None,
            b'{"id": 2}\n',
        ]
    )
    schema = "id long, paid boolean, items array<struct<name: string>>, day date"
    archive(store.path, "orders", tmp_path / "t", spark=spark, schema=schema)
    rows = DeltaTable(tmp_path / "t").to_pyarrow_table().sort_by("offset").to_pylist()
    assert [(row["offset"], row["id"], row["_raw"]) for row in rows] == [
        (0, 1, None), (1, None, b"nonsense"), (2, None, None), (3, 2, None),
    ]  # fmt: skip
    assert rows[0]["items"] == [{"name": "x"}]
    assert rows[0]["day"] == datetime.date(2026, 3, 1)

    topic.write(b'{"id": 3, "shop": {"city": "Oslo"}}')
    archive(store.path, "orders", tmp_path / "t", spark=spark, schema=f"{schema}, shop struct<city: string>")
    last = polars.read_delta(str(tmp_path / "t")).sort("offset").row(-1, named=True)
    assert (last["id"], last["shop"]) == (3, {"city": "Oslo"})
    (tmp_path / "schema.ddl").write_text("id long, paid string")
    with pytest.raises(
        penstock.InvalidOption, match=r"'paid' is bool in the table, and string in the schema"
    ):
        archive(store.path, "orders", tmp_path / "t", spark=spark, schema=tmp_path / "schema.ddl")
    with pytest.raises(penstock.NotAnArchive):
        archive(store.path, "orders", tmp_path / "t", spark=spark)
    topic.write(b'{"id": 4}')  # fewer columns than the table has: the others are null
    archive(store.path, "orders", tmp_path / "t", spark=spark, schema="id long")
    dataset = DeltaTable(tmp_path / "t").to_pyarrow_dataset()
    with duckdb.connect() as database:
        rows = database.register("orders", dataset).sql("select sum(id), count(shop), count(*) from orders")
        assert rows.fetchall() == [(10, 1, 6)]


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("id", "not understood"),
        ("", "empty"),
        ("offset long", "'offset'"),
        ("ID long, id int", "twice"),
        ("tags map<string, string>", "'tags' cannot be map"),
        ("a struct<b: binary>", "'a.b' cannot be binary"),
    ],
)
def test_a_schema_that_cannot_be_is_refused(spark, store, tmp_path, schema, told):
    store.create_topic("orders")
    with pytest.raises(penstock.InvalidOption, match=told):
        archive(store.path, "orders", tmp_path / "t", spark=spark, schema=schema)
    assert not (tmp_path / "t").exists()


_DYING = """
import os, signal, sys
from penstock.lake import parquet_files as writing
from penstock.spark.pipelines import archive as module, archive_tasks

inner = module._Loop._spread
def spread(self, function, work):
    made = inner(self, function, work)
    os.killpg(0, signal.SIGKILL)
module._Loop._spread = spread
module.archive(sys.argv[1], "orders", sys.argv[2], master="local[2]")
"""


@pytest.mark.slow
def test_killed_driver_and_jvm_between_job_and_commit(spark, store, tmp_path):
    """kill -9 of the driver and its JVM when the tasks are done: their files do not count."""
    topic = store.create_topic("orders", partitions=2)
    for number in (0, 1):
        topic.write_many([b"%d" % n for n in range(5000)], partition=number)
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with subprocess.Popen(
        [sys.executable, "-c", _DYING, store.path, str(tmp_path / "t")], cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path}, start_new_session=True,
    ) as child:  # fmt: skip
        assert child.wait(250) == -signal.SIGKILL
    assert of_table(tmp_path / "t") == []
    assert len(list((tmp_path / "t").glob("*/*.parquet"))) == 2
    archive(store.path, "orders", tmp_path / "t", spark=spark)
    assert of_table(tmp_path / "t") == of_log(topic)
