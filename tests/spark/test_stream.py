"""`spark.readStream.format("penstock")` in a real session."""

import shutil
import time
from pathlib import Path

import pytest

import penstock
from tests.kit.patience import PATIENCE_S


@pytest.fixture
def topic(store):
    return store.create_topic("orders", partitions=2, segment_bytes="16KiB")


class Stream:
    """Runs a stream over the store into a table in memory or files; the checkpoint stays between runs."""

    def __init__(self, spark, store: penstock.Store, folder: Path) -> None:
        self.spark, self.store, self.folder = spark, store, folder

    def start(self, *, checkpoint: str = "checkpoint", sink: str = "parquet", trigger=None, **options: str):
        chosen = options if "subscribe" in options else {"topic": "orders", **options}
        frame = self.spark.readStream.format("penstock").options(**chosen).load(self.store.path)
        writer = frame.writeStream.format(sink).option("checkpointLocation", str(self.folder / checkpoint))
        if sink == "parquet":
            writer = writer.option("path", str(self.folder / "out"))
        return writer.trigger(**(trigger or {"availableNow": True})).start()

    def run(self, **options):
        """To the present end; returns how many rows each batch had."""
        running = self.start(**options)
        running.awaitTermination()
        return [progress.numInputRows for progress in running.recentProgress]

    def rows(self) -> list[tuple[int, int]]:
        found = self.spark.read.parquet(str(self.folder / "out")).select("partition", "offset")
        return sorted(tuple(row) for row in found.collect())


@pytest.fixture
def stream(spark, store, tmp_path) -> Stream:
    return Stream(spark, store, tmp_path)


def everything(topic: penstock.Topic) -> list[tuple[int, int]]:
    return [(each.partition, n) for each in topic.stats().partitions for n in range(each.start, each.end)]


def test_available_now_reads_all_in_limited_batches_goes_on_and_tells_its_lag(topic, stream):
    """Small and large frames, a partition added meanwhile, three runs of one query; S001 order at gates."""
    for number in range(20):
        topic.write(b"%d" % number, partition=number % 2)
    topic.write_many([b"x"] * 80, partition=0)
    assert stream.run(consumer="billing", maxOffsetsPerTrigger="30") == [30, 30, 30, 10]
    assert stream.rows() == everything(topic)
    (seen,) = topic.consumers()
    assert (seen.consumer, seen.lag, seen.positions) == ("billing", 0, {0: 90, 1: 10})
    topic.write_many([b"x"] * 5, partition=0)
    topic.alter(partitions=3)
    topic.write_many([b"y"] * 7, partition=2)
    assert topic.consumers()[0].lag == 12
    assert stream.run(consumer="billing") == [5, 7]
    assert stream.run(consumer="billing") in ([], [0])
    assert stream.rows() == everything(topic)
    assert topic.consumers()[0].lag == 0


def test_batch_whose_commit_was_lost_is_run_again_with_the_same_rows(topic, stream, tmp_path):
    topic.write_many([b"x"] * 10, partition=0)
    stream.run(sink="noop")
    (tmp_path / "checkpoint" / "commits" / "0").unlink()
    (tmp_path / "checkpoint" / "commits" / ".0.crc").unlink(missing_ok=True)
    topic.write_many([b"x"] * 5, partition=0)
    assert stream.run() == [10, 5]
    assert stream.rows() == everything(topic)


def test_live_query_sees_what_is_written_and_refuses_what_it_must(store, topic, stream, spark):
    running = stream.start(sink="noop", consumer="billing", trigger={"processingTime": "0 seconds"})
    try:
        deadline = time.monotonic() + PATIENCE_S
        for number in range(3):
            topic.write(b"%d" % number)
            while topic.consumers() == [] or topic.consumers()[0].lag:
                assert time.monotonic() < deadline, running.exception()
                time.sleep(0.05)
        with pytest.raises(
            Exception, match="consumer 'billing' of 'orders' is used by another running query"
        ):
            stream.run(checkpoint="second", sink="noop", consumer="billing")
        store.drop_topic("orders")
        with pytest.raises(Exception, match="'orders' was dropped while the query was reading it"):
            running.awaitTermination(60)
    finally:
        running.stop()


def test_what_is_wrong_is_told_at_once(store, topic, stream, tmp_path):
    """Each in the words of the store, in Spark's exception."""
    topic.write_many([b"x"] * 10, partition=0)
    for told, options in (
        ("no topic 'order'", {"subscribe": "orders,order"}),
        ("endingOffsets is for batch reads", {"endingOffsets": "latest"}),
        ("beyond the end", {"startingOffsets": '{"orders": {"0": 99}}'}),
    ):
        with pytest.raises(Exception, match=told):
            stream.run(checkpoint=told, sink="noop", **options)
    stream.run(sink="noop")
    store.drop_topic("orders")
    store.create_topic("orders", segment_bytes="16KiB")
    with pytest.raises(Exception, match="'orders' was dropped and created again since the checkpoint"):
        stream.run(sink="noop")


@pytest.mark.slow
def test_retention_that_overtook_the_query_is_told_or_passed_over(store, stream):
    topic = store.create_topic("orders", segment_bytes="16KiB", sync="os")
    topic.write_many([b"x"] * 10)
    stream.run()
    for _ in range(20):
        topic.write_many([b"x" * 100] * 50)
    topic.alter(max_bytes=20_000)
    topic.vacuum()
    start = topic.stats().partitions[0].start
    shutil.copytree(stream.folder / "checkpoint", stream.folder / "copy")
    with pytest.raises(
        Exception, match=f"'orders' partition 0, offsets 10 to {start - 1}; the first one left"
    ):
        stream.run(checkpoint="copy", sink="noop")
    stream.run(failOnDataLoss="false")
    assert stream.rows() == [(0, n) for n in (*range(10), *range(start, 1010))]
