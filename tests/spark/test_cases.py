"""Cases of Spark's Kafka suites and of Delta's that no other module has; docs/spark-cases.md lists them."""

import json

import pytest

import penstock
from tests.kit.slices import StreamQuery, parse
from tests.spark.streams import numbers, stored


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
    def load(topic: str = "orders", **options: str):
        return spark.readStream.format("penstock").options(topic=topic, **options).load(store.path)

    return load


@pytest.fixture
def finish(store, tmp_path):
    """Run a stream into a sink until it ends by itself, from a checkpoint that stays; gives the query."""

    def finish(frame, sink: str = "penstock", mode: str = "append", trigger=None, **options: str):
        writer = frame.writeStream.format(sink).outputMode(mode)
        writer = writer.options(**{"checkpointLocation": str(tmp_path / "checkpoint"), **options})
        query = writer.trigger(**(trigger or {"availableNow": True})).start(store.path)
        query.awaitTermination()
        return query

    return finish


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


def test_one_frame_joined_with_itself_is_one_source(store, stream, finish):
    """Its offsets are kept once, and a row is read once for each side."""
    topic = store.create_topic("orders")
    store.create_topic("pairs")
    topic.write_many([b"%d" % n for n in range(4)], keys=[b"%d" % (n % 2) for n in range(4)])
    one = stream().selectExpr("string(key) AS key", "string(value) AS value")
    query = finish(one.alias("a").join(one.alias("b"), "key").select("key", "a.value"), topic="pairs")
    assert len(stored(store.topic("pairs"))) == 8
    assert len(query.lastProgress["sources"]) == 1


def test_windows_with_a_watermark_over_the_producers_time(store, stream, run, finish):
    from datetime import UTC, datetime, timedelta

    begin = datetime(2026, 1, 1, tzinfo=UTC)
    topic = store.create_topic("orders")
    for minutes in (0, 1, 2, 11, 12, 40):
        topic.write(b"x", timestamp=begin + timedelta(minutes=minutes))
    from pyspark.sql import functions as F

    late = stream().withWatermark("timestamp", "5 minutes")
    counted = late.groupBy(F.window("timestamp", "10 minutes")).count()
    assert sorted(row["count"] for row in run(counted)) == [2, 3]  # the third window is still open
    store.create_topic("windows")
    finish(counted.select("count"), topic="windows")
    assert sorted(json.loads(each.value)["count"] for each in stored(store.topic("windows"))) == [2, 3]


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


def test_two_topics_united_of_which_one_has_nothing_new(store, stream, finish):
    """Each has its own limit; the one without news stays where it is, also over a restart."""
    for name, count in (("orders", 4), ("payments", 12)):
        store.create_topic(name).write_many([b"%d" % n for n in range(count)])
    sink = store.create_topic("all")

    def both():
        limit = {"maxOffsetsPerTrigger": "4"}
        return stream(**limit).select("value").union(stream("payments", **limit).select("value"))

    query = finish(both(), topic="all")
    assert [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]] == [8, 4, 4]
    store.topic("payments").write(b"12")
    finish(both(), topic="all")
    finish(both(), topic="all")
    assert numbers(sink) == sorted([*range(4), *range(13)])


def test_the_deprecated_trigger_of_one_batch_passes_over_the_limits(store, stream, finish):
    topic = store.create_topic("orders", partitions=2)
    sink = store.create_topic("all")
    for count in (20, 5):
        topic.write_many([b"%d" % n for n in range(count)])
        query = finish(stream(maxOffsetsPerTrigger="3").select("value"), topic="all", trigger={"once": True})
        assert [each["numInputRows"] for each in query.recentProgress] == [count]
    assert numbers(sink) == sorted([*range(20), *range(5)])


