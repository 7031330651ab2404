"""From Arrow batches to messages in topics, by tasks and a driver of our own: no Spark."""

import json
import os
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import penstock
from penstock.errors import (
    ConflictError,
    InvalidOption,
    MessageTooLarge,
    NotAStore,
    TopicReplaced,
    UnknownTopic,
    WrongType,
)
from penstock.testing import Clock
from tests.kit.sinks import Shape, TaskResult, WriterCommit, abort, commit, frames_of, stage, target

HEADERS = pa.map_(pa.string(), pa.binary())
TIME = pa.timestamp("us", tz="UTC")
FAR_AWAY = pa.array([2**62], pa.int64()).view(TIME)
QUERY = "6a1f"


@pytest.fixture
def topic(store):
    return store.create_topic("orders", partitions=3, segment_bytes="1MiB")


def table(**columns) -> pa.RecordBatch:
    kinds = {"value": pa.binary(), "key": pa.binary(), "headers": HEADERS, "partition": pa.int32()}
    kinds |= {"topic": pa.string(), "timestamp": TIME}
    arrays = [
        each if isinstance(each, pa.Array) else pa.array(each, kinds[name]) for name, each in columns.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, list(columns))


def shape_of(batch: pa.RecordBatch) -> Shape:
    return Shape(**{name: batch.schema.get_field_index(name) for name in batch.schema.names})


def staged(plan, *batches: pa.RecordBatch, task: int = 0, shape: Shape | None = None) -> TaskResult:
    topics = stage(iter(batches), shape or shape_of(batches[0]), plan, turn=task)
    return TaskResult(task, topics, {name: plan.topics[name] for name in topics})


def written(
    store, *batches: pa.RecordBatch, topic: str | None = "orders", shape: Shape | None = None
) -> None:
    plan = target(store.path, topic)
    commit(store.path, [staged(plan, *batches, shape=shape)], None)


def files(store) -> list[str]:
    return [name for _, _, names in os.walk(store.path) for name in names if name.endswith(".staged")]


def messages(topic, partition: int) -> list[penstock.Message]:
    return [message for batch in topic.scan(partition=partition) for message in batch]


def values(topic, partition: int) -> list[bytes | None]:
    return [message.value for message in messages(topic, partition)]


def everything(topic) -> list[bytes | None]:
    return [value for number in range(topic.options.partitions) for value in values(topic, number)]


# Messages.


def test_all_parts_of_a_message_arrive(store, topic):
    moment = datetime(2024, 2, 29, 12, 30, 0, 123456, tzinfo=UTC)
    batch = table(
        value=[b"a", None, b""], key=[b"k", None, b""], partition=[1, 1, 1],
        headers=[[("n", b"1"), ("m", b"")], None, [("n", b"\xff")]], timestamp=[moment, None, moment],
    )  # fmt: skip
    written(store, batch)
    found = messages(topic, 1)
    assert [(m.value, m.key, dict(m.headers)) for m in found] == [
        (b"a", b"k", {"n": b"1", "m": b""}), (None, None, {}), (b"", b"", {"n": b"\xff"}),
    ]  # fmt: skip
    assert found[0].time == found[2].time == moment
    assert abs(found[1].timestamp - found[1].written_at) < 600 * 10**9


@pytest.mark.parametrize("text", [pa.string(), pa.large_string(), pa.large_binary()])
def test_text_and_large_columns_are_taken(store, topic, text):
    headers = pa.array([[("h", "x")], []], pa.map_(pa.string(), text))
    written(store, table(value=pa.array(["é", None], text), key=pa.array(["k", "k"], text), headers=headers))
    found = [m for number in range(3) for m in messages(topic, number)]
    assert [(m.value, m.key) for m in found] == [("é".encode(), b"k"), (None, b"k")]
    assert found[0].headers["h"] in ("x", b"x")


