"""A million messages imported once, with kill -9 in the middle: nothing lost or twice, in bounded memory."""

import pyarrow as pa
import pytest
from pyarrow import parquet

import penstock
from tests.exchange.killed_import import run_until_killed

COUNT = 1_000_000
MEMORY = 1 << 30
#: Writes until it is killed, and more than an import makes.
SOME, ALL = 40, 1 << 30

pytestmark = pytest.mark.slow


def kill_in_the_middle(kind, path, store):
    assert run_until_killed("million", kind, store, path, MEMORY, SOME, patience_s=300)
    with penstock.open(store) as opened:
        assert COUNT // 20 < sum(each.end for each in opened.topic("t").stats().partitions) < COUNT


def import_the_rest(kind, path, store):
    assert not run_until_killed("million", kind, store, path, MEMORY, ALL, patience_s=300)


def test_a_million_from_a_diskq_folder(tmp_path):  # S004-15
    folder, store = tmp_path / "diskq", tmp_path / "store"
    with penstock.open(tmp_path / "source") as source:
        topic = source.create_topic("t", partitions=3, partitioner="diskq", sync="os")
        for begin in range(0, COUNT, 10_000):
            numbers = range(begin, begin + 10_000)
            topic.write_many(
                [b"value %d" % n for n in numbers], keys=[b"%d" % n for n in numbers], timestamps=numbers
            )
        topic.export_diskq(folder)
    kill_in_the_middle("diskq", folder, store)
    import_the_rest("diskq", folder, store)
    with penstock.open(store) as opened:
        found = opened.topic("t").scan().to_arrow()
        assert sorted(map(int, found["key"].to_pylist())) == list(range(COUNT))
        with penstock.open(tmp_path / "source") as source:
            columns = ["partition", "offset", "key", "value", "timestamp"]
            assert source.topic("t").scan().to_arrow().select(columns) == found.select(columns)


def test_a_million_from_a_parquet_file(tmp_path):  # S001-47
    path, store = tmp_path / "rows.parquet", tmp_path / "store"
    numbers = pa.array(range(COUNT)).cast(pa.string())
    parquet.write_table(pa.table({"n": numbers, "v": numbers}), path, row_group_size=50_000)
    with penstock.open(store) as opened:
        opened.create_topic("t", partitions=2)
    kill_in_the_middle("parquet", path, store)
    import_the_rest("parquet", path, store)
    with penstock.open(store) as opened:
        found = opened.topic("t").scan().to_arrow()
    assert sorted(map(int, found["key"].to_pylist())) == list(range(COUNT))
    assert found["key"].combine_chunks() == found["value"].combine_chunks()
