"""Topics with index="key": messages by key and by the beginning of a key, wherever they lie."""

import shutil
from pathlib import Path

import pytest

import penstock
from tests.require import require

SMALL = {"segment_bytes": 4096, "sync": "os", "index": "key"}


@pytest.fixture
def topic(store):
    """Several sealed segments and an active one; key number n % 7, each third message without a key."""
    topic = store.create_topic("t", **SMALL)
    for first in range(0, 300, 10):
        numbers = range(first, first + 10)
        keys = [["user", n % 7] if n % 3 else None for n in numbers]
        topic.write_many([b"%d" % n + b"x" * 100 for n in numbers], keys=keys)
    assert store.flush_housekeeping()
    assert topic.stats().partitions[0].segments > 4
    return topic


def expected(number, first=0, stop=300):
    return [n for n in range(first, stop) if n % 3 and n % 7 == number]


def offsets(batch):
    return [message.offset for message in batch]


def part(store, topic, number=0):
    return Path(store.path) / "topics" / topic.name / "parts" / f"{number:06d}"


def test_a_key_is_read_over_all_segments(topic):
    """S002-15, S002-20."""
    for number in range(7):
        batch = topic.read(key=["user", number])
        assert offsets(batch) == expected(number)
        assert {message.key for message in batch} == {b'["user",%d]' % number}
        assert all(int(m.value[:3].strip(b"x")) == m.offset for m in batch)
    assert offsets(topic.read(key=["user", "3"])) == []
    assert offsets(topic.read(key=b'["user",3]')) == expected(3)


def test_a_key_is_read_from_a_place_to_a_place_up_to_a_limit(topic):
    assert offsets(topic.read(key=["user", 2], start=100)) == expected(2, 100)
    assert offsets(topic.read(key=["user", 2], start=100, stop=200)) == expected(2, 100, 200)
    assert offsets(topic.read(key=["user", 2], limit=5)) == expected(2)[:5]
    assert offsets(topic.read(key=["user", 2], start=150, limit=1)) == expected(2, 150)[:1]
    assert offsets(topic.read(key=["user", 2], start="latest")) == []
    with pytest.raises(penstock.OffsetAhead):
        topic.read(key=["user", 2], start=301)


def test_a_prefix_takes_whole_elements(store):
    topic = store.create_topic("t", **SMALL)
    keys = [["chat", 1], ["chat", 2, "x"], ["chatter", 1], "chat", ["chat"], None, 'chat["'] * 30
    topic.write_many([b"x" * 50] * len(keys), keys=keys)
    assert offsets(topic.read(prefix=["chat"])) == [n for n in range(len(keys)) if n % 7 in (0, 1, 4)]
    assert offsets(topic.read(prefix=["chat", 2])) == [n for n in range(len(keys)) if n % 7 == 1]
    assert offsets(topic.read(prefix="chat")) == [n for n in range(len(keys)) if n % 7 in (3, 6)]
    assert offsets(topic.read(prefix="")) == [n for n in range(len(keys)) if n % 7 != 5]
    assert offsets(topic.read(prefix=[])) == [n for n in range(len(keys)) if n % 7 in (0, 1, 2, 4)]
    assert offsets(topic.read(key="chat", prefix=["chat", 2], limit=4)) == [1, 3, 8, 10]


def test_the_latest_of_a_key(store, topic):
    for number in range(7):
        assert topic.latest(["user", number]).offset == expected(number)[-1]
    assert topic.latest(["user", 7]) is None
    assert topic.latest("user") is None
    topic.write(None, key=["user", 3])
    assert topic.latest(["user", 3]).value is None
    assert topic.latest(["user", 3]).offset == 300


def test_an_absent_key_differs_from_an_empty_one(store):
    topic = store.create_topic("t", **SMALL)
    topic.write(b"none")
    topic.write(b"empty", key="")
    assert offsets(topic.read(key="")) == [1]
    assert topic.latest("").value == b"empty"


def test_what_is_written_is_found_at_once(store):
    topic = store.create_topic("t", index="key")
    assert topic.latest("a") is None
    for number in range(20):
        topic.write(b"%d" % number, key="a" if number % 2 else "b")
        assert topic.latest("a" if number % 2 else "b").offset == number
    with topic.writer() as writer:
        writer.write(b"x", key=["c", 1])
        writer.write_many([b"y", b"z"], keys=[["c", 1], ["c", 2]])
        writer.flush()
    assert offsets(topic.read(key=["c", 1])) == [20, 21]