def test_headers_of_kafkas_shape_are_taken_and_text_stays_text(store, topic):
    entry = pa.struct([("key", pa.string()), ("value", pa.string())])
    headers = pa.array([None, [{"key": "a", "value": "1"}, {"key": "b", "value": ""}], []], pa.list_(entry))
    written(store, table(value=[b"0", b"1", b"2"], partition=[0, 0, 0], headers=headers).slice(1, 2))
    assert [dict(m.headers) for m in messages(topic, 0)] == [{"a": "1", "b": ""}, {}]


def test_every_slice_of_a_batch_holds_its_own_rows(store, topic):
    """Frames are cut from Arrow's buffers: whatever the offset, bits and bytes are those of the row."""
    count = 50
    batch = table(
        value=[None if n % 3 == 0 else b"v" * (n % 7) + b"%d" % n for n in range(count)],
        key=[None if n % 4 == 0 else b"k%d" % n for n in range(count)],
        headers=[[("n", b"%d" % n)] * (n % 2) for n in range(count)],
        timestamp=pa.array([n * 1000 for n in range(count)], pa.int64()).view(TIME),
        partition=[0] * count,
    )
    for first in range(0, count, 3):
        written(store, batch.slice(first, 11))
    rows = list(zip(*(batch.column(i).to_pylist() for i in range(3)), strict=True))
    expected = [(n, rows[n]) for first in range(0, count, 3) for n in range(first, min(first + 11, count))]
    found = messages(topic, 0)
    assert len(found) == len(expected)
    for message, (n, (value, key, headers)) in zip(found, expected, strict=True):
        assert (message.value, message.key, list(message.headers.items())) == (value, key, headers)
        assert message.timestamp == n * 1_000_000


def test_large_values_among_small_ones_make_frames_that_are_small_enough(store, topic):
    sizes = [10] * 500 + [900_000] * 5 + [10] * 500 + [1_000_000]
    batch = table(value=[bytes([n % 251]) * size for n, size in enumerate(sizes)], partition=[2] * len(sizes))
    assert max(draft.size for draft in frames_of(batch.select(["value"]))) < 2**20 + 2**16
    written(store, batch)
    assert values(topic, 2) == batch.column("value").to_pylist()
    assert not files(store)


def test_headers_do_not_make_frames_small():
    headers = pa.array([[("name", b"value")]] * 10_000, HEADERS)
    batch = table(value=[b"." * 200] * 10_000, headers=headers)
    assert [draft.count for draft in frames_of(batch)] == [3333, 3333, 3334]


def test_compressed_topic_gets_compressed_frames(store):
    topic = store.create_topic("small", compress="zstd")
    written(store, table(value=[b"again and again" * 10] * 2000), topic="small")
    assert values(topic, 0) == [b"again and again" * 10] * 2000
    assert topic.stats().bytes < 50_000


def test_row_without_value_becomes_json(store, topic):
    moment = datetime(2024, 2, 29, 12, 30, tzinfo=UTC)
    batch = pa.table(
        {
            "id": pa.array([1, None], pa.int64()), "price": pa.array([Decimal("1.50"), None]),
            "at": pa.array([moment, None], TIME), "on": pa.array([date(2024, 2, 29), None]),
            "raw": pa.array([b"\xff", None]), "ok": [True, None], "who": ['"é"', None],
            "tags": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
            "list": [[{"x": 1.5}], None],
        }
    ).to_batches()[0]  # fmt: skip
    written(store, batch, shape=Shape(None, key=batch.schema.get_field_index("who")))
    by_key = {message.key: json.loads(message.value) for n in range(3) for message in messages(topic, n)}
    assert by_key[None] == dict.fromkeys(batch.schema.names)
    assert by_key['"é"'.encode()] == {
        "id": 1, "price": 1.5, "at": "2024-02-29T12:30:00Z", "on": "2024-02-29", "raw": "/w==", "ok": True,
        "who": '"é"', "tags": {"a": 1}, "list": [{"x": 1.5}],
    }  # fmt: skip


# Where they go.


