"""`spark.read.format("penstock")` in a real session."""

import subprocess
import sys
import time
from datetime import UTC, datetime
from textwrap import dedent

import pytest

import penstock
from penstock.spark import read
from tests.kit.patience import PATIENCE_S
from tests.kit.topics import inside

DEFAULT = ["topic", "partition", "offset", "timestamp", "key", "value"]


@pytest.fixture
def topic(store):
    return store.create_topic("orders", segment_bytes="16KiB")


def rows(frame) -> list[tuple]:
    return [tuple(row) for row in frame.orderBy("partition", "offset").collect()]


def plain(value):
    return bytes(value) if isinstance(value, bytearray) else value


def test_default_columns_are_kafkas_by_name_and_type(load, topic):
    frame = load("orders")
    assert frame.dtypes == [
        ("topic", "string"), ("partition", "int"), ("offset", "bigint"), ("timestamp", "timestamp"),
        ("key", "binary"), ("value", "binary"),
    ]  # fmt: skip


def test_messages_arrive_as_they_were_written(spark, load, topic):
    moment = datetime(2024, 2, 29, 12, 30, 0, 123456, tzinfo=UTC)
    topic.write(b"paid", key="customer-7", timestamp=moment)
    topic.write_many([b"\x00\xff", b"\xc3\xa9"], keys=["a", "b"], timestamps=[moment, moment])
    found = [
        (row.topic, row.partition, row.offset, row.timestamp.timestamp(), plain(row.key), plain(row.value))
        for row in load("orders").orderBy("offset").collect()
    ]
    at = moment.timestamp()
    assert found == [
        ("orders", 0, 0, at, b"customer-7", b"paid"),
        ("orders", 0, 1, at, b"a", b"\x00\xff"),
        ("orders", 0, 2, at, b"b", b"\xc3\xa9"),
    ]


def test_null_and_empty_are_four_different_things(load, topic):
    for key, value in ((None, None), (None, b""), (b"", None), (b"", b"")):
        topic.write(value, key=key)
    topic.write_many([None, b"", None, b""], keys=[None, None, b"", b""])
    found = [(plain(row.key), plain(row.value)) for row in load("orders").orderBy("offset").collect()]
    assert found == [(None, None), (None, b""), (b"", None), (b"", b"")] * 2


def test_headers_are_a_map_and_null_where_there_are_none(load, topic):
    topic.write(b"1", headers={"source": "shop", "raw": b"\xff", "empty": ""})
    topic.write(b"2")
    topic.write_many([b"3", b"4"], headers=[None, {"n": "4"}])
    frame = load("orders", includeHeaders="true")
    assert frame.columns == [*DEFAULT, "headers"]
    assert dict(frame.dtypes)["headers"] == "map<string,binary>"
    found = [
        row.headers and {name: plain(value) for name, value in row.headers.items()}
        for row in frame.orderBy("offset").collect()
    ]
    assert found == [{"source": b"shop", "raw": b"\xff", "empty": b""}, None, None, {"n": b"4"}]


def test_star_gives_every_column(load, topic):
    topic.write(b"x", headers={"a": "1"})
    frame = load("orders", columns="*")
    assert frame.columns == [
        *DEFAULT, "headers", "written_at", "producer_id", "group", "seqno", "codec",
    ]  # fmt: skip
    (row,) = frame.collect()
    assert (row.producer_id, row["group"], row.seqno, row.codec) == (None, None, None, "raw")
    assert abs(row.written_at.timestamp() - time.time()) < 600


def test_chosen_columns_are_all_there_is(load, topic):
    topic.write_many([b"a", b"b"])
    frame = load("orders", columns="value,offset")
    assert frame.columns == ["value", "offset"]
    assert [(plain(value), offset) for value, offset in frame.orderBy("offset").collect()] == [
        (b"a", 0),
        (b"b", 1),
    ]


def test_schema_chooses_columns_too(load, topic):
    topic.write_many([b"a", b"b"])
    frame = load("orders", schema="offset bigint not null, headers map<string,binary>")
    assert rows(load("orders", schema="offset bigint, partition int")) == [(0, 0), (1, 0)]
    assert [tuple(row) for row in frame.orderBy("offset").collect()] == [(0, None), (1, None)]


