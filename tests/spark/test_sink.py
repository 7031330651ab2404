"""`df.write.format("penstock")` and `df.writeStream` in a real session: every row once, whatever happens."""

import json

import pytest

from tests.kit.topics import inside
from tests.spark.streams import Stream, numbers, staged_files, stored


@pytest.fixture
def topic(store):
    return store.create_topic("orders", partitions=3)


@pytest.fixture
def save(store):
    def save(frame, topic: str | None = "orders", **options: str) -> None:
        named = {} if topic is None else {"topic": topic}
        frame.write.format("penstock").options(**named, **options).mode("append").save(store.path)

    return save


@pytest.fixture
def stream(spark, store, topic, tmp_path) -> Stream:
    return Stream(spark, store, tmp_path)


# Batch.


def test_what_is_written_is_read_back(spark, store, topic, save, load):
    frame = spark.range(0, 1000, 1, 2).selectExpr(
        "string(id) AS key", "concat('value ', id) AS value", "timestamp_micros(id * 1000) AS timestamp",
        "map('n', binary(string(id))) AS headers", "IF(id < 10, 2, NULL) AS partition",
    )  # fmt: skip
    save(frame)
    back = load("orders", includeHeaders="true").selectExpr(
        "string(key)", "string(value)", "unix_micros(timestamp)", "string(headers['n'])", "partition"
    )
    found = {int(row[0]): tuple(row)[1:] for row in back.collect()}
    assert len(found) == 1000
    for n in range(1000):
        assert found[n][:3] == (f"value {n}", n * 1000, str(n))
    assert {found[n][3] for n in range(10)} == {2}
    assert {found[n][3] for n in range(1000)} == {0, 1, 2}
    assert not staged_files(store)


def test_frame_order_is_kept_in_each_partition(spark, topic, save):
    frame = spark.range(0, 4000, 1, 4).selectExpr("string(id) AS value", "string(id % 7) AS key")
    save(frame)
    for number in range(3):
        found = [int(message.value) for batch in topic.scan(partition=number) for message in batch]
        assert found == sorted(found)
    assert len(stored(topic)) == 4000


def test_large_parts_become_segments_by_renaming(spark, store, save, load):
    topic = store.create_topic("large")
    topic.write(b"first")
    frame = spark.range(0, 5000, 1, 1).selectExpr("binary(rpad(string(id), 5000, '.')) AS value")
    save(frame, "large")
    assert len(inside(topic).log(0).segments.bases()) == 2
    found = [int(message.value.rstrip(b".")) for message in stored(topic)[1:]]
    assert found == list(range(5000))
    assert load("large").count() == 5001


def test_row_becomes_json_when_there_is_no_value(spark, topic, save):
    save(
        spark.sql("SELECT 7L AS id, 'é' AS name, array(1.5D) AS list, struct(1 AS x) AS part"),
        keyColumn="name",
    )
    (message,) = stored(topic)
    assert json.loads(message.value) == {"id": 7, "name": "é", "list": [1.5], "part": {"x": 1}}
    assert message.key == "é".encode()


def test_rows_name_their_topics(spark, store, topic, save):
    other = store.create_topic("refunds")
    frame = spark.range(10).selectExpr("string(id) AS value", "IF(id < 3, 'refunds', 'orders') AS topic")
    save(frame, None)
    assert (numbers(other), numbers(topic)) == ([0, 1, 2], list(range(3, 10)))
    save(frame)  # the option wins, as with Kafka
    assert len(stored(topic)) == 17


def test_version_is_written_once(spark, store, topic, save):
    frame = spark.range(100).selectExpr("string(id) AS value")
    for version in (1, 2, 1, 2):
        save(frame, txnAppId="nightly", txnVersion=str(version))
    assert len(stored(topic)) == 200
    with pytest.raises(Exception, match=r"txnVersion 2 of 'nightly' was committed with 100 rows .* with 50"):
        save(frame.limit(50), txnAppId="nightly", txnVersion="2")
    assert not staged_files(store)


def test_task_that_fails_and_is_tried_again_counts_once(spark, store, topic, save):
    def fails_first(batches):
        from pyspark import TaskContext

        yield from batches
        task = TaskContext.get()
        if task.partitionId() == 1 and task.attemptNumber() == 0:
            raise RuntimeError("the first attempt of this task")

    frame = (
        spark.range(0, 2000, 1, 2).selectExpr("string(id) AS value").mapInArrow(fails_first, "value string")
    )
    save(frame)
    assert numbers(topic) == list(range(2000))


