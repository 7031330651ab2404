"""The table is what readers of Delta expect: polars, DuckDB, pandas."""

import datetime
import subprocess
import sys

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import penstock
from penstock.testing import Clock

BEGIN = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)


@pytest.fixture
def archived(tmp_path, run, table):
    """Three days of orders in two partitions."""
    clock = Clock(BEGIN)
    with penstock.open(tmp_path / "data", clock=clock) as store:
        topic = store.create_topic("orders", partitions=2)
        for day in range(3):
            for number in (0, 1):
                topic.write_many(
                    [f"{day}-{n}" for n in range(10)], partition=number, headers=[{"a": "b"}] * 10
                )
            clock.advance("24h")
        topic.write(None, key="gone", partition=0)
        run()
    return str(table)


def test_polars(archived):
    orders = polars.scan_delta(archived)
    late = orders.filter((polars.col("partition") == 0) & (polars.col("offset") >= 25)).collect()
    assert sorted(late["offset"]) == [25, 26, 27, 28, 29, 30]
    assert late.sort("offset")["value"].to_list()[-1] is None
    days = orders.group_by("date").len().sort("date").collect()
    assert days["len"].to_list() == [20, 20, 20, 1]
    assert days["date"][0] == BEGIN.date()


def test_duckdb(archived):
    with duckdb.connect() as database:
        database.register("orders", DeltaTable(archived).to_pyarrow_dataset())
        found = database.sql(
            """select partition, count(*), max("offset"), min(written_at) from orders
            where date >= date '2026-03-02' group by partition order by partition"""
        ).fetchall()
    assert [row[:3] for row in found] == [(0, 21, 30), (1, 20, 29)]
    assert found[0][3] == BEGIN + datetime.timedelta(days=1)


def test_pandas(archived):
    frame = DeltaTable(archived).to_pandas(filters=[("partition", "=", 1)])
    assert len(frame) == 30
    assert set(frame["timestamp"].dt.tz_convert("UTC").dt.year) == {2026}
    assert dict(frame["headers"].iloc[0]) == {"a": b"b"}


def test_whole_files_are_left_out_by_their_statistics(archived):
    actions = polars.DataFrame(pa.table(DeltaTable(archived).get_add_actions(flatten=True)))
    assert actions["num_records"].sum() == 61
    assert (actions["min.partition"] == actions["max.partition"]).all()
    assert (actions["null_count.offset"] == 0).all()


def test_tasks_need_neither_the_store_nor_deltalake():
    program = (
        "import sys\n"
        "sys.modules['msgspec'] = sys.modules['deltalake'] = sys.modules['sqlite3'] = None\n"
        "import penstock.spark.executors, penstock.lake.json_columns\n"
        "import penstock.spark.pipelines.archive_tasks\n"
        "above = ('penstock.state', 'penstock.topic', 'penstock.consume', 'penstock.store')\n"
        "print([name for name in sys.modules if name.startswith(above)])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_without_deltalake_the_command_that_installs_it_is_told(store, run, monkeypatch):
    store.create_topic("orders")
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(penstock.MissingExtra, match=r'pip install "penstock\[arrow\]"'):
        run()