def test_what_is_written_while_a_batch_runs_belongs_to_the_next_one(store, stream, finish, tmp_path):
    """And a batch that is read twice within itself is the same twice."""
    topic = store.create_topic("orders")
    topic.write_many([b"0", b"1", b"2"])
    seen: list[list[int]] = []

    def look(frame, batch: int) -> None:
        if batch == 0:
            topic.write_many([b"3", b"4"])
        seen.append(values(frame.collect()))
        seen.append(values(frame.collect()))

    for _ in range(2):
        writer = stream().writeStream.foreachBatch(look).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    assert seen == [[0, 1, 2], [0, 1, 2], [3, 4], [3, 4]]


def test_progress_tells_how_far_a_limited_query_is_behind(store, stream, finish):
    store.create_topic("orders", partitions=2).write_many([b"x"] * 10, partition=1)
    query = finish(stream(maxOffsetsPerTrigger="4"), sink="noop")

    def at(offset) -> int:
        found = json.loads(offset) if isinstance(offset, str) else offset
        return found["topics"]["orders"]["next"]["1"]

    sources = [each["sources"][0] for each in query.recentProgress if each["numInputRows"]]
    assert [(at(each["endOffset"]), at(each["latestOffset"])) for each in sources] == [
        (4, 10),
        (8, 10),
        (10, 10),
    ]
    assert [each["numInputRows"] for each in sources] == [4, 4, 2]


# Writing.


def test_notes_in_the_background_are_refused_by_spark_for_this_sink(store, stream, finish):
    """Batches are not noted in order then, and a sink that counts them could not tell what is new."""
    store.create_topic("orders").write(b"x")
    with pytest.raises(Exception, match=r"(?i)async progress tracking"):
        finish(
            stream(), topic="orders", trigger={"processingTime": "0 seconds"},
            asyncProgressTrackingEnabled="true",
        )  # fmt: skip
    assert len(stored(store.topic("orders"))) == 1


def test_a_streams_rows_name_their_topics_and_are_counted(store, stream, finish):
    store.create_topic("orders").write_many([b"%d" % n for n in range(6)])
    for name in ("even", "odd"):
        store.create_topic(name)
    named = stream().selectExpr("value", "IF(offset % 2 = 0, 'even', 'odd') AS topic")
    query = finish(named)
    assert (numbers(store.topic("even")), numbers(store.topic("odd"))) == ([0, 2, 4], [1, 3, 5])
    assert query.lastProgress["sink"]["numOutputRows"] == 6


def test_the_option_topic_wins_in_a_stream(store, stream, finish):
    store.create_topic("orders").write_many([b"%d" % n for n in range(3)])
    sink = store.create_topic("all")
    finish(stream().selectExpr("value", "'nowhere' AS topic"), topic="all")
    assert numbers(sink) == [0, 1, 2]


@pytest.mark.parametrize(
    ("columns", "options", "told"),
    [
        (["value AS key", "value"], {}, "which topic"),
        (["offset AS value"], {"topic": "orders"}, "'value' is bigint"),
        (["value"], {"topic": "nowhere"}, "no topic 'nowhere'"),
        (
            ["value"],
            {"topic": "orders", "kafka.key.serializer": "x"},
            "unknown option 'kafka[.]key",
        ),
    ],
)
def test_a_stream_that_cannot_be_written_says_why(store, stream, finish, columns, options, told):
    store.create_topic("orders").write(b"x")
    with pytest.raises(Exception, match=told):
        finish(stream().selectExpr(*columns), **options)
    assert len(stored(store.topic("orders"))) == 1


@pytest.mark.parametrize(
    ("mode", "told"),
    [("ignore", '"Ignore" mode'), ("overwrite", "only ever appended to"), ("error", '"ErrorIfExists" mode')],
)
def test_topics_are_only_appended_to(spark, store, mode, told):
    topic = store.create_topic("orders")
    writer = spark.sql("SELECT 'x' AS value").write.format("penstock").mode(mode).option("topic", "orders")
    with pytest.raises(Exception, match=told):
        writer.save(store.path)
    assert stored(topic) == []