# Errors, early.


@pytest.mark.parametrize(
    ("sql", "options", "told"),
    [
        ("SELECT 'x' AS value, 1 AS key", {}, r"'key' is int, not binary or string .*cast\('string'\)"),
        ("SELECT 'x' AS value, 1 AS colour", {}, "a message has no 'colour'"),
        ("SELECT 'x' AS value", {"linger": "1"}, "unknown option 'linger'"),
        ("SELECT 'x' AS value", {"txnAppId": "a"}, "txnAppId and txnVersion belong together"),
    ],
)
def test_wrong_write_fails_before_any_task_runs(spark, topic, save, sql, options, told):
    with pytest.raises(Exception, match=told):
        save(spark.sql(sql), **options)


def test_missing_topic_fails_before_staging_and_names_those_there_are(spark, store, topic, save):
    with pytest.raises(Exception, match=r"no topic 'order' \(topics here: orders"):
        save(spark.sql("SELECT 'x' AS value"), "order")


def test_overwrite_is_refused(spark, store, topic):
    with pytest.raises(Exception, match="only ever appended to"):
        spark.sql("SELECT 'x' AS value").write.format("penstock").mode("overwrite").option(
            "topic", "orders"
        ).save(store.path)


def test_row_over_the_limit_fails_the_write_and_leaves_nothing(spark, store, topic, save):
    frame = spark.range(0, 2000, 1, 2).selectExpr("IF(id = 1999, repeat('.', 2000000), string(id)) AS value")
    with pytest.raises(
        Exception, match="value of 2000000 bytes is over the limit of 1048576 of topic 'orders'"
    ):
        save(frame)
    assert stored(topic) == []
    assert not staged_files(store)


# Streams, exactly once.


def test_batch_that_spark_repeats_is_skipped_in_the_middle_and_at_the_end(store, topic, stream):
    stream.add(2)
    stream.run()
    assert numbers(topic) == stream.all
    stream.forget(1)
    stream.run()  # at the end: nothing new behind it
    assert stream.batches() == [0, 1]
    assert numbers(topic) == stream.all
    stream.forget(1)
    stream.add(1)
    stream.run()  # in the middle: the stream goes on behind it
    assert stream.batches() == [0, 1, 2]
    assert numbers(topic) == stream.all
    assert not staged_files(store)
    assert len(store._transactions.names("spark/")) == 1


def test_new_checkpoint_writes_all_again(topic, stream):
    """Documented: a query is known by its checkpoint."""
    stream.add(1)
    stream.run()
    stream.run(checkpoint="other")
    assert numbers(topic) == sorted(stream.all * 2)


def test_new_checkpoint_with_the_same_app_raises_and_skips_nothing(store, topic, stream):
    stream.add(2)
    stream.run(txnAppId="loader")
    stream.forget(1)
    stream.add(1)
    stream.run(txnAppId="loader")
    assert numbers(topic) == stream.all
    with pytest.raises(Exception, match="txnAppId 'loader' belongs to the checkpoint of query"):
        stream.run(checkpoint="other", txnAppId="loader")
    assert numbers(topic) == stream.all
    assert not staged_files(store)


def test_foreach_batch_with_app_and_version(spark, store, topic, tmp_path):
    """A batch write inside of a stream is the stream's: a new checkpoint is refused here too."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0").write_text("1\n2\n")

    def write(frame, batch: int) -> None:
        options = {"topic": "orders", "txnAppId": "each", "txnVersion": str(batch)}
        for _ in range(2):
            frame.write.format("penstock").options(**options).mode("append").save(store.path)

    def run(checkpoint: str) -> None:
        lines = spark.readStream.text(str(tmp_path / "in")).writeStream.foreachBatch(write)
        lines.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(
            availableNow=True
        ).start().awaitTermination()

    run("one")
    assert numbers(topic) == [1, 2]
    with pytest.raises(Exception, match="txnAppId 'each' belongs to the checkpoint of query"):
        run("two")
    assert numbers(topic) == [1, 2]
