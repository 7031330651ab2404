"""Values outside the log, in Spark: fetched or told, written, listed, swept."""

import json
import logging
import os
import subprocess
import sys
from hashlib import sha256

import pytest

import penstock
from penstock import Payloads
from penstock.spark.pipelines.archive import archive
from penstock.spark.pipelines.sweep import sweep
from tests.kit.bodies import path_of
from tests.kit.patience import PATIENCE_S
from tests.kit.slices import batches_module as batches
from tests.kit.slices import bodies_module as bodies
from tests.kit.slices import divided, parse, survey, view_rows
from tests.payloads.kit import KIB, body, objects, referred, values
from tests.payloads.sweep_scene import bodies_of, check_found, check_kept, scene

SENT = [b"small", None, b"", body(2 * KIB), body(3 * KIB), b"x" * 4 * KIB, body(2 * KIB)]
COLUMNS = {"offset": False, "value": True, "reference": True}


@pytest.fixture
def topic(store):
    """A pack of two, two bodies alone, one of them packed by a codec; a tombstone, and values in the log."""
    topic = store.create_topic("images", payloads=Payloads(above="1KiB", pack="4KiB"))
    topic.write_many(SENT[:5])
    with topic.writer(codec="gzip") as writer:
        writer.write(SENT[5])
    topic.write(SENT[6])
    return topic


def read(store, **options) -> list[dict]:
    """What a task yields, without Spark."""
    asked = parse({"path": store.path, "topic": "images", **options})
    null, fetched = asked.on_decode_error == "null", asked.payload == "fetch"
    return [
        row
        for planned in divided(survey(asked))
        for batch in batches.read(planned, COLUMNS, null_undecodable=null, fetched=fetched)
        for row in batch.to_pylist()
    ]


def told(row, topic) -> None:
    """What is said of a body leads to it."""
    with open(row["path"], "rb") as file:
        data = file.read()[row["start"] :][: row["size"]]
    assert sha256(data).hexdigest() == row["sha256"]
    assert bodies_of(topic).get(row["name"], row["start"], row["size"]) == data


# Reading.