@pytest.mark.parametrize("partitioner", ["range", "diskq", "kafka"])
def test_keys_choose_as_they_do_for_other_writers(store, partitioner):
    ours = store.create_topic("ours", partitions=5, partitioner=partitioner)
    theirs = store.create_topic("theirs", partitions=5, partitioner=partitioner)
    keys = [b"key-%d" % (n % 40) for n in range(1000)]
    numbers = [b"%d" % n for n in range(1000)]
    written(store, table(value=numbers, key=keys), topic="ours")
    theirs.write_many(numbers, keys=keys)
    for partition in range(5):
        assert values(ours, partition) == values(theirs, partition) != []


@pytest.mark.parametrize("partitioner", ["range", "kafka"])
def test_rows_with_and_without_keys_in_one_batch(store, partitioner):
    """Keys choose as ever, also an empty one; rows without one go to the partition whose turn it is."""
    topic = store.create_topic("ours", partitions=5, partitioner=partitioner)
    theirs = store.create_topic("theirs", partitions=5, partitioner=partitioner)
    keys = [None if n % 3 == 0 else b"" if n % 3 == 1 else b"key-%d" % n for n in range(300)]
    numbers = [b"with" if key is not None else b"without" for key in keys]
    plan = target(store.path, "ours")
    shares = [staged(plan, table(value=numbers, key=keys), task=task) for task in range(5)]
    commit(store.path, shares, None)
    there = [key for key in keys if key is not None] * 5
    theirs.write_many([b"with"] * len(there), keys=there)
    for partition in range(5):
        found = values(topic, partition)
        assert found.count(b"with") == len(values(theirs, partition)) > 0
        assert found.count(b"without") == 100


def test_partition_column_comes_before_the_key_and_null_leaves_it_to_the_key(store, topic):
    keys = [b"a", b"b", b"c", b"d"]
    written(store, table(value=keys, key=keys, partition=[None] * 4))
    by_key = {v: n for n in range(3) for v in values(topic, n)}
    other = [(by_key[key] + 1) % 3 for key in keys]
    written(store, table(value=keys, key=keys, partition=[other[0], None, other[2], None]))
    assert values(topic, other[0]).count(b"a") == values(topic, other[2]).count(b"c") == 1
    assert values(topic, by_key[b"b"]).count(b"b") == values(topic, by_key[b"d"]).count(b"d") == 2


def test_rows_without_a_key_are_spread_over_batches_and_tasks(store, topic):
    plan = target(store.path, "orders")
    shares = [staged(plan, *[table(value=[b"x"] * 10)] * 2, task=task) for task in range(3)]
    commit(store.path, shares, None)
    assert {len(values(topic, number)) for number in range(3)} == {20}


def test_topic_column_sends_each_row_to_its_own(store, topic):
    other = store.create_topic("refunds")
    batch = table(value=[b"1", b"2", b"3"], topic=["orders", "refunds", "orders"], partition=[0, 0, 1])
    written(store, batch, topic=None)
    assert (values(topic, 0), values(topic, 1), values(other, 0)) == ([b"1"], [b"3"], [b"2"])


def test_tasks_and_rows_keep_their_order_in_each_partition(store, topic):
    """Whatever order the tasks' messages come in; small pieces, files and adopted segments alike."""
    plan = target(store.path, "orders")
    batches = {
        task: [
            table(value=[b"%d %d %d" % (task, part, n) + b"." * size for n in range(100)])
            for part in range(9)
        ]
        for task, size in [(2, 300), (0, 3), (1, 30_000)]
    }
    commit(store.path, [staged(plan, *each, task=task) for task, each in batches.items()], None)
    for number in range(3):
        found = [tuple(map(int, value.rstrip(b".").split())) for value in values(topic, number)]
        assert len(found) == 900
        assert found == sorted(found)