def test_times_are_floored_to_microseconds_also_before_1970(load, topic):
    topic.write_many([b"x"] * 4, timestamps=[-1, 1_999, -1_000_001, 0])
    topic.write(b"x", timestamp=-1)
    frame = load("orders").selectExpr("offset", "unix_micros(timestamp)").orderBy("offset")
    assert [row[1] for row in frame.collect()] == [-1, 1, -1001, 0, -1]


def test_several_partitions_and_segments_hold_each_message_once(store, load):
    topic = store.create_topic("many", partitions=3, segment_bytes="16KiB", sync="os")
    for number in range(0, 3000, 100):
        values = [b"%d" % n for n in range(number, number + 100)]
        topic.write_many(values, keys=[f"k{n % 17}" for n in range(number, number + 100)])
    frame = load("many").selectExpr("partition", "offset", "cast(string(value) as int) n")
    found = rows(frame)
    assert sorted(n for _, _, n in found) == list(range(3000))
    assert {p for p, _, _ in found} == {0, 1, 2}
    for partition in range(3):
        offsets = [offset for p, offset, _ in found if p == partition]
        assert offsets == list(range(len(offsets)))


def test_sealed_repacked_and_active_segments_are_one_topic(store, load, topic):
    for number in range(500):
        topic.write(b"%d" % number)
    assert store.flush_housekeeping()
    for number in range(500, 520):
        topic.write(b"%d" % number)
    assert len(inside(topic).log(0).segments.bases()) > 2
    found = load("orders").selectExpr("partition", "offset", "cast(string(value) as int)")
    assert rows(found) == [(0, n, n) for n in range(520)]


def test_range_is_half_open_and_may_differ_by_partition(store, load):
    topic = store.create_topic("two", partitions=2)
    for partition in (0, 1):
        topic.write_many([b"%d" % n for n in range(10)], partition=partition)
    frame = load("two", startingOffsets='{"two": {"0": 7}}', endingOffsets='{"two": {"0": 9, "1": 2}}')
    assert rows(frame.select("partition", "offset")) == [(0, 7), (0, 8), (1, 0), (1, 1)]
    assert load("two", startingOffsets="latest").count() == 0
    assert load("two", endingOffsets="earliest").count() == 0
    assert load("two", startingOffsets="earliest", endingOffsets="latest").count() == 20


def test_empty_topic_is_an_empty_table(load, topic):
    assert load("orders").collect() == []
    assert load("orders", columns="*").count() == 0


def test_after_vacuum_reading_begins_at_what_is_left(store, load, topic):
    for number in range(400):
        topic.write(b"%d" % number)
    assert store.flush_housekeeping()
    topic.alter(max_bytes=20_000)
    topic.vacuum()
    start = topic.stats().partitions[0].start
    assert 0 < start < 400
    assert rows(load("orders").select("partition", "offset")) == [(0, n) for n in range(start, 400)]
    with pytest.raises(Exception, match=f"'orders' partition 0, offsets 3 to {start - 1}; .*left is {start}"):
        load("orders", startingOffsets='{"orders": {"0": 3}}').count()


def test_reading_under_a_writer_gives_a_prefix(store, load, topic):
    """Another process writes all the while; each query sees offsets 0 to n, each with its own value."""
    script = dedent(
        """
        import sys, penstock
        with penstock.open(sys.argv[1]) as store:
            topic = store.topic("orders")
            for number in range(10**9):
                if number % 50:
                    topic.write(b"%d" % number)
                else:
                    topic.write(b"%d" % number, headers={"n": "x"})
        """
    )
    seen = [0]
    with subprocess.Popen([sys.executable, "-c", script, store.path]) as writer:
        try:
            deadline = time.monotonic() + PATIENCE_S
            while len(seen) < 5 and time.monotonic() < deadline:
                found = rows(load("orders").selectExpr("partition", "offset", "int(string(value))"))
                assert found == [(0, n, n) for n in range(len(found))]
                if len(found) > seen[-1]:
                    seen.append(len(found))
        finally:
            writer.kill()
    assert len(seen) == 5


