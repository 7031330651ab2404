"""`penstock.spark.to_topic`: every output mode, each batch once (18.6)."""

import json
import shutil

import pytest

import penstock
from penstock.spark import to_topic
from tests.kit.pipelines import clear_unbegun
from tests.spark.streams import stored


@pytest.fixture
def topics(store):
    store.create_topic("orders", sync="os")
    store.create_topic("counts", sync="os")
    store.create_topic("latest", sync="os", index="key")
    return store


def counts(spark, store):
    orders = spark.readStream.format("penstock").option("topic", "orders").option("columns", "key")
    grouped = orders.load(store.path).groupBy("key").count()
    return grouped.selectExpr("key", "string(count) AS value")


def write(store, keys: str) -> None:
    store.topic("orders").write_many([b"x"] * len(keys), keys=list(keys))


def latest(topic: penstock.Topic) -> dict[str, int]:
    return {message.key.decode(): int(message.value) for message in stored(topic)}


def run(spark, store, sink: str, checkpoint, **options) -> None:
    query = to_topic(counts(spark, store), store.path, sink, checkpoint=checkpoint, once=True, **options)
    query.awaitTermination()


def test_update_writes_what_changed_and_a_batch_that_comes_again_is_skipped(spark, topics, tmp_path):
    sink, checkpoint = topics.topic("counts"), tmp_path / "checkpoint"
    write(topics, "aab")
    run(spark, topics, "counts", checkpoint, output_mode="update")
    assert latest(sink) == {"a": 2, "b": 1}
    write(topics, "bc")
    run(spark, topics, "counts", checkpoint, output_mode="update")
    assert latest(sink) == {"a": 2, "b": 2, "c": 1}
    assert len(stored(sink)) == 4
    for name in ("1", ".1.crc"):  # as if Spark had died between our commit and its own
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    run(spark, topics, "counts", checkpoint, output_mode="update")
    assert len(stored(sink)) == 4


def test_complete_is_the_latest_of_each_key_in_a_topic_with_an_index(spark, topics, tmp_path):
    write(topics, "aab")
    with pytest.raises(penstock.InvalidOption, match='index="key"'):
        to_topic(
            counts(spark, topics), topics.path, "counts", output_mode="complete", checkpoint=tmp_path / "c"
        )
    for keys, there in (("", {"a": 2, "b": 1}), ("ac", {"a": 3, "b": 1, "c": 1})):
        if keys:
            write(topics, keys)
        run(spark, topics, "latest", tmp_path / "checkpoint", output_mode="complete")
        assert latest(topics.topic("latest")) == there


def test_a_deleted_checkpoint_is_refused_and_not_written_again(spark, topics, tmp_path):
    write(topics, "ab")
    run(spark, topics, "counts", tmp_path / "checkpoint", output_mode="update")
    shutil.rmtree(tmp_path / "checkpoint")
    with pytest.raises(Exception, match="belongs to the checkpoint of query"):
        run(spark, topics, "counts", tmp_path / "checkpoint", output_mode="update")
    assert len(stored(topics.topic("counts"))) == 2


def test_batches_are_written_at_once(spark, topics):
    frame = spark.range(5).selectExpr("string(id) AS value")
    assert to_topic(frame, topics.path, "counts") is None
    assert sorted(int(m.value) for m in stored(topics.topic("counts"))) == [0, 1, 2, 3, 4]
    with pytest.raises(penstock.InvalidOption, match="is for streams"):
        to_topic(frame, topics.path, "counts", output_mode="update")
    with pytest.raises(penstock.UsageError, match="needs a checkpoint"):
        to_topic(counts(spark, topics), topics.path, "counts", output_mode="update")


def test_a_query_killed_while_it_wrote_its_first_offsets_begins_again(spark, topics, tmp_path):
    """18.3: Spark 4.3 refused such a checkpoint with STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY."""
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / ".0.0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0.tmp").write_bytes(b"v1\n{")
    write(topics, "ab")
    run(spark, topics, "counts", checkpoint, output_mode="update")
    assert latest(topics.topic("counts")) == {"a": 1, "b": 1}


def test_what_a_query_left_that_has_not_begun_is_removed_and_nothing_else(tmp_path):
    begun, unbegun = tmp_path / "begun", tmp_path / "unbegun"
    for folder in (begun, unbegun):
        for name in ("offsets", "commits", "state"):
            (folder / name).mkdir(parents=True)
        (folder / "metadata").write_text(json.dumps({"id": "q"}))
        (folder / "offsets" / ".1.aaaa.tmp").write_text("")
        (folder / "state" / "0").write_text("")
    (begun / "offsets" / "0").write_text("v1")
    for folder in (begun, unbegun, tmp_path / "nothing"):
        clear_unbegun(str(folder))
    assert sorted(path.name for path in unbegun.rglob("*")) == ["metadata"]
    assert len(list(begun.rglob("*"))) == 7