def test_partitions_added_between_staging_and_commit_get_their_keys(store, topic):
    plan = target(store.path, "orders")
    keys = [b"key-%d" % (n % 40) for n in range(4000)]
    numbered = [b"%d" % n + b"." * 200 for n in range(4000)]  # more than a commit record holds
    share = staged(plan, table(value=numbered, key=keys))
    assert files(store)
    topic.alter(partitions=5)
    commit(store.path, [share], None)
    after = store.create_topic("after", partitions=3)
    after.alter(partitions=5)
    after.write_many(numbered, keys=keys)
    for partition in range(5):
        found = messages(topic, partition)
        assert {m.key for m in found} == {m.key for m in messages(after, partition)} != set()
        for key in {m.key for m in found}:  # each with all of its messages, in order
            expected = [value for value, k in zip(numbered, keys, strict=True) if k == key]
            assert [m.value for m in found if m.key == key] == expected
    assert not files(store)


# Once.


def test_repeated_batch_is_skipped_and_leaves_nothing(store, topic):
    batch = table(value=[b"%d" % n + b"." * 300 for n in range(1000)], partition=[0] * 1000)
    plan = target(store.path, "orders")
    assert commit(store.path, [staged(plan, batch)], WriterCommit(QUERY, 0, 1000))
    assert not commit(store.path, [staged(plan, batch)], WriterCommit(QUERY, 0, 1000))
    assert not files(store)
    assert commit(store.path, [staged(plan, batch)], WriterCommit(QUERY, 1, 1000))
    assert len(everything(topic)) == 2000
    assert store._transactions.names("spark/") == [f"spark/{QUERY}/1/1000"]


def test_empty_batch_counts(store, topic):
    assert commit(store.path, [TaskResult(0, {}, {})], WriterCommit(QUERY, 4, 0))
    assert not commit(store.path, [TaskResult(0, {}, {})], WriterCommit(QUERY, 4, 0))
    assert everything(topic) == []


def test_refused_batch_leaves_nothing(store, topic):
    """A stale driver, and a new checkpoint with the same txnAppId."""
    batch = table(value=[b"." * 300] * 1000)
    plan = target(store.path, "orders")
    commit(store.path, [staged(plan, batch)], WriterCommit(QUERY, 1, 1000, "app"))
    with pytest.raises(ConflictError, match="another driver"):
        commit(store.path, [staged(plan, batch)], WriterCommit(QUERY, 0, 1000, "app"))
    with pytest.raises(ConflictError, match="belongs to the checkpoint"):
        commit(store.path, [staged(plan, batch)], WriterCommit("other", 0, 1000, "app"))
    assert len(everything(topic)) == 1000
    assert not files(store)
    topic.write(b"writers go on")


def test_two_drivers_at_once_commit_one_of_them(store, topic):
    """Both have staged the batch before either commits."""
    batch = table(value=[b"%d" % n for n in range(100)])
    plan = target(store.path, "orders")
    first, second = staged(plan, batch), staged(plan, batch)
    assert [commit(store.path, [share], WriterCommit(QUERY, 0, 100)) for share in (first, second)] == [
        True,
        False,
    ]
    assert sorted(everything(topic)) == sorted(batch.column("value").to_pylist())


def test_abort_removes_what_was_staged_but_never_what_was_committed(store, topic):
    """Spark aborts also when it does not know whether the commit went through."""
    batch = table(value=[b"." * 300] * 1000)
    plan = target(store.path, "orders")
    lost, kept = staged(plan, batch), staged(plan, batch)
    assert len(files(store)) == 2
    abort(store.path, [lost])
    assert len(files(store)) == 1
    commit(store.path, [kept], None)
    abort(store.path, [kept])
    assert len(everything(topic)) == 1000
    assert not files(store)


def test_what_a_killed_task_left_goes_a_day_later(tmp_path):
    clock = Clock()
    with penstock.open(tmp_path / "own", clock=clock) as store:
        topic = store.create_topic("orders")
        staged(target(store.path, "orders"), table(value=[b"." * 300] * 1000))
        (left,) = Path(store.path).rglob("*.staged")
        os.utime(left, ns=(clock.now_ns(), clock.now_ns()))
        clock.advance("23h")
        topic.vacuum()
        assert left.exists()
        clock.advance("2h")
        topic.vacuum()
        assert not left.exists()


