"""Compact, on both engines: the latest message of each key, in order, and only what changed since."""

import random

import pytest

import penstock
from penstock.spark.pipelines.compact import compact
from tests.e2e.command import Command
from tests.spark.streams import staged_files

KEYS = 60


@pytest.fixture(params=["python", "spark"])
def engine(request):
    return {"engine": request.param, "spark": request.getfixturevalue("spark")}


def fill(topic, rounds: int, seed: int) -> None:
    """Frames of many and of one message, tombstones among them."""
    chance = random.Random(seed)
    for _ in range(rounds):
        count = 150
        topic.write_many(
            [None if chance.random() < 0.2 else b"%d" % chance.randrange(10**9) for _ in range(count)],
            keys=[b"k%d" % chance.randrange(KEYS) for _ in range(count)],
            timestamps=[chance.randrange(10**18) for _ in range(count)],
            headers=[{"n": str(n)} for n in range(count)],
        )
        for _ in range(4):
            topic.write(b"single", key=b"k%d" % chance.randrange(KEYS + 30))


def latest(topic) -> dict[bytes, tuple]:
    found: dict[bytes, tuple] = {}
    for m in topic.scan().messages():
        found.pop(m.key, None)
        if m.value is not None:
            found[m.key] = (m.value, m.timestamp, dict(m.headers))
    return found


def test_the_latest_of_each_key_and_later_what_changed(store, engine):
    source = store.create_topic("a", partitions=2, segment_bytes="64KiB")
    sink = store.create_topic("b", partitions=2)
    fill(source, 12, seed=1)
    store.flush_housekeeping()
    done = compact(store, "a", "b", **engine)
    kept = list(sink.scan().messages())
    wanted = latest(source)
    assert {m.key: (m.value, m.timestamp, dict(m.headers)) for m in kept} == wanted
    assert len(kept) == len(wanted) == done.written
    assert done.removed > 0
    assert [(m.partition, m.key) for m in kept] == [
        (m.partition, m.key)
        for m in source.scan().messages()
        if (m.value, m.timestamp) == wanted.get(m.key, ())[:2]
    ]
    key = kept[0].key
    source.write(None, key=key)
    source.write(b"newest", key=kept[1].key)
    again = compact(store, "a", "b", **engine)
    assert (again.read, again.written) == (2, 2)
    assert latest(sink) == latest(source)
    assert key not in latest(sink)
    assert compact(store, "a", "b", **engine).read == 0
    assert store.pipeline("compact-a").lag == 0
    assert staged_files(store) == []


def test_a_key_in_several_partitions_counts_once(store, engine):
    """Another number of partitions: keys choose, and the one written last wins wherever it lies."""
    source = store.create_topic("a", partitions=3)
    sink = store.create_topic("b", partitions=2)
    for n in range(30):
        source.write(b"%d" % n, key="moved", partition=(n * 7) % 3)
        source.write(b"%d" % n, key="stays", partition=n % 3)
    compact(store, "a", "b", **engine)
    assert sorted((m.key, m.value) for m in sink.scan().messages()) == [(b"moved", b"29"), (b"stays", b"29")]


def test_messages_without_a_key_are_refused_kept_or_dropped(store, engine):
    source = store.create_topic("a")
    source.write_many([b"1", b"2", b"3", b"4"], keys=["k", None, "k", None])
    found = {}
    for keyless in ("refuse", "keep", "drop"):
        sink = store.create_topic(keyless)
        if keyless == "refuse":
            with pytest.raises(penstock.InvalidOption, match="offset 3 of partition 0"):
                compact(store, "a", keyless, name=keyless, **engine)
        else:
            compact(store, "a", keyless, name=keyless, keyless=keyless, **engine)
        found[keyless] = [m.value for m in sink.scan().messages()]
    assert found == {"refuse": [], "keep": [b"2", b"3", b"4"], "drop": [b"3"]}


def test_tombstones_are_kept_for_a_time(store, engine):
    source = store.create_topic("a")
    sink = store.create_topic("b")
    source.write_many([b"1", b"2", None], keys=["x", "y", "x"])
    done = compact(store, "a", "b", keep_tombstones="1h", **engine)
    assert [(m.key, m.value) for m in sink.scan().messages()] == [(b"y", b"2"), (b"x", None)]
    assert (done.written, done.removed) == (2, 0)


def test_what_a_task_raises_is_told_as_it_is(store, spark):
    source = store.create_topic("a")
    store.create_topic("small", max_message_bytes=4)
    source.write(b"0123456789", key="k")
    with pytest.raises(penstock.MessageTooLarge, match="over the limit of 4"):
        compact(store, "a", "small", engine="spark", spark=spark)
    assert staged_files(store) == []


def test_the_command_says_which_engine_and_why(tmp_path):
    command = Command(tmp_path)
    with penstock.open(command.store) as store:
        store.create_topic("b")
        store.create_topic("a").write_many([b"1", b"2"], keys=["k", "k"])
    ended = command.quick("pipeline", "compact", "a", "b")
    assert ended.code == 0, ended
    assert "python: 2 messages, a JVM would take longer to start" in ended.err
    assert ended.out.startswith("compact-a: done, 2 rows in 1 batch")
    with penstock.open(command.store) as store:
        store.topic("a").write(b"3", key="k")
    result = command.quick_json("pipeline", "compact", "a", "b", "--engine", "python")["result"]
    assert (result["engine"], result["written"]) == ("python", 1)
    assert command.quick("pipeline", "compact", "a", "a").code == 2
    assert "auto, python, spark" in command.quick("pipeline", "compact", "a", "b", "--engine", "java").err
