"""`option("history", TABLE)` in a real session: rows are those of the whole log, wherever the cut falls."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as f

from penstock.spark import read
from tests.kit.archives import open_archive, storage
from tests.lake.archived_topic import Kept, compacted, make, opened
from tests.spark.test_stream import Stream


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make(tmp_path_factory.mktemp("past"))


@pytest.fixture
def past(made, tmp_path) -> Iterator[Kept]:
    with opened(made, tmp_path) as kept:
        yield kept


TIMES = ("timestamp", "written_at")


def everything(past: Kept) -> list[tuple]:
    """All rows, in order, with times as microseconds."""
    rows = past.rows
    for name in TIMES:
        rows = rows.set_column(rows.schema.get_field_index(name), name, rows[name].cast(pa.int64()))
    return [_plain(row.values()) for row in rows.to_pylist()]


def collected(frame) -> list[tuple]:
    micros = {name: f.unix_micros(name) for name in TIMES}
    return [_plain(row) for row in frame.withColumns(micros).orderBy("partition", "offset").collect()]


def _plain(values) -> tuple:
    return tuple(
        {name: bytes(value) for name, value in dict(each).items()} if isinstance(each, (list, dict))
        else bytes(each) if isinstance(each, bytearray)
        else each
        for each in values
    )  # fmt: skip


def test_batch_with_all_columns_filters_and_a_moving_cut(spark, past):
    def load(table: Path, **options: str):
        reader = spark.read.format("penstock").options(topic="orders", history=str(table), **options)
        return reader.load(past.store.path)

    whole = everything(past)
    past.trim(4)
    assert collected(load(past.table(4), columns="*")) == whole
    past.trim(9)
    assert collected(load(past.table(12), columns="*", minPartitions="8")) == whole
    written = past.rows["written_at"][20].as_py()
    condition = f"offset >= 3 and offset < 11 and written_at >= timestamp '{written.isoformat(' ')}'"
    options = {"history": str(past.table(12))}
    chosen = read(spark, past.store.path, "orders", where=condition, columns="*", **options)
    assert collected(chosen) == [
        row
        for row, at in zip(whole, past.rows["written_at"].to_pylist(), strict=True)
        if 3 <= row[2] < 11 and at >= written
    ]


def test_what_is_wrong_is_told_when_it_is_loaded(spark, past):
    reader = spark.read.format("penstock").option("topic", "orders")
    with pytest.raises(Exception, match="there is nothing at /no/such/table"):
        reader.option("history", "/no/such/table").load(past.store.path)
    past.trim(8)
    with pytest.raises(Exception, match="lake-03 does not have it: 'orders' partition 0, offsets 3 to 7"):
        reader.option("history", str(past.table(3))).load(past.store.path).count()


@pytest.mark.slow
def test_stream_whose_batch_is_run_again_after_the_cut_moved(spark, past, tmp_path):
    """As if Spark had died before its own commit: retention, compaction and vacuum happen meanwhile."""
    stream = Stream(spark, past.store, tmp_path)
    options = {"history": str(past.growing), "maxOffsetsPerTrigger": "10"}
    past.trim(2)
    assert stream.run(**options) == [10, 10, 10, 6]
    assert stream.rows() == [(n, at) for n in range(3) for at in range(12)]
    stands = json.loads((tmp_path / "checkpoint" / "offsets" / "2").read_text().splitlines()[-1])
    last = [(n, at) for n in range(3) for at in range(stands["topics"]["orders"]["next"][str(n)], 12)]
    for name in ("3", ".3.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    past.trim(12)
    compacted(past.growing)
    open_archive(storage(past.growing)).vacuum(0)
    past.topic.write(b"new", partition=1)
    (tmp_path / "out").rename(tmp_path / "before")
    assert stream.run(**options) == [6, 1]
    written = [pq.read_table(file) for file in (tmp_path / "out").glob("*.parquet")]
    again = [
        tuple(row.values()) for each in written for row in each.select(["partition", "offset"]).to_pylist()
    ]
    assert sorted(again) == sorted([*last, (1, 12)])
