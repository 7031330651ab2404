"""Topics as tables of Spark's catalog, and views that see the present (18.4, 18.7)."""

import pytest

import penstock
from penstock.spark import count
from tests.kit.slices import of_table


@pytest.fixture
def topic(store):
    made = store.create_topic("orders", sync="os")
    made.write_many([b"%d" % n for n in range(100)], keys=[f"k{n % 5}" for n in range(100)])
    return made


@pytest.fixture
def table(spark, store, topic):
    spark.sql(f"CREATE TABLE orders USING penstock OPTIONS (path '{store.path}', topic 'orders')")
    yield "orders"
    spark.sql("DROP TABLE IF EXISTS orders")


def one(frame):
    return frame.collect()[0][0]


def test_a_table_is_read_and_written_by_sql_and_sees_the_present(spark, store, topic, table):
    assert one(spark.sql("SELECT count(*) FROM orders")) == 100
    topic.write_many([b"x"] * 50)
    assert one(spark.sql("SELECT count(*) FROM orders")) == 150
    spark.sql("INSERT INTO orders (key, value) VALUES (CAST('a' AS BINARY), CAST('b' AS BINARY))")
    last = topic.get(150)
    assert (last.key, last.value) == (b"a", b"b")
    spark.sql("INSERT INTO orders (value) SELECT value FROM orders WHERE offset < 10")
    assert one(spark.sql("SELECT count(*) FROM orders")) == 161
    assert spark.read.table("orders").count() == 161


def test_a_view_over_a_table_sees_the_present_and_one_over_a_loaded_frame_does_not(
    spark, store, topic, table
):
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW fifths AS SELECT offset FROM orders WHERE offset % 5 = 0")
    loaded = spark.read.format("penstock").option("topic", "orders").load(store.path)
    loaded.createOrReplaceTempView("frozen")
    assert one(spark.sql("SELECT count(*) FROM fifths")) == 20
    assert one(spark.sql("SELECT count(*) FROM frozen")) == 100
    topic.write_many([b"x"] * 50)
    assert one(spark.sql("SELECT count(*) FROM fifths")) == 30
    assert one(spark.sql("SELECT count(*) FROM frozen")) == 100


def test_the_store_stays_when_a_table_is_dropped_or_emptied(spark, store, topic, table):
    for wrong in ("TRUNCATE TABLE orders", "INSERT OVERWRITE orders SELECT * FROM orders"):
        with pytest.raises(Exception, match=r"(?i)truncate|only ever appended to|which table"):
            spark.sql(wrong).collect()
    spark.sql("DROP TABLE orders")
    assert topic.get(99).value == b"99"
    assert sum(1 for batch in topic.scan() for _ in batch) == 100


def test_tables_are_made_by_the_catalog_and_read_as_streams(spark, store, topic, tmp_path):
    spark.catalog.createTable("made", path=store.path, source="penstock", topic="orders", columns="offset")
    try:
        assert spark.read.table("made").columns == ["offset"]
        query = (
            spark.readStream.table("made").writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        assert query.lastProgress["numInputRows"] == 100
    finally:
        spark.sql("DROP TABLE IF EXISTS made")


def test_what_spark_does_not_tell_is_said_with_what_works(spark, store, topic):
    spark.sql(f"CREATE TABLE columned (value binary) USING penstock OPTIONS (path '{store.path}')")
    try:
        with pytest.raises(Exception, match="without a list of columns"):
            spark.sql("SELECT * FROM columned").collect()
        with pytest.raises(Exception, match="no topic 'nothing'"):
            spark.sql(f"CREATE TABLE x USING penstock OPTIONS (path '{store.path}', topic 'nothing')")
    finally:
        spark.sql("DROP TABLE IF EXISTS columned")


def test_rows_of_one_table_are_never_written_back_into_it_instead_of_into_another(spark, store, topic, table):
    """They went into the table they came from: Spark hands over the columns, and with them its options."""
    copy = store.create_topic("copy", sync="os")
    spark.sql(f"CREATE TABLE copy USING penstock OPTIONS (path '{store.path}', topic 'copy')")
    rows = spark.table("orders")
    try:
        for wrong in (
            lambda: spark.sql("INSERT INTO copy SELECT * FROM orders"),
            lambda: spark.sql("INSERT INTO copy TABLE orders"),
            lambda: spark.sql(
                "INSERT INTO copy "
                "SELECT topic, partition, CAST(NULL AS BIGINT) AS offset, timestamp, key, value FROM orders"
            ),
            lambda: spark.sql(
                f"CREATE TABLE third USING penstock OPTIONS (path '{store.path}', topic 'copy') "
                "AS SELECT key, value FROM orders"
            ),
            lambda: rows.write.insertInto("copy"),
            lambda: rows.writeTo("copy").append(),
        ):
            with pytest.raises(Exception, match="Spark does not say which table"):
                wrong()
        with pytest.raises(Exception, match="which topic"):
            rows.select("key", "value").write.format("penstock").mode("append").save(store.path)
        assert (count(spark, store.path, "orders"), count(spark, store.path, "copy")) == (100, 0)
        spark.sql("INSERT INTO copy (key, value) SELECT key, value FROM orders")
        rows.select("key", "value").writeTo("copy").append()
        rows.write.format("penstock").option("topic", "copy").mode("append").save(store.path)
        assert (count(spark, store.path, "orders"), count(spark, store.path, "copy")) == (100, 300)
        assert copy.get(250).value == b"50"
    finally:
        spark.sql("DROP TABLE IF EXISTS copy")
        spark.sql("DROP TABLE IF EXISTS third")


def test_a_table_with_options_for_reading_and_properties_of_its_own_is_written_too(spark, store, topic):
    spark.sql(
        f"CREATE TABLE orders USING penstock OPTIONS (path '{store.path}', topic 'orders', minPartitions 2, "
        "includeHeaders true) COMMENT 'sold' TBLPROPERTIES ('team' = 'shop')"
    )
    try:
        spark.sql("INSERT INTO orders (value, headers) VALUES (X'41', map('a', X'42'))")
        assert one(spark.sql("SELECT count(*) FROM orders")) == 101
        assert topic.get(100).headers == {"a": b"B"}
    finally:
        spark.sql("DROP TABLE IF EXISTS orders")


def test_a_frame_with_a_tables_columns_is_loaded_by_its_own_options(spark, store, topic, table):
    store.create_topic("other", sync="os").write(b"x")
    frame = spark.read.format("penstock").schema(spark.table("orders").schema).option("subscribe", "other")
    assert [row.value for row in frame.load(store.path).collect()] == [b"x"]


def test_properties_of_tables_are_not_options():
    given = {
        "location": "file:/data", "path": "file:/data", "provider": "penstock", "owner": "me",
        "topic": "orders", "option.topic": "orders", "external": "true", "team": "shop",
    }  # fmt: skip
    assert of_table(given) == {"path": "file:/data", "topic": "orders"}
    assert of_table({"location": "x", "topic": "orders"}) is None


def test_batch_only_options_of_a_stream_are_refused_by_our_own_last_line(spark, store, topic, tmp_path):
    """18.10: PySpark's UnboundLocalError stood there."""
    stream = spark.readStream.format("penstock").options(topic="orders", endingOffsets="latest")
    writer = stream.load(store.path).writeStream.format("noop")
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    with pytest.raises(Exception, match="endingOffsets is for batch reads") as raised:
        query.awaitTermination()
    assert "UnboundLocalError" not in str(raised.value)
    assert isinstance(store, penstock.Store)