# Errors, in a task: nothing of it stays.


@pytest.mark.parametrize(
    ("columns", "error", "told"),
    [
        ({"value": [b"x", b"." * (2**20 + 1)]}, MessageTooLarge, "1048577 bytes .* topic 'orders'"),
        ({"value": [b"x"], "key": [b"k" * 4097]}, MessageTooLarge, "key of 4097 bytes"),
        ({"value": [b"x"], "headers": [[("a", b"." * 40_000)]]}, MessageTooLarge, "headers of 40001 bytes"),
        ({"value": [b"x"], "headers": [[("a", None)]]}, WrongType, "header's value is null"),
        ({"value": [b"x", b"y"], "partition": [0, 3]}, InvalidOption, "no partition 3 .*0 to 2"),
        ({"value": [b"x"], "partition": [-1]}, InvalidOption, "no partition -1"),
        ({"value": [b"x"], "timestamp": FAR_AWAY}, InvalidOption, "1677 to 2262"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_stored_say_why(store, topic, columns, error, told):
    with pytest.raises(error, match=told):
        staged(target(store.path, "orders"), table(**columns))
    assert not files(store)


def test_task_that_fails_late_removes_its_files(store, topic):
    plan = target(store.path, "orders")
    good, bad = table(value=[b"." * 1000] * 2000), table(value=[b"." * (2**20 + 1)])
    with pytest.raises(MessageTooLarge):
        staged(plan, good, good, bad)
    assert not files(store)


def test_unknown_and_null_topics_in_rows(store, topic):
    plan = target(store.path, None)
    with pytest.raises(UnknownTopic, match=r"no topic 'nothing' .*topics here: orders"):
        staged(plan, table(value=[b"x"], topic=["nothing"]))
    with pytest.raises(InvalidOption, match="'topic' is null"):
        staged(plan, table(value=[b"x", b"y"], topic=["orders", None]))


def test_header_named_twice_is_refused(store, topic):
    entry = pa.struct([("key", pa.string()), ("value", pa.binary())])
    headers = pa.array([[{"key": "a", "value": b"1"}, {"key": "a", "value": b"2"}]], pa.list_(entry))
    with pytest.raises(InvalidOption, match="two headers of one name"):
        staged(target(store.path, "orders"), table(value=[b"x"], headers=headers))


def test_missing_store_or_topic_fails_before_staging(store, topic, tmp_path):
    with pytest.raises(NotAStore, match="no store in"):
        target(str(tmp_path / "nothing"), "orders")
    assert not (tmp_path / "nothing").exists()
    with pytest.raises(UnknownTopic, match="no topic 'order'"):
        target(store.path, "order")


def test_topic_dropped_meanwhile_is_refused(store, topic):
    plan = target(store.path, "orders")
    share = staged(plan, table(value=[b"x"]))
    store.drop_topic("orders")
    with pytest.raises(TopicReplaced, match="dropped"):
        staged(plan, table(value=[b"x"]))
    store.create_topic("orders", partitions=3)
    with pytest.raises(TopicReplaced, match="created anew"):
        commit(store.path, [share], None)


def test_executor_that_does_not_see_the_folder_says_so(store, topic):
    plan = target(store.path, "orders")
    moved = {"orders": plan.topics["orders"]._replace(folder="/nowhere/topics/orders/parts")}
    with pytest.raises(NotAStore, match="does not see the store /nowhere"):
        staged(plan._replace(store="/nowhere", topics=moved), table(value=[b"x"]))


def test_tasks_import_neither_the_store_nor_sqlite():
    """An executor has no business with `state.db`."""
    script = "import sys, penstock.spark.sink.task; print([m for m in sys.modules if m.startswith(" \
             "('sqlite3', 'penstock.state', 'penstock.store', 'penstock.consume'))])"  # fmt: skip
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
