"""Rollup: windows into a topic once they are over, into a table and a picture at once."""

import json
from datetime import UTC, datetime

import pytest

import penstock
from penstock.spark.pipelines.rollup import rollup
from tests.e2e.command import Command
from tests.require import module

SECOND = 1_000_000_000
BEGIN = 1_700_000_040 * SECOND  # a whole minute
COUNTRY = "get_json_object(text, '$.country')"


def fill(topic, minutes: range) -> None:
    """Each minute: 4 from de, 2 from us, 1 that is no JSON."""
    for minute in minutes:
        rows = [("de", 10), ("de", 20), ("us", 5), ("de", 30), ("us", 7), ("de", 40)]
        bodies = [json.dumps({"country": country, "ms": ms}) for country, ms in rows] + ["no json"]
        times = [BEGIN + (minute * 60 + place) * SECOND for place in range(len(bodies))]
        topic.write_many(bodies, keys=["key"] * len(bodies), timestamps=times)


def windows(topic) -> list[tuple]:
    found = []
    for m in topic.scan().messages():
        row = json.loads(m.value)
        assert (row["group"].encode() if row["group"] else None) == m.key
        start = datetime.fromisoformat(row["window_start"]).timestamp()
        found.append((round(start - BEGIN / SECOND) // 60, row["group"], row["count"]))
    return sorted(found, key=str)


def test_a_window_is_written_once_when_it_is_over(spark, store, caplog):
    source, sink = store.create_topic("a", partitions=2), store.create_topic("b")
    fill(source, range(3))
    asked = {"window": "1m", "by": COUNTRY, "value": "get_json_object(text, '$.ms')", "late": "5s"}
    rollup(store, "a", "b", **asked, once=True, spark=spark)
    per_minute = [("de", 4), ("us", 2), (None, 1)]
    assert windows(sink) == sorted([(m, *each) for m in range(2) for each in per_minute], key=str)
    row = json.loads(next(m.value for m in sink.scan().messages() if m.key == b"de"))
    assert (row["p50"], row["p99"], row["count_per_second"]) == (20, 40, 4 / 60)
    assert row["bytes"] == sum(3 + len(json.dumps({"country": "de", "ms": ms})) for ms in (10, 20, 30, 40))
    fill(source, range(3, 5))
    source.write(b'{"country": "de"}', timestamp=BEGIN, key="key")
    done = rollup(store, "a", "b", **asked, once=True, spark=spark)
    assert done.late == 1
    assert "they came too late: 1" in caplog.text
    assert windows(sink) == sorted([(m, *each) for m in range(4) for each in per_minute], key=str)
    with pytest.raises(penstock.PipelineChanged, match="window"):
        rollup(store, "a", "b", **{**asked, "window": "2m"}, once=True, spark=spark)


def test_a_table_and_a_picture_of_all_there_is(spark, tmp_path):
    deltalake = module("deltalake")
    command = Command(tmp_path)
    with penstock.open(command.store) as store:
        fill(store.create_topic("a"), range(3))
    words = (
        "pipeline",
        "rollup",
        "a",
        "--window",
        "1m",
        "--by",
        COUNTRY,
        "--where",
        "text LIKE '{%'",
        "--once",
    )
    result = command.quick_json(*words, "--table", "t", "--plot", "p.png")["result"]
    assert (result["table_rows"], result["read"]) == (6, 18)
    table = deltalake.DeltaTable(str(tmp_path / "t")).to_pyarrow_table()
    first = table.to_pylist()[0]
    assert first["window_start"] == datetime.fromtimestamp(BEGIN // SECOND, UTC)
    assert (first["group"], first["count"]) == ("de", 4)
    picture = (tmp_path / "p.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 10_000
    with penstock.open(command.store) as store:
        fill(store.topic("a"), range(3, 4))
    for wanted in (2, 0):  # appended, a table gets what it does not have
        assert (
            command.quick_json(*words, "--table", "t", "--mode", "append")["result"]["table_rows"] == wanted
        )
    assert deltalake.DeltaTable(str(tmp_path / "t")).to_pyarrow_table().num_rows == 8


@pytest.mark.parametrize("by", [None, "key"])
def test_what_is_measured_beside_the_data_is_what_spark_measures(spark, store, tmp_path, by):
    """18.8c: the same rows, whichever way they are made; a condition that is always true makes it Spark's."""
    deltalake = module("deltalake")
    topic = store.create_topic("a", partitions=2)
    fill(topic, range(3))
    topic.write(None, key="gone", timestamp=BEGIN - 100 * SECOND)
    topic.write(b"no key", timestamp=-5)
    tables = []
    for name, where in (("beside", "offset >= 1"), ("spark", "offset >= 1 AND length(topic) > 0")):
        table = str(tmp_path / name)
        rollup(store, "a", window="1m", by=by, where=where, table=table, once=True, spark=spark, name=name)
        tables.append(deltalake.DeltaTable(table).to_pyarrow_table().to_pylist())
    beside, by_spark = tables
    assert beside == by_spark
    assert sum(row["count"] for row in beside) > 10


def test_wrong_expressions_are_told_and_leave_nothing(spark, store):
    store.create_topic("a"), store.create_topic("b")
    for option, wrong in (("by", "nosuch"), ("where", "1 +"), ("where", "text"), ("value", "sum(")):
        with pytest.raises(penstock.InvalidOption, match=option):
            rollup(store, "a", "b", window="1m", **{option: wrong}, once=True, spark=spark)
    assert store.pipelines() == []
