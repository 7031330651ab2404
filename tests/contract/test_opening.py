"""Opening and closing stores: who may have one, and what is left untouched."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import penstock

OWNER = """
import os, sys, time, penstock
store = penstock.open(sys.argv[1], exclusive=True)
store.create_topic("orders", exists_ok=True).write(b"from the owner")
print(os.getpid(), flush=True)
time.sleep(60)
"""


def snapshot(folder):
    """Every file with its content and time of change."""
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns) if path.is_file() else None
        for path in sorted(Path(folder).rglob("*"))
    }


@pytest.fixture
def owner(tmp_path):
    """Another process that has the test's store for itself."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path / "store")], stdout=subprocess.PIPE, text=True
    )
    assert int(process.stdout.readline()) == process.pid
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_an_owned_store_refuses_others_and_names_the_owner(open_store, tmp_path, owner):
    """S004-03, S004-16, W004-08: and the refused one changes nothing."""
    before = snapshot(tmp_path / "store")
    for options in ({}, {"exclusive": True}):
        with pytest.raises(penstock.OwnedElsewhere) as refused:
            open_store(**options)
        assert refused.value.pid == owner.pid
        assert str(owner.pid) in str(refused.value)
    assert snapshot(tmp_path / "store") == before


def test_an_owned_store_can_be_read(open_store, owner):
    topic = open_store(read_only=True).topic("orders")
    assert [m.value for m in topic.read()] == [b"from the owner"]


def test_a_killed_owner_blocks_nobody(open_store, owner):
    """W004-08: a stale `owner` file blocked all until it was deleted by hand."""
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    store = open_store(exclusive=True)
    assert [m.value for m in store.topic("orders").read()] == [b"from the owner"]
    store.close()
    assert open_store().topic("orders").write(b"2").offset == 1


def test_the_owner_file_goes_with_the_owner(open_store, tmp_path):
    store = open_store(exclusive=True)
    assert str(os.getpid()) in (tmp_path / "store" / "owner").read_text()
    store.close()
    assert not (tmp_path / "store" / "owner").exists()


def test_a_store_in_use_cannot_be_had_alone(open_store):
    first = open_store()
    with pytest.raises(penstock.OwnedElsewhere):
        open_store(exclusive=True)
    first.close()
    open_store(exclusive=True)


def test_any_number_may_have_a_store_open(open_store):
    stores = [open_store() for _ in range(3)]
    stores[0].create_topic("orders", sync="os")
    for number, store in enumerate(stores):
        store.topic("orders").write(b"%d" % number)
    for store in stores:
        assert [m.value for m in store.topic("orders").read()] == [b"0", b"1", b"2"]
    assert len({store.id for store in stores}) == 1


def test_read_only_changes_nothing(open_store, tmp_path):
    store = open_store()
    topic = store.create_topic("orders", partitions=2)
    topic.write_many([b"1", b"2"], partition=1)
    store.close()
    before = snapshot(tmp_path / "store")
    store = open_store(read_only=True)
    topic = store.topic("orders")
    assert store.read_only
    assert [m.value for m in topic.read()] == [b"1", b"2"]
    assert topic.stats().messages == 2
    assert [t.name for t in store.topics()] == ["orders"]
    with topic.reader(follow=False) as reader:
        assert len(list(reader)) == 2
    for refused in (
        lambda: topic.write(b"3"),
        lambda: topic.write_many([b"3"]),
        lambda: topic.writer(),
        lambda: topic.reader(consumer="c"),
        lambda: topic.add_consumer("c"),
        lambda: topic.seek_consumer("c", 0),
        lambda: topic.drop_consumer("c"),
        lambda: topic.alter(retention="1h"),
        lambda: topic.vacuum(),
        lambda: store.create_topic("other"),
        lambda: store.create_topic("orders", exists_ok=True),
        lambda: store.drop_topic("orders"),
    ):
        with pytest.raises(penstock.ReadOnly):
            refused()
    store.close()
    assert snapshot(tmp_path / "store") == before