def test_arrays_are_keys_wherever_one_writes(store):
    """S002-16, S002-17."""
    topic = store.create_topic("t", index="key")
    with store.transaction() as tx:
        tx.write("t", b"in a transaction", key=["chat", 345])
    with topic.writer(producer_id="p") as writer:
        writer.write(b"of a producer", key=("chat", 345))
    topic.write(b"alone", key=["chat", 345], headers={"a": "b"})
    assert [m.value for m in topic.read(key=["chat", 345])] == [
        b"in a transaction", b"of a producer", b"alone",
    ]  # fmt: skip


def test_a_scan_by_key_is_lazy_and_gives_arrow(topic):
    require("pyarrow")
    scan = topic.scan(key=["user", 4], start=50, stop=250)
    assert offsets(scan.messages()) == expected(4, 50, 250)
    assert scan.to_arrow()["offset"].to_pylist() == expected(4, 50, 250)
    narrow = topic.scan(prefix=["user"], columns=["offset", "key"]).to_arrow()
    assert narrow.column_names == ["offset", "key"]
    assert narrow["offset"].to_pylist() == [n for n in range(300) if n % 3]
    assert topic.read(key=["user", 4]).to_arrow()["offset"].to_pylist() == expected(4)
    assert topic.scan(key="nobody").to_arrow().num_rows == 0


def test_every_partition_is_searched(store):
    topic = store.create_topic("t", partitions=3, index="key")
    for partition in (2, 0, 1):
        topic.write(b"%d" % partition, key="k", partition=partition)
    assert [m.partition for m in topic.read(key="k")] == [0, 1, 2]
    assert [m.partition for m in topic.read(key="k", partition=2)] == [2]
    assert len(topic.read(key="k", limit=2)) == 2
    assert topic.latest("k").value in (b"0", b"1", b"2")


def test_the_latest_over_partitions_is_the_one_written_last(store, clock):
    topic = store.create_topic("t", partitions=3, index="key")
    for partition in (2, 0, 1, 0):
        topic.write(b"%d" % partition, key="k", partition=partition)
        clock.advance("1s")
    assert (topic.latest("k").partition, topic.latest("k").offset) == (0, 1)


def test_typed_topics_are_read_by_key(store):
    topic = store.create_topic("t", type=dict, index="key")
    topic.write({"n": 1}, key=["a", 1])
    assert topic.read(key=["a", 1])[0].value == {"n": 1}
    assert topic.latest(["a", 1]).value == {"n": 1}


def test_retention_takes_messages_of_keys_too(store, clock):
    topic = store.create_topic("t", retention="1h", **SMALL)
    for number in range(60):
        topic.write(b"x" * 200, key=f"k{number % 4}")
        clock.advance("2m")
    assert store.flush_housekeeping()
    topic.vacuum()
    start = topic.stats().partitions[0].start
    assert start > 20
    assert offsets(topic.read(key="k1")) == [n for n in range(start, 60) if n % 4 == 1]
    with pytest.raises(penstock.OffsetTrimmed):
        topic.read(key="k1", start=0)
    clock.advance("2h")
    topic.vacuum()
    assert offsets(topic.read(key="k1")) == []
    assert topic.latest("k1") is None
    topic.write(b"again", key="k1")
    assert topic.latest("k1").offset == 60
    leftover = {path.name[:20] for path in part(store, topic).glob("*.keyindex")}
    assert leftover <= {path.name[:20] for path in part(store, topic).glob("*.data")}


def test_everything_is_found_after_opening_again(store, topic, open_store, clock):
    store.close()
    again = open_store(clock=clock).topic("t")
    assert offsets(again.read(key=["user", 5])) == expected(5)
    with_reading_rights = open_store(read_only=True).topic("t")
    assert offsets(with_reading_rights.read(key=["user", 5])) == expected(5)


