"""`sessions`, `quality`, `mirror`, `enrich`, and `upsert` on Spark (18.9)."""

import json
import shutil

import pytest
from deltalake import DeltaTable, write_deltalake

import penstock
from tests.kit.pipelines import enrich, mirror, quality, sessions, upsert
from tests.spark.streams import as_bytes, stored

MINUTE = 60 * 10**9
NOON = 1_760_000_400 * 10**9


def objects(topic: penstock.Topic) -> list[dict]:
    return [json.loads(message.value) for message in stored(topic)]


def test_sessions_are_runs_of_a_group_without_a_long_pause(spark, store):
    clicks, visits = store.create_topic("clicks"), store.create_topic("visits")
    for key, minutes in (("a", (0, 5, 9, 60, 61)), ("b", (3,)), ("c", (500,))):
        for minute in minutes:
            clicks.write(b"12345", key=key, timestamp=NOON + minute * MINUTE)
    done = sessions(store, "clicks", "visits", gap="10m", once=True, spark=spark)
    assert (done.read, done.late) == (7, 0)
    found = sorted((row["group"], row["count"], row["bytes"], row["seconds"]) for row in objects(visits))
    assert found == [("a", 2, 12, 60.0), ("a", 3, 18, 540.0), ("b", 1, 6, 0.0)]
    assert {bytes(message.key) for message in stored(visits)} == {b"a", b"b"}
    with pytest.raises(penstock.InvalidOption, match="no SQL expression"):
        sessions(store, "clicks", "visits", gap="10m", by="nothing(", name="other", spark=spark)


def test_quality_divides_by_rules_in_one_transaction(spark, store):
    source, good, bad = (store.create_topic(name) for name in ("orders", "good", "bad"))
    source.write_many([b'{"id": 1}', b'{"id": 2}', b"broken", b'{"no": 3}'], keys=["a", None, "c", None])
    source.write(b"{}", key="e", headers={"trace": "t", "quality": "old"})
    rules = {"has id": "get_json_object(text, '$.id') IS NOT NULL", "has key": "key IS NOT NULL"}
    report = quality(store, "orders", good="good", bad="bad", rules=rules, once=True, spark=spark)
    assert (report.read, report.passed, report.failed) == (5, 1, 4)
    assert report.rules == {"has id": 3, "has key": 2}
    assert [message.value for message in stored(good)] == [b'{"id": 1}']
    reasons = {bytes(m.value): as_bytes(m.headers) for m in stored(bad)}
    assert reasons[b"broken"] == {"quality": b"has id"}
    assert reasons[b'{"no": 3}'] == {"quality": b"has id,has key"}
    assert reasons[b"{}"] == {"trace": b"t", "quality": b"has id"}
    source.write(b'{"id": 9}', key="z")
    again = quality(store, "orders", good="good", bad="bad", rules=rules, once=True, spark=spark)
    assert (again.read, again.passed) == (1, 1)
    assert len(stored(good)) + len(stored(bad)) == 6
    for wrong in ({}, {"a,b": "true"}, {"x": "nothing("}):
        with pytest.raises(penstock.InvalidOption):
            quality(store, "orders", good="good", bad="bad", rules=wrong, name="w", spark=spark)


def test_quality_wants_two_topics(store):
    for name in ("orders", "good"):
        store.create_topic(name)
    with pytest.raises(penstock.InvalidOption, match="would both go to 'good'"):
        quality(store, "orders", good="good", bad="good", rules={"has a key": "key IS NOT NULL"}, once=True)


