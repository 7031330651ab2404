"""`penstock.spark.read` and `count`: conditions and columns planned, history and live as one (18.2, 18.8)."""

from collections.abc import Iterator

import pytest

import penstock
from penstock.spark import aggregate, count, read, to_topic
from penstock.spark.pipelines.archive import archive
from tests.lake.archived_topic import MESSAGES, PARTITIONS, Kept, make, opened


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make(tmp_path_factory.mktemp("past"))


@pytest.fixture
def past(made, tmp_path) -> Iterator[Kept]:
    with opened(made, tmp_path) as kept:
        yield kept


def offsets(frame) -> list[tuple[int, int]]:
    return sorted((row["partition"], row["offset"]) for row in frame.select("partition", "offset").collect())


ALL = [(number, at) for number in range(PARTITIONS) for at in range(MESSAGES)]


def test_union_join_and_reuse_of_a_filtered_read_have_all_their_rows(spark, store):
    """What `pushFilters` got wrong: 20 of 30, 50 of 5,000, 10 of 1,000."""
    topic = store.create_topic("orders", sync="os")
    topic.write_many([b"%d" % n for n in range(1000)])

    def part(where: str | None = None):
        return read(spark, store.path, "orders", where=where, columns="offset,value")

    one, two = part("offset < 10"), part("offset >= 20 and offset < 40")
    assert one.union(two).count() == 30
    whole = part()
    assert whole.where("offset < 10").count() == 10
    assert whole.count() == 1000
    assert whole.alias("a").join(whole.where("offset < 50").alias("b"), "offset").count() == 50
    assert one.join(whole, "offset").count() == 10


def test_only_the_columns_that_are_asked_for_and_those_of_the_condition_are_read(spark, store):
    topic = store.create_topic("orders", sync="os")
    topic.write_many([b"%d" % n for n in range(20)], keys=[f"k{n % 2}" for n in range(20)])
    frame = read(spark, store.path, "orders", where="key = 'k1' and topic = 'orders'", columns=["value"])
    assert frame.columns == ["value"]
    assert sorted(int(row.value) for row in frame.collect()) == list(range(1, 20, 2))
    plan = read(spark, store.path, "orders", columns="offset")._jdf.queryExecution().analyzed().toString()
    assert "value" not in plan
    assert not read(spark, store.path, "orders", columns="offset", archive=None).schema["offset"].nullable
    with pytest.raises(penstock.InvalidOption, match="no column 'price'"):
        read(spark, store.path, "orders", columns="price")
    with pytest.raises(penstock.UnknownTopic):
        read(spark, store.path, "nothing")


@pytest.mark.parametrize("trimmed", [0, 4, 9])
def test_history_and_live_are_one_wherever_the_cut_falls(spark, past, trimmed):
    past.trim(trimmed)
    frame = read(spark, past.store.path, "orders", columns="*", archive=past.table(10))
    assert offsets(frame) == ALL
    values = {(row["partition"], row["offset"]): row for row in frame.collect()}
    for message in past.messages:
        row = values[message.partition, message.offset]
        body = None if message.value is None else bytes(message.value)
        assert (None if row.value is None else bytes(row.value)) == body
        assert (None if row.key is None else bytes(row.key)) == message.key
        assert (row.topic, row.codec, row.seqno) == ("orders", message.codec, message.seqno)
    text = frame._jdf.queryExecution().optimizedPlan().toString()
    assert "parquet" in text.lower()
    assert count(spark, past.store.path, "orders", archive=past.table(10)) == len(ALL)


def test_a_condition_prunes_files_and_log(spark, past):
    frame = read(
        spark, past.store.path, "orders", where="partition = 1 and offset between 3 and 10",
        columns="partition,offset", archive=past.table(8),
    )  # fmt: skip
    assert offsets(frame) == [(1, at) for at in range(3, 11)]
    assert len(frame.inputFiles()) <= 6
    assert frame.inputFiles()


def test_archive_and_log_are_planned_with_the_store_opened_once(spark, past, monkeypatch):
    """It was opened for the archive, and again for the log, which took 7 ms each."""
    opens: list[str] = []
    make = penstock.Store.__init__

    def counted(store: penstock.Store, path: str, *arguments: object, **named: object) -> None:
        opens.append(path)
        make(store, path, *arguments, **named)

    table = past.table(8)
    monkeypatch.setattr(penstock.Store, "__init__", counted)
    assert offsets(read(spark, past.store.path, "orders", archive=table)) == ALL
    assert len(opens) == 1
    read(spark, past.store.path, "orders", archive=table, startingOffsets="earliest")
    aggregate(spark, past.store.path, "orders", {"all": "count"}, archive=table)
    assert len(opens) == 3