def test_sealed_segments_have_their_index_and_the_active_one_needs_none(store, topic):
    indexes = {path.name[:20] for path in part(store, topic).glob("*.keyindex")}
    segments = sorted(path.name[:20] for path in part(store, topic).glob("*.data"))
    assert indexes == set(segments[:-1])


def test_repacking_and_compression_leave_what_is_found(store, clock):
    for name, more in (("plain", {}), ("packed", {"compress": "zstd"})):
        if more:
            require("zstandard")
        topic = store.create_topic(name, segment_age="1h", index="key", **more)
        for number in range(200):
            topic.write(b"%d" % number, key=f"k{number % 5}")
        before = offsets(topic.read(key="k2"))
        clock.advance("2h")
        topic.write(b"seals", key="other")
        assert store.flush_housekeeping()
        assert offsets(topic.read(key="k2")) == before == list(range(2, 200, 5))
        assert [int(m.value) for m in topic.read(key="k2")] == before


def test_an_index_can_be_switched_on_and_off(store):
    topic = store.create_topic("t", segment_bytes=4096, sync="os")
    for number in range(60):
        topic.write(b"x" * 200, key=f"k{number % 4}")
    assert store.flush_housekeeping()
    with pytest.raises(penstock.InvalidOption, match='index="key"'):
        topic.read(key="k1")
    topic.alter(index="key")
    assert offsets(topic.read(key="k1")) == list(range(1, 60, 4))
    assert list(part(store, topic).glob("*.keyindex")) == []
    topic.vacuum()
    assert len(list(part(store, topic).glob("*.keyindex"))) == topic.stats().partitions[0].segments - 1
    assert offsets(topic.read(key="k1")) == list(range(1, 60, 4))
    topic.alter(index=None)
    with pytest.raises(penstock.InvalidOption, match="alter"):
        topic.latest("k1")


def test_an_index_switched_on_by_another_opening_is_noticed(store, open_store, clock):
    topic = store.create_topic("t")
    topic.write(b"x", key="k")
    open_store(clock=clock).topic("t").alter(index="key")
    assert offsets(topic.read(key="k")) == [0]


@pytest.mark.parametrize("call", ["read", "scan"])
def test_reading_by_key_without_an_index_is_refused(store, call):
    topic = store.create_topic("t")
    with pytest.raises(penstock.InvalidOption, match="no index of its keys"):
        getattr(topic, call)(key="a")
    with pytest.raises(penstock.InvalidOption, match="no index of its keys"):
        getattr(topic, call)(prefix=["a"])
    with pytest.raises(penstock.InvalidOption, match="no index of its keys"):
        topic.latest("a")


@pytest.mark.parametrize("wrong", [345, {"a": 1}, [float("nan")], [b"x"]])
def test_a_key_that_cannot_be_is_refused(store, wrong):
    topic = store.create_topic("t", index="key")
    for call in (
        lambda: topic.read(key=wrong),
        lambda: topic.scan(prefix=wrong),
        lambda: topic.latest(wrong),
    ):
        with pytest.raises(penstock.UsageError):
            call()
    with pytest.raises(penstock.UsageError):
        topic.write(b"x", key=wrong)
    assert topic.stats().messages == 0


def test_committing_a_batch_by_key_commits_only_its_messages(store):
    """Neighbours of a key are not its own."""
    topic = store.create_topic("t", index="key")
    topic.write_many([b"x"] * 10, keys=["a", "b"] * 5)
    with topic.reader(consumer="c", follow=False) as reader:
        reader.receive_batch()
        reader.commit(topic.read(key="a"))
    with topic.reader(consumer="c", follow=False) as reader:
        assert offsets(reader.receive_batch())[0] == 1


def test_a_dropped_topic_is_said(store, open_store, clock):
    store.create_topic("t", index="key").write(b"x", key=["user", 1])
    other = open_store(clock=clock).topic("t")
    assert offsets(other.read(key=["user", 1])) == [0]
    store.drop_topic("t")
    with pytest.raises(penstock.TopicReplaced):
        other.read(key=["user", 1])


def test_a_copied_folder_has_its_indexes(store, topic, open_store, tmp_path):
    store.close()
    shutil.copytree(store.path, tmp_path / "copy")
    assert offsets(open_store(tmp_path / "copy").topic("t").read(key=["user", 6])) == expected(6)