def test_a_stream_into_a_table_is_told_its_store_and_topic(spark, store, stream, tmp_path):
    """Spark tells a streaming sink nothing of the table, and makes a new one that nobody can read."""
    store.create_topic("orders").write_many([b"0", b"1"])
    sink = store.create_topic("copies")
    spark.sql(f"CREATE TABLE copies USING penstock OPTIONS (path '{store.path}', topic 'copies')")

    def run(table: str, **options: str) -> None:
        writer = stream().select("value").writeStream.format("penstock").trigger(availableNow=True)
        checkpoint = str(tmp_path / f"{table} {len(options)}")
        writer.option("checkpointLocation", checkpoint).options(**options).toTable(table).awaitTermination()

    try:
        with pytest.raises(Exception, match=r"which store\?.*toTable"):
            run("copies")
        run("copies", path=store.path, topic="copies")
        assert spark.read.table("copies").count() == len(stored(sink)) == 2
        run("made", path=store.path, topic="copies")
        assert len(stored(sink)) == 4
        with pytest.raises(Exception, match="without a list of columns"):
            spark.read.table("made").count()
    finally:
        for table in ("copies", "made"):
            spark.sql(f"DROP TABLE IF EXISTS {table}")


def test_rows_made_by_sparks_own_functions_are_written(spark, store):
    from pyspark.sql import functions as F

    topic = store.create_topic("orders")
    frame = spark.range(1, 1000).select(F.to_json(F.struct("*")).alias("value"))
    frame.write.format("penstock").mode("append").option("topic", "orders").save(store.path)
    assert sorted(json.loads(each.value)["id"] for each in stored(topic)) == list(range(1, 1000))


def test_one_batch_into_two_topics_is_whole_though_it_failed_between(spark, store, stream, tmp_path):
    """One txnAppId and the batch's id for both: each topic has its rows once."""
    source = store.create_topic("orders")
    topics = [store.create_topic(name) for name in ("first", "second")]
    failing = [False]

    def both(frame, batch: int) -> None:
        for name in ("first", "second"):
            if name == "second" and failing[0]:
                raise RuntimeError("between the two")
            options = {"topic": name, "txnAppId": "copy", "txnVersion": str(batch)}
            frame.select("value").write.format("penstock").options(**options).mode("append").save(store.path)

    def run() -> None:
        writer = stream().writeStream.foreachBatch(both).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

    source.write(b"0")
    run()
    source.write(b"1")
    failing[0] = True
    with pytest.raises(Exception, match="between the two"):
        run()
    assert [numbers(each) for each in topics] == [[0, 1], [0]]
    failing[0] = False
    source.write(b"2")
    run()
    assert [numbers(each) for each in topics] == [[0, 1, 2], [0, 1, 2]]


def test_a_folder_with_blanks_and_signs_in_its_name(spark, tmp_path):
    folder = tmp_path / "mit Leer 100%20 é+#"
    with penstock.open(folder) as store:
        topic = store.create_topic("orders")
        frame = spark.sql("SELECT 'hello world' AS value")
        frame.write.format("penstock").mode("append").option("topic", "orders").save(str(folder))
        assert [each.value for each in stored(topic)] == [b"hello world"]
        read = spark.read.format("penstock").option("topic", "orders")
        assert read.load(str(folder)).count() == read.load(folder.as_uri()).count() == 1


def test_columns_without_a_type_are_told(spark, store):
    topic = store.create_topic("orders")
    writer = (
        spark.sql("SELECT NULL AS value").write.format("penstock").mode("append").option("topic", "orders")
    )
    with pytest.raises(Exception, match="'value' is void"):
        writer.save(store.path)
    frame = spark.sql("SELECT 7 AS id, NULL AS nothing")
    frame.write.format("penstock").mode("append").option("topic", "orders").save(store.path)
    assert [json.loads(each.value) for each in stored(topic)] == [{"id": 7, "nothing": None}]