def test_the_archive_that_the_store_knows_of_is_used_by_itself(spark, store, tmp_path):
    topic = store.create_topic("orders", partitions=2)
    topic.write_many([b"%d" % n for n in range(300)], keys=[f"{n}" for n in range(300)])
    archive(store.path, "orders", tmp_path / "lake", spark=spark)
    topic.write_many([b"%d" % n for n in range(300, 350)], keys=[f"{n}" for n in range(50)])
    frame = read(spark, store.path, "orders")
    assert sorted(int(row.value) for row in frame.collect()) == list(range(350))
    assert frame.inputFiles()
    assert count(spark, store.path, "orders") == 350
    assert count(spark, store.path, "orders", where="int(string(value)) < 7") == 7
    assert not read(spark, store.path, "orders", archive=None).inputFiles()
    early = read(spark, store.path, "orders", startingOffsets="latest")
    assert early.count() == 0


def test_python_is_not_started_for_a_tail_that_has_nothing(spark, store, tmp_path):
    """18.8: what the archive has all of is read by Spark alone."""
    topic = store.create_topic("orders", partitions=2)
    for number, rows in enumerate((100, 200)):
        topic.write_many([b"%d" % n for n in range(rows)], partition=number)
    archive(store.path, "orders", tmp_path / "lake", spark=spark)

    def planned(where: str | None = None) -> tuple[int, bool]:
        frame = read(spark, store.path, "orders", where=where)
        return frame.count(), "MapInArrow" in frame._jdf.queryExecution().optimizedPlan().toString()

    assert planned() == (300, False)
    topic.write_many([b"%d" % n for n in range(50)], partition=0)
    assert planned() == (350, True)
    assert planned("offset < 100 and partition = 0") == (100, False)
    assert planned("partition = 1") == (200, False)
    assert planned("partition = 0 and offset > 90") == (59, True)


def test_an_archive_of_another_history_is_refused(spark, past):
    past.store.create_topic("other").write(b"x")
    with pytest.raises(penstock.ForeignArchive):
        read(spark, past.store.path, "other", archive=past.table(3))


def test_messages_are_counted_by_the_index(store):
    topic = store.create_topic("orders", segment_bytes="16KiB")
    for _ in range(30):
        topic.write_many([b"x" * 100] * 50)
    assert count(None, store.path, "orders") == 1500
    topic.alter(max_bytes="40KiB")
    topic.vacuum()
    left = sum(1 for batch in topic.scan() for _ in batch)
    assert 0 < left < 1500
    assert count(None, store.path, "orders") == left


@pytest.mark.parametrize("zone", ["UTC-05:00", "PST", "+02:00", "Europe/Berlin"])
def test_times_are_of_the_sessions_zone_however_it_is_spelled(spark, store, zone):
    """A zone that Python does not know was taken for UTC, and rows were missing without a word."""
    store.create_topic("orders", sync="os").write_many([b"x"] * 5)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        now = spark.sql("SELECT string(current_timestamp() + INTERVAL 1 MINUTE)").first()[0][:19]
        for where, rows in ((f"written_at <= timestamp '{now}'", 5), (f"written_at > '{now}'", 0)):
            assert read(spark, store.path, "orders", where=where, columns="offset").count() == rows
            if zone == "Europe/Berlin":
                made = aggregate(spark, store.path, "orders", {"n": "count"}, where=where)
                assert (made.first() or [0])[0] in (rows, None)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_aggregate_asks_for_the_zone_that_it_does_not_know(spark, store):
    store.create_topic("orders", sync="os").write_many([b"x"] * 5)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "PST")
    try:
        with pytest.raises(penstock.InvalidOption, match="times must say their zone"):
            aggregate(spark, store.path, "orders", {"n": "count"}, where="written_at > '2026-01-01 00:00:00'")
        made = aggregate(
            spark, store.path, "orders", {"n": "count"}, where="written_at > '2024-01-01 00:00:00Z'"
        )
        assert made.first()[0] == 5
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_a_store_that_is_not_there_is_told_in_words_that_help(spark, tmp_path):
    """The hint was that of `penstock.open`: create=True, which is no argument of these."""
    for asks in (
        lambda: read(spark, tmp_path / "nothing", "orders"),
        lambda: count(spark, tmp_path / "nothing", "orders"),
        lambda: aggregate(spark, tmp_path / "nothing", "orders", {"n": "count"}),
        lambda: to_topic(spark.range(1), tmp_path / "nothing", "orders"),
    ):
        with pytest.raises(penstock.NotAStore, match="name the folder of a store"):
            asks()


def test_a_read_is_what_there_was_when_it_was_called(spark, store, tmp_path):
    """18.8: log and archive are planned by the call, and are one moment."""
    topic = store.create_topic("orders")
    topic.write_many([b"archived"] * 10)
    archive(store.path, "orders", tmp_path / "lake", spark=spark)
    topic.write_many([b"live"] * 5)
    both, log = read(spark, store.path, "orders"), read(spark, store.path, "orders", archive=None)
    topic.write_many([b"later"] * 7)
    assert both.count() == log.count() == 15
    assert read(spark, store.path, "orders").count() == 22