# Errors.


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"columns": "offset,colour"}, "no column 'colour'"),
        ({"startingOffset": "latest"}, "unknown option 'startingoffset'"),
        ({"startingOffsets": "sometime"}, "startingOffsets='sometime' is not understood"),
    ],
)
def test_wrong_option_fails_at_load(load, topic, options, told):
    with pytest.raises(Exception, match=told):
        load("orders", **options)


def test_unknown_topic_fails_at_load_and_names_those_there_are(load, topic):
    with pytest.raises(Exception, match=r"no topic 'order' \(topics here: orders"):
        load("order")


def test_missing_store_fails_at_load_and_names_the_folder(spark, tmp_path):
    reader = spark.read.format("penstock").option("topic", "orders")
    with pytest.raises(Exception, match=r"there is no store in .*nothing"):
        reader.load(str(tmp_path / "nothing"))
    with pytest.raises(Exception, match="which store"):
        reader.load()
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"startingOffsets": '{"orders": {"0": 11}}'}, r"offset 11 of 'orders' .* beyond the end \(10\)"),
        ({"endingOffsets": '{"orders": {"0": 11}}'}, r"offset 11 of 'orders' .* beyond the end \(10\)"),
        ({"endingOffsets": '{"orders": {"3": 1}}'}, "'orders' has no partition 3"),
        (
            {"startingOffsets": '{"orders": {"0": 5}}', "endingOffsets": '{"orders": {"0": 4}}'},
            "begin at 5 and end at 4",
        ),
    ],
)
def test_offsets_out_of_range_fail_before_any_task_runs(load, topic, options, told):
    topic.write_many([b"x"] * 10)
    with pytest.raises(Exception, match=told):
        load("orders", **options).count()


def test_schema_with_a_wrong_type_or_against_the_options_is_refused(load, topic):
    with pytest.raises(Exception, match="'offset' is bigint, not int"):
        load("orders", schema="offset int").count()
    with pytest.raises(Exception, match="not by both"):
        load("orders", schema="offset bigint", columns="value").count()


def test_damage_reaches_the_user_with_file_and_byte(store, load, topic):
    topic.write(b"sound")
    topic.write(b"damaged soon")
    path = inside(topic).log(0).folder.segment_path(0)
    with open(path, "r+b") as file:
        at = file.read().index(b"damaged soon")
        file.seek(at)
        file.write(b"D")
    with pytest.raises(Exception, match=r"a damaged frame in .*\.data at byte \d+, offsets 1 to 1"):
        load("orders").count()


def test_store_open_elsewhere_for_itself_can_be_read(spark, tmp_path):
    with penstock.open(tmp_path / "own", exclusive=True) as store:
        store.create_topic("orders").write(b"x")
        frame = spark.read.format("penstock").option("topic", "orders").load(store.path)
        assert frame.count() == 1


# Several topics, times, filters, views.


def damage(topic: penstock.Topic, partition: int, base: int) -> None:
    """Make a segment unreadable: whoever reads it fails."""
    with open(inside(topic).log(partition).folder.segment_path(base), "r+b") as file:
        file.seek(200)
        file.write(b"\xff" * 200)


def test_topics_by_list_and_pattern_and_more_tasks_on_request(spark, store):
    for name, count in (("orders", 10), ("orders.eu", 5), ("payments", 3)):
        store.create_topic(name).write_many([b"x"] * count)

    def counts(**options: str) -> dict:
        frame = spark.read.format("penstock").options(**options).load(store.path)
        return {row.topic: row["count"] for row in frame.groupBy("topic").count().collect()}

    assert counts(subscribe="orders,payments") == {"orders": 10, "payments": 3}
    assert counts(subscribePattern="orders.*", endingOffsets='{"orders": {"0": 4}}') == {
        "orders": 4, "orders.eu": 5,
    }  # fmt: skip
    frame = spark.read.format("penstock").option("topic", "orders").option("minPartitions", 4)
    assert frame.load(store.path).rdd.getNumPartitions() == 4
    with pytest.raises(Exception, match=r"no topic \"pattern 'x\.\*'\""):
        counts(subscribePattern="x.*")