def test_a_mirror_has_the_same_messages_in_the_same_partitions(spark, store, tmp_path):
    source = store.create_topic("orders", partitions=3)
    source.write_many(
        [b"%d" % n for n in range(60)],
        keys=[f"k{n}" for n in range(60)],
        headers=[{"n": f"{n}"} for n in range(60)],
    )
    source.write(None, key="k1")
    with penstock.open(tmp_path / "other") as other:
        copy = other.create_topic("orders", partitions=3)
    assert mirror(store, "orders", to=tmp_path / "other", once=True, spark=spark).copied == 61
    source.write(b"more", key="k2")
    assert mirror(store, "orders", to=tmp_path / "other", once=True, spark=spark).copied == 1
    with penstock.open(tmp_path / "other") as other:
        copy = other.topic("orders")

        def told(topic):
            return [(m.partition, m.offset, m.key, m.value, as_bytes(m.headers)) for m in stored(topic)]

        assert told(copy) == told(source)
    with pytest.raises(penstock.InvalidOption, match="into itself"):
        mirror(store, "orders", to=store.path, spark=spark)
    with pytest.raises(penstock.InvalidOption, match=r"no store to mirror into.*--create"):
        mirror(store, "orders", to=tmp_path / "nothing", spark=spark)


def test_a_mirror_put_back_to_before_its_first_batch_is_noticed(spark, store, tmp_path):
    """Batch 1 was taken for the first of a new writer, and what batch 0 had was missing without a word."""
    source = store.create_topic("orders")
    source.write(b"1")
    with penstock.open(tmp_path / "other") as other:
        other.create_topic("orders")
    shutil.copytree(tmp_path / "other", tmp_path / "backup")
    assert mirror(store, "orders", to=tmp_path / "other", once=True, spark=spark).copied == 1
    shutil.rmtree(tmp_path / "other")
    shutil.copytree(tmp_path / "backup", tmp_path / "other")
    source.write(b"2")
    with pytest.raises(penstock.ConflictError, match=r"0 to 0 are not there.*put back"):
        mirror(store, "orders", to=tmp_path / "other", once=True, spark=spark)


def test_enrich_adds_the_row_that_belongs_to_a_message(spark, store, tmp_path):
    import pyarrow as pa

    source, sink = store.create_topic("orders"), store.create_topic("full")
    table = str(tmp_path / "customers")
    rows = {"id": ["c1", "c2", None], "name": ["Ada", 'B"ob', "x"], "age": [36, None, 1]}
    write_deltalake(table, pa.table(rows))
    source.write_many(
        [b'{"id":1,"c":"c1"}', b' {"c":"c2"} ', b'{"c":"c9"}', b"{}", b'plain "text"', None], keys=["a"] * 6
    )
    done = enrich(
        store, "orders", "full", table=table, on="get_json_object(text, '$.c')", column="id", into="who",
        once=True, spark=spark,
    )  # fmt: skip
    assert done.read == 6
    found = [message.value for message in stored(sink)]
    assert found.count(None) == 1
    told = {json.dumps(json.loads(each), sort_keys=True) for each in found if each is not None}
    expected = [
        {"id": 1, "c": "c1", "who": {"id": "c1", "name": "Ada", "age": 36}},
        {"c": "c2", "who": {"id": "c2", "name": 'B"ob'}}, {"c": "c9", "who": None}, {"who": None},
        {"value": 'plain "text"', "who": None},
    ]  # fmt: skip
    assert told == {json.dumps(each, sort_keys=True) for each in expected}
    with pytest.raises(penstock.InvalidOption, match="no column 'nothing'"):
        enrich(store, "orders", "full", table=table, column="nothing", name="o", spark=spark)
    write_deltalake(table, pa.table(rows), mode="append")
    with pytest.raises(penstock.InvalidOption, match="more than once"):
        enrich(store, "orders", "full", table=table, column="id", name="o", spark=spark)


def test_upsert_on_spark_with_fields_of_json(spark, store, tmp_path):
    topic = store.create_topic("users", partitions=2)
    topic.write_many(
        [json.dumps({"name": f"n{n}", "age": n}) for n in range(50)], keys=[f"k{n % 5}" for n in range(50)]
    )
    topic.write(None, key="k0")
    table = tmp_path / "users"
    done = upsert(store, "users", table, schema="name string, age int", engine="spark", spark=spark)
    assert (done.read, done.written) == (51, 4)
    found = {row["key"]: row for row in DeltaTable(str(table)).to_pyarrow_table().to_pylist()}
    assert {key: row["age"] for key, row in found.items()} == {b"k%d" % n: 45 + n for n in range(1, 5)}
    assert found[b"k4"]["name"] == "n49"
