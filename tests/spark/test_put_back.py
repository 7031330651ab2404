"""Checkpoints and stores that were put back, apart from each other: nothing is left out in silence (18.1)."""

import shutil
from pathlib import Path

import pytest

import penstock
from penstock.spark import read, to_topic
from penstock.spark.pipelines.archive import archive
from tests.kit.pipelines import mirror, upsert
from tests.kit.sinks import batch_mark, refuse_put_back
from tests.spark.streams import stored


@pytest.fixture
def source(store):
    topic = store.create_topic("orders")
    topic.write_many([b"%d" % n for n in range(60)])
    return topic


@pytest.fixture
def other(tmp_path) -> Path:
    with penstock.open(tmp_path / "other") as other:
        other.create_topic("orders")
    return tmp_path / "other"


def put_back(folder: Path, backup: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(backup, folder)


def test_a_source_put_back_and_grown_by_as_many_messages_is_not_taken_for_mirrored(spark, other, tmp_path):
    """Its checkpoint went back with it: batch 1 came again, with as many rows, and was skipped."""

    def copy(numbers: range) -> None:
        with penstock.open(tmp_path / "data") as store:
            store.topic("orders").write_many([b"%d" % n for n in numbers])
            mirror(store, "orders", to=other, once=True, spark=spark)

    with penstock.open(tmp_path / "data") as store:
        store.create_topic("orders")
    copy(range(60))
    shutil.copytree(tmp_path / "data", tmp_path / "backup")
    copy(range(60, 100))
    put_back(tmp_path / "data", tmp_path / "backup")
    with pytest.raises(penstock.PipelineFailed, match=r"batch 1 .* other offsets") as raised:
        copy(range(1000, 1040))
    assert "penstock pipeline drop mirror-orders" in str(raised.value)
    assert "checkpointLocation" not in str(raised.value)
    with penstock.open(other) as copied:
        assert len(stored(copied.topic("orders"))) == 100


def test_a_mirror_put_back_is_noticed_also_when_there_is_nothing_new(spark, store, source, other, tmp_path):
    """It ended with success and no rows, and lacked what the mirror had had."""
    mirror(store, "orders", to=other, once=True, spark=spark)
    shutil.copytree(other, tmp_path / "backup")
    source.write(b"more")
    mirror(store, "orders", to=other, once=True, spark=spark)
    put_back(other, tmp_path / "backup")
    with pytest.raises(penstock.PenstockError, match=r"1 to 1 are not there.*put back") as raised:
        mirror(store, "orders", to=other, once=True, spark=spark)
    assert "penstock pipeline drop mirror-orders" in str(raised.value)


def test_a_stream_into_a_store_put_back_is_refused_when_it_starts(spark, store, source, other, tmp_path):
    def run() -> None:
        frames = spark.readStream.format("penstock").option("topic", "orders").load(store.path)
        query = to_topic(frames.select("value"), other, "orders", checkpoint=tmp_path / "c", once=True)
        query.awaitTermination()

    shutil.copytree(other, tmp_path / "backup")
    run()
    put_back(other, tmp_path / "backup")
    with pytest.raises(penstock.ConflictError, match=r"0 to 0 are not there.*put back"):
        run()


def checkpoint(folder: Path, offsets: dict[int, str], commits: int) -> str:
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    for number, text in offsets.items():
        (folder / "offsets" / f"{number}").write_text(text)
    for number in range(commits):
        (folder / "commits" / f"{number}").write_text("v1\n{}")
    (folder / "metadata").write_text('{"id":"6a1f"}')
    return str(folder)


def test_the_mark_of_a_batch_is_what_it_was_planned_to_read(tmp_path):
    texts = {
        0: 'v1\n{"batchTimestampMs":1}\n{"a":1}',
        1: 'v1\n{"batchTimestampMs":2}\n{"a":1}',
        2: "v1\n{}\n-",
    }
    path = checkpoint(tmp_path / "c", texts, 0)
    marks = [batch_mark(path, number) for number in range(3)]
    assert marks[0] == marks[1] != marks[2]
    assert batch_mark(f"file://{path}", 0) == marks[0] != ""
    assert batch_mark(path, 3) == batch_mark(None, 0) == batch_mark("s3://bucket/c", 0) == ""


def test_batches_that_spark_has_noted_and_the_store_lacks_are_told(store, tmp_path):
    path = checkpoint(tmp_path / "c", {}, 3)
    refuse_put_back(store, "nightly", path)  # a name of the user's own may be new to an old checkpoint
    refuse_put_back(store, "checkpoint/5f", str(tmp_path / "nothing"))
    for app in (None, "checkpoint/5f", "pipeline/copy/1"):
        with pytest.raises(penstock.ConflictError, match="0 to 2 are not there"):
            refuse_put_back(store, app, path)
    with store.transaction(name="spark/6a1f/2/10"):
        pass
    refuse_put_back(store, None, path)


@pytest.fixture
def fewer(spark, store, tmp_path):
    """Put the store back to when its topic had one partition; call it when the second was read."""
    topic = store.create_topic("orders")
    topic.write(b"first", partition=0)
    store.close()
    shutil.copytree(tmp_path / "data", tmp_path / "backup")
    with penstock.open(tmp_path / "data") as grown:
        grown.topic("orders").alter(partitions=2)
        grown.topic("orders").write(b"second", partition=1)
    return lambda: put_back(tmp_path / "data", tmp_path / "backup")


def test_a_partition_that_a_stream_had_read_is_missed(spark, fewer, tmp_path):
    """It was passed over, with success: the position was of a partition that nobody asked for."""

    def run() -> None:
        frames = spark.readStream.format("penstock").option("topic", "orders").load(str(tmp_path / "data"))
        frames.writeStream.format("noop").trigger(availableNow=True).option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        ).start().awaitTermination()

    run()
    fewer()
    with pytest.raises(
        Exception, match=r"stands at 1 of 'orders' partition 1, which the topic does not have"
    ):
        run()


def test_a_partition_that_an_archive_has_is_missed(spark, fewer, tmp_path):
    archive(tmp_path / "data", "orders", tmp_path / "lake", spark=spark)
    assert read(spark, tmp_path / "data", "orders").count() == 2
    fewer()
    with pytest.raises(penstock.HistoryChanged, match="partition 1, which the topic does not have"):
        read(spark, tmp_path / "data", "orders", archive=tmp_path / "lake")
    with pytest.raises(penstock.HistoryChanged, match="partition 1, which the topic does not have") as raised:
        archive(tmp_path / "data", "orders", tmp_path / "lake", spark=spark)
    assert "another table" in str(raised.value.hint)
    frame = spark.read.format("penstock").option("topic", "orders").option("history", str(tmp_path / "lake"))
    with pytest.raises(Exception, match="partition 1, which the topic does not have"):
        frame.load(str(tmp_path / "data")).count()


def test_a_partition_that_an_upsert_had_read_is_missed(fewer, tmp_path):
    with penstock.open(tmp_path / "data") as store:
        upsert(store, "orders", tmp_path / "current")
    fewer()
    with (
        penstock.open(tmp_path / "data") as store,
        pytest.raises(penstock.HistoryChanged, match="partition 1, which the topic does not have"),
    ):
        upsert(store, "orders", tmp_path / "current")