def test_filters_on_offset_partition_and_time_are_planned_away(spark, store, tmp_path):
    """What lies outside is damaged: only a query that does not read it succeeds."""
    topic = store.create_topic("orders", partitions=2, segment_bytes="4KiB", sync="os")
    for number in range(120):
        topic.write(b"%d" % number * 20, partition=0)
    topic.write_many([b"x"] * 7, partition=1)
    assert store.flush_housekeeping()
    bases = inside(topic).log(0).segments.bases()
    assert len(bases) > 3
    middle, last = bases[1], bases[-1]
    between = (topic.get(middle).written_at + topic.get(middle - 1).written_at) // 2 // 1000
    until = topic.get(bases[2]).written_at // 1000
    for base in (bases[0], bases[2]):
        damage(topic, 0, base)

    def count(condition: str | None = None) -> int:
        return read(spark, store.path, "orders", where=condition, columns="*").count()

    assert count(f"partition = 0 and offset >= {last}") == 120 - last
    assert count("partition in (1, 5)") == 7
    span = f"written_at >= timestamp_micros({between}) and written_at < timestamp_micros({until})"
    assert 0 < count(f"partition = 0 and {span}") <= bases[2] - middle
    with pytest.raises(Exception, match="damaged"):
        count()
    loaded = spark.read.format("penstock").options(topic="orders", columns="*").load(store.path)
    with pytest.raises(Exception, match="damaged"):
        loaded.where(f"partition = 0 and offset >= {last}").count()


def test_push_filters_is_gone_and_its_error_says_what_to_use(load, topic):
    """18.2: Spark keeps one plan for all scans of a DataFrame, so the option gave wrong rows."""
    with pytest.raises(Exception, match=r"unknown option 'pushfilters'.*penstock\.spark\.read"):
        load("orders", pushFilters="true")


def test_views_show_consumers_and_segments(spark, store, topic):
    topic.write_many([b"x"] * 10)
    topic.add_consumer("billing", important=True)
    with topic.reader(consumer="billing", follow=False) as reader:
        reader.commit(reader.receive())

    def view(name: str):
        return spark.read.format("penstock").option("view", name).load(store.path)

    (row,) = view("consumers").collect()
    assert (row.topic, row.consumer, row.partition, row.position, row.end, row.lag, row.important) == (
        "orders", "billing", 0, 1, 10, 9, True,
    )  # fmt: skip
    assert abs(row.updated.timestamp() - time.time()) < 600
    (row,) = view("segments").where("topic = 'orders'").collect()
    assert (row.partition, row.first, row.stop, row.sealed, row.repacked) == (0, 0, 10, False, False)
    assert row.bytes == topic.stats().bytes


def test_views_show_what_waits_and_what_is_dead(spark, store, topic):
    topic.write_many([b"x", b"y"], keys=[b"a", b"b"])
    topic.write(b"z", key="c", delay="1h")
    with topic.reader(consumer="billing", follow=False) as reader:
        reader.retry(reader.receive(), after="1h", error=ValueError("no answer"))
        reader.reject(reader.receive(), "bad card")

    def view(name: str):
        return spark.read.format("penstock").option("view", name).option("topic", "orders").load(store.path)

    waiting = {bytes(row.key): row for row in view("waiting").collect()}
    assert (waiting[b"a"].consumer, waiting[b"a"].offset, waiting[b"a"].attempts) == ("billing", 0, 1)
    assert waiting[b"a"].last_error == "ValueError: no answer"
    assert (waiting[b"c"].consumer, waiting[b"c"].offset) == (None, None)
    assert all(3000 < row.due.timestamp() - time.time() < 3700 for row in waiting.values())
    (row,) = view("dead_letters").collect()
    assert (row.number, row.consumer, row.reason, bytes(row.value)) == (0, "billing", "bad card", b"y")
