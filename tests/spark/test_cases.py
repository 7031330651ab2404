"""Cases of Spark's Kafka suites and of Delta's that no other module has; docs/spark-cases.md lists them."""

import json

import pytest

import penstock
from tests.kit.slices import StreamQuery, parse


def values(rows) -> list[int]:
    return sorted(int(row.value) for row in rows)


@pytest.fixture
def run(spark, tmp_path):
    """Run a stream to the present end, into a table in memory; `run(frame)` gives its rows."""
    names = iter(f"case_{number}" for number in range(100))

    def run(frame, mode: str = "append") -> list:
        name = next(names)
        writer = frame.writeStream.format("memory").queryName(name).outputMode(mode)
        query = writer.option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True).start()
        query.awaitTermination()
        return spark.table(name).collect()

    return run


@pytest.fixture
def stream(spark, store):
    def load(**options: str):
        return spark.readStream.format("penstock").options(topic="orders", **options).load(store.path)

    return load


def test_a_frame_used_twice_in_a_query_gives_its_rows_twice(store, load):
    store.create_topic("orders", partitions=2).write_many([b"%d" % n for n in range(11)])
    frame = load("orders")
    assert values(frame.union(frame).collect()) == sorted([*range(11), *range(11)])
    joined = frame.alias("a").join(frame.alias("b"), ["partition", "offset"])
    assert joined.count() == 11


def test_only_what_was_committed_is_read(store, load, stream, run):
    """Kafka's read_committed: transactions given up leave nothing, their offsets may be missing."""
    topic = store.create_topic("orders")
    topic.write(b"0")
    with store.transaction() as transaction:
        for number in range(1, 6):
            transaction.write("orders", b"%d" % number)
    given_up = store.transaction()
    given_up.write("orders", b"666")
    assert values(load("orders").collect()) == list(range(6))
    given_up.rollback()
    topic.write(b"6")
    assert values(load("orders").collect()) == list(range(7))
    assert values(run(stream())) == list(range(7))


def test_a_stream_joined_with_itself_and_one_united_with_itself(store, stream, run):
    topic = store.create_topic("orders")
    topic.write_many([b"%d" % n for n in range(5)], keys=[b"%d" % n for n in range(5)])
    one = stream().selectExpr("key", "value")
    joined = run(one.join(stream().selectExpr("key", "value AS other"), "key"))
    assert values(joined) == list(range(5))
    assert [bytes(row.value) for row in joined] == [bytes(row.other) for row in joined]
    assert values(run(one.union(one))) == sorted([*range(5), *range(5)])


def test_windows_with_a_watermark_over_the_producers_time(store, stream, run):
    from datetime import UTC, datetime, timedelta

    begin = datetime(2026, 1, 1, tzinfo=UTC)
    topic = store.create_topic("orders")
    for minutes in (0, 1, 2, 11, 12, 40):
        topic.write(b"x", timestamp=begin + timedelta(minutes=minutes))
    from pyspark.sql import functions as F

    late = stream().withWatermark("timestamp", "5 minutes")
    counted = late.groupBy(F.window("timestamp", "10 minutes")).count()
    assert sorted(row["count"] for row in run(counted)) == [2, 3]  # the third window is still open


def test_a_stream_that_is_stopped_before_it_has_read_anything(store, stream, tmp_path):
    store.create_topic("orders")
    query = stream().writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    query.stop()
    assert query.exception() is None


def test_the_largest_limit_does_not_overflow(store):
    topic = store.create_topic("orders", partitions=2, sync="os")
    for number in range(2):
        topic.write_many([b"x"] * 10, partition=number)
    most = str(2**63 - 1)
    options = {
        "path": store.path,
        "topic": "orders",
        "maxOffsetsPerTrigger": most,
        "maxBytesPerTrigger": most,
    }
    query = StreamQuery(parse(options))
    try:
        end = query.latest(json.loads(json.dumps(query.initial())), int(most), int(most))
    finally:
        query.close()
    assert end["topics"]["orders"]["next"] == {"0": 10, "1": 10}


@pytest.mark.parametrize(
    "options",
    [
        {"startingTimestamp": "5", "startingOffsets": "earliest"},
        {"endingTimestamp": "5", "endingOffsetsByTimestamp": '{"orders": {"0": 5}}'},
    ],
)
def test_two_beginnings_or_two_ends_are_refused(options):
    """The Kafka source takes one of them by a rule that one has to know."""
    with pytest.raises(penstock.InvalidOption):
        parse({"path": "data", "topic": "orders", **options})