def test_batch_and_stream_give_what_was_written(spark, store, load, topic, tmp_path):
    rows = load("images", columns="offset,value,codec,reference").orderBy("offset").collect()
    assert [None if row.value is None else bytes(row.value) for row in rows] == SENT
    outside = [row.offset for row in rows if row.reference is not None]
    assert outside == [row.offset for row in rows if row.codec == "reference"] == [3, 4, 6]
    for row in rows:
        if row.reference is not None:
            told(row.reference.asDict(), topic)
    # Both ways in one query.
    stream = spark.readStream.format("penstock").option("topic", "images")
    both = [stream.option("payload", way).load(store.path).selectExpr("offset", f"'{way}' AS way", "value")
            for way in ("fetch", "reference")]  # fmt: skip
    query = (
        both[0].unionAll(both[1]).writeStream.format("memory").queryName("both_ways")
        .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination(300)
    found = {
        (row.way, row.offset): None if row.value is None else bytes(row.value)
        for row in spark.table("both_ways").collect()
    }
    assert [found["fetch", offset] for offset in range(len(SENT))] == SENT
    for offset, value in enumerate(SENT):
        if offset in outside:
            told(json.loads(found["reference", offset]), topic)
        else:
            assert found["reference", offset] == value


def test_a_task_reads_both_ways(store, topic):
    assert [row["value"] for row in read(store)] == SENT
    rows = read(store, payload="reference")
    assert [row["value"] is None for row in rows] == [value is None for value in SENT]
    for row in rows:
        if row["reference"] is not None:
            assert json.loads(row["value"]) == row["reference"]
            told(row["reference"], topic)
    packed = [row["reference"]["packed"] for row in rows if row["reference"] is not None]
    assert packed == [True, True, False]


def test_bodies_are_read_in_portions_that_fit_into_memory(store, monkeypatch):
    topic = store.create_topic("images", payloads=Payloads(above="1KiB", pack=0))
    sent = [body(4 * KIB) if n % 3 else b"small" for n in range(60)]
    topic.write_many(sent)
    monkeypatch.setattr(bodies, "_PORTION_BYTES", 10 * KIB)
    monkeypatch.setattr(batches, "_BYTES_ENOUGH", KIB)
    asked = parse({"path": store.path, "topic": "images"})
    made = [batch for planned in survey(asked) for batch in batches.read(planned, {"value": True})]
    assert [value for batch in made for value in batch.column("value").to_pylist()] == sent
    assert len(made) > 10
    assert max(batch.nbytes for batch in made) < 12 * KIB


def test_a_missing_and_a_wrong_body_are_named(store, topic, caplog):
    place, pack, alone = bodies_of(topic), topic.get(3).reference, topic.get(6).reference
    with open(f"{place.folder}/{path_of(pack.name)}", "r+b") as file:
        file.seek(10)
        file.write(b"other bytes")
    with pytest.raises(penstock.Corrupt, match="offset 3 of 'images' partition 0"):
        read(store)
    place.delete([alone.name])
    with pytest.raises(penstock.BodyMissing, match="offset 6 of 'images' partition 0"):
        read(store, startingOffsets='{"images": {"0": 5}}')
    with caplog.at_level(logging.WARNING, "penstock.spark"):
        rows = read(store, onDecodeError="null")
    expected = [None if n in (3, 6) else value for n, value in enumerate(SENT)]
    assert [row["value"] for row in rows] == expected
    assert rows[6]["reference"]["name"] == alone.name  # else it would pass for a tombstone
    assert len(caplog.records) == 2
    assert len(read(store, payload="reference")) == len(SENT)


def test_a_body_that_no_row_can_hold_is_refused(store, topic, monkeypatch):
    monkeypatch.setattr(bodies, "_ROW_BYTES_MOST", 2 * KIB)
    with pytest.raises(penstock.MessageTooLarge, match=r"offset 4 .* does not fit"):
        read(store)


def test_options_that_cannot_be_are_refused(store, topic, tmp_path):
    for options in (
        {"payload": "inline"},
        {"payload": "reference", "history": str(tmp_path)},
        {"columns": "reference", "history": str(tmp_path)},
    ):
        with pytest.raises(penstock.InvalidOption):
            parse({"path": store.path, "topic": "images", **options})


def test_a_task_that_reads_files_needs_no_obstore(store, topic):
    code = (
        "import sys; sys.path.insert(0, '.'); from tests.spark.test_payloads import read; import penstock\n"
        f"store = penstock.open({store.path!r}); assert len(read(store)) == {len(SENT)}\n"
        "assert 'obstore' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE_S, capture_output=True)


@pytest.mark.slow
def test_an_archive_holds_the_values_themselves(spark, store, topic, tmp_path):
    import deltalake

    archive(store.path, "images", str(tmp_path / "table"), spark=spark)
    table = deltalake.DeltaTable(tmp_path / "table").to_pyarrow_table(columns=["offset", "value"])
    assert [row["value"] for row in table.sort_by("offset").to_pylist()] == SENT


# Listing and sweeping.


def test_sweep_on_spark_and_the_view_it_reads(spark, store):
    there = scene(store)
    store.create_topic("plain")
    view = spark.read.format("penstock").option("view", "payloads").load(store.path)
    rows = {row.name: row for row in view.collect()}
    assert sorted(rows) == objects(there.topic)
    assert [(row.name, row.size) for row in rows.values() if row.pack] == [(there.partly_dead, 4 * KIB)]
    assert {(row.topic, row.place) for row in rows.values()} == {("images", "files")}
    assert all(os.path.getsize(row.path) == row.size for row in rows.values())
    done = sweep(store, "images", engine="spark", spark=spark, apply=True)
    check_found(there, done)
    assert (done.engine, done.deleted, done.deleted_bytes) == ("spark", 3, 9 * KIB)
    check_kept(there)


def test_the_view_of_consumers_knows_those_of_streams(store):
    stream = store.stream("events")
    for subject in ("a", "b", "a", "a"):
        stream.publish(subject, b"x")
    stream.update_consumer_position("worker", "a", 1)
    store.topic("events").add_consumer("billing")
    rows = view_rows(parse({"path": store.path, "view": "consumers"}))
    assert [(row[1], row[3], row[4], row[5], row[8]) for row in rows] == [
        ("billing", 0, 4, 4, None),
        ("worker", 1, 4, 2, "a"),
    ]


# Writing.


def test_large_values_go_outside(spark, store):
    store.create_topic("source", payloads=Payloads(above="1KiB"))
    store.topic("source").write_many(SENT, keys=[b"k%d" % n for n in range(len(SENT))], headers={"a": "b"})
    sink = store.create_topic(
        "images", partitions=2, payloads=Payloads(above="1KiB"), max_message_bytes="2KiB"
    )
    rows = spark.read.format("penstock").options(topic="source", includeHeaders="true").load(store.path)
    rows.write.format("penstock").mode("append").option("topic", "images").save(store.path)
    written = {m.key: (m.value, m.headers["a"]) for m in sink.scan().messages()}
    assert written == {b"k%d" % n: (value, b"b") for n, value in enumerate(SENT)}
    times = {m.key: m.timestamp // 1000 for m in sink.scan().messages()}
    assert times == {m.key: m.timestamp // 1000 for m in store.topic("source").scan().messages()}
    assert set(objects(sink)) == referred(sink) != set()


def test_a_task_that_fails_leaves_no_bodies(store):
    import pyarrow as pa

    from tests.kit.sinks import WriteRows, stage_rows, target

    topic = store.create_topic("images", payloads=Payloads(above="1KiB", max_body="64KiB"))

    def rows():
        yield WriteRows(pa.record_batch({"value": pa.array([body(50 * KIB)] * 30, pa.binary())}), None, None)
        assert len(objects(topic)) > 0
        yield WriteRows(pa.record_batch({"value": pa.array([body(70 * KIB)], pa.binary())}), None, None)

    with pytest.raises(penstock.MessageTooLarge):
        stage_rows(rows(), target(store.path, "images"), turn=0)
    assert objects(topic) == []
    assert values(topic) == []