def test_read_only_follows_what_others_write(open_store):
    topic = open_store().create_topic("orders")
    reading = open_store(read_only=True).topic("orders")
    with reading.reader() as reader:
        assert reader.receive(timeout=0) is None
        topic.write(b"1")
        assert reader.receive(timeout=10).value == b"1"


def test_read_only_makes_no_store(open_store, tmp_path):
    with pytest.raises(penstock.NotAStore):
        open_store(read_only=True)
    with pytest.raises(penstock.NotAStore):
        open_store(create=False)
    assert not (tmp_path / "store").exists()


def test_memory_stores_are_separate_and_gone_when_closed(open_store):
    first, second = open_store(":memory:"), open_store(":memory:")
    first.create_topic("orders").write(b"1")
    assert second.topics() == []
    assert [m.value for m in first.topic("orders").read()] == [b"1"]
    folder = Path(first.path)
    assert folder.exists()
    first.close()
    assert not folder.exists()


def test_a_path_or_text_names_the_folder(open_store, tmp_path):
    open_store(tmp_path / "deep" / "er").close()
    assert open_store(str(tmp_path / "deep" / "er"), create=False).path == str(tmp_path / "deep" / "er")


def test_the_store_id_survives_and_tells_stores_apart(open_store, tmp_path):
    store = open_store()
    known = store.id
    store.close()
    assert open_store().id == known
    assert open_store(tmp_path / "other").id != known


def test_a_closed_store_says_so_whatever_is_asked(open_store):
    store = open_store()
    topic = store.create_topic("orders")
    reader = topic.reader()
    store.close()
    store.close()
    for call in (
        lambda: store.create_topic("x"),
        lambda: store.topic("orders"),
        lambda: store.topics(),
        lambda: store.drop_topic("orders"),
        lambda: store.consumers(),
        lambda: store.check_state(),
        lambda: store.id,
        lambda: topic.write(b"1"),
        lambda: topic.write_many([b"1"]),
        lambda: topic.read(),
        lambda: topic.get(0),
        lambda: topic.scan(),
        lambda: topic.stats(),
        lambda: topic.vacuum(),
        lambda: topic.alter(retention="1h"),
        lambda: topic.consumers(),
        lambda: topic.add_consumer("c"),
        lambda: topic.drop_consumer("c"),
        lambda: topic.reader(),
        lambda: reader.receive(timeout=0),
        lambda: reader.lag(),
    ):
        with pytest.raises(penstock.Closed):
            call()
    assert "closed" in repr(store)


def test_leaving_the_with_closes_and_masks_no_error(open_store):
    store = open_store()

    def fail():
        with store:
            store.create_topic("orders")
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()
    with pytest.raises(penstock.Closed):
        store.topics()


def test_a_topic_is_created_once(open_store):
    """B001-06."""
    store = open_store()
    topic = store.create_topic("orders", partitions=2, retention="1h")
    with pytest.raises(penstock.AlreadyExists):
        store.create_topic("orders")
    same = store.create_topic("orders", exists_ok=True, partitions=2)
    assert (same.id, same.options) == (topic.id, topic.options)
    with pytest.raises(penstock.InvalidOption, match=r"partitions=2 there, 3 asked"):
        store.create_topic("orders", exists_ok=True, partitions=3)
    assert [t.name for t in store.topics()] == ["orders"]


def test_stats_are_counted_from_offsets(open_store, clock):
    """B004-12; W004-10: the total is not one too small."""
    topic = open_store(clock=clock).create_topic("orders", partitions=2)
    empty = topic.stats()
    assert (empty.messages, empty.partitions[0].oldest, empty.partitions[0].newest) == (0, None, None)
    began = clock.now_ns()
    topic.write_many([b"1", b"2"], partition=1)
    clock.advance("1h")
    topic.write(b"3", partition=1)
    stats = topic.stats()
    assert (stats.topic, stats.messages) == ("orders", 3)
    second = stats.partitions[1]
    assert (second.start, second.end, second.messages, second.segments) == (0, 3, 3, 1)
    assert (second.oldest, second.newest) == (began, clock.now_ns())
    assert stats.bytes == sum(partition.bytes for partition in stats.partitions) > 0
