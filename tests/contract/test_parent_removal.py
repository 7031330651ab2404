"""A split partition goes when its messages are gone and nobody needs it; its row stays (S001-16, S001-27)."""

import os
import time

import pytest

import penstock
from tests.kit.patience import PATIENCE_S
from tests.kit.stores import StoreVerifier, apply_repair, backup, plan_repair, restore
from tests.kit.topics import inside, vacuum


@pytest.fixture
def topic(store):
    return store.create_topic("orders", retention="1h", sync="os", autopartitioning="paused")


def folders(tmp_path):
    return sorted(os.listdir(tmp_path / "store" / "topics" / "orders" / "parts"))


def numbers(topic):
    return [each.partition for each in topic.partitions()]


def values(messages):
    return [message.value.decode() for message in messages]


def grown(topic, clock):
    """Partition 0 with two messages, split into 1 and 2 with one each, all of 0 expired."""
    topic.write_many([b"a", b"b"], partition=0)
    first, second = topic.split(0)
    clock.advance("59m")
    topic.write(b"c", partition=first)
    topic.write(b"d", partition=second)
    clock.advance("2m")


def test_a_split_partition_goes_with_its_messages(topic, clock, tmp_path, open_store):
    grown(topic, clock)
    report = topic.vacuum()
    assert (report.messages, report.removed) == (2, (0,))
    assert folders(tmp_path) == ["000001", "000002"]
    assert numbers(topic) == [1, 2]
    assert values(topic.read(limit=10)) == ["c", "d"]
    elsewhere = open_store(clock=clock).topic("orders")
    assert (numbers(elsewhere), values(elsewhere.scan().messages())) == ([1, 2], ["c", "d"])
    with pytest.raises(penstock.InvalidOption, match="no partition 0"):
        elsewhere.read(partition=0)


def test_one_that_holds_messages_stays(topic, clock, tmp_path):
    topic.write(b"a", partition=0)
    topic.split(0)
    clock.advance("59m")
    assert topic.vacuum().removed == ()
    assert folders(tmp_path) == ["000000", "000001", "000002"]


def test_numbers_are_never_used_again(topic, clock):
    grown(topic, clock)
    topic.vacuum()
    assert topic.split(1) == (3, 4)


def test_segments_that_a_planned_scan_may_read_keep_it_for_a_moment(topic, clock, tmp_path):
    topic.alter(segment_bytes="4KiB")
    for _ in range(20):
        topic.write(b"x" * 1000, partition=0)
    topic.split(0)
    clock.advance("2h")
    assert topic.vacuum().removed == ()
    clock.advance("2m")
    assert topic.vacuum().removed == (0,)


def test_a_member_keeps_it_as_long_as_it_has_it(topic, clock):
    """And what it had not read is a gap to it like any other."""
    topic.write_many([b"a", b"b"], partition=0)
    topic.split(0)
    with topic.reader(consumer="c", on_gap="skip") as reader:
        reader.receive(timeout=10)
        clock.advance("2h")
        assert topic.vacuum().removed == ()
    assert topic.vacuum().removed == (0,)


def test_a_retry_keeps_it(topic, clock):
    topic.write(b"a", partition=0)
    topic.split(0)
    with topic.reader(consumer="c") as reader:
        reader.retry(reader.receive(timeout=10), after="3h")
    clock.advance("2h")
    assert topic.vacuum().removed == ()
    clock.advance("2h")
    with topic.reader(consumer="c", follow=False) as reader:
        (message,) = reader
        assert (message.value, message.attempt) == (b"a", 2)
        reader.commit(message)
    assert topic.vacuum().removed == (0,)


def test_a_lease_of_a_queue_keeps_it(topic, clock):
    topic.write(b"a", partition=0)
    topic.split(0)
    with topic.reader(consumer="q", kind="queue", lease="5h") as reader:
        message = reader.receive(timeout=10)
        clock.advance("2h")
        assert topic.vacuum().removed == ()
        reader.commit(message)
        assert topic.vacuum().removed == (0,)


def test_a_consumer_that_stood_in_it_gets_the_gap_and_goes_on(topic, clock):
    topic.write_many([b"a", b"b"], partition=0)
    topic.seek_consumer("c", {0: 1})
    grown(topic, clock)
    topic.vacuum()
    with topic.reader(consumer="c", on_gap="skip", follow=False) as reader:
        assert sorted(values(reader)) == ["c", "d"]
        assert [gap[:4] for gap in reader.gaps] == [("orders", 0, 1, 4)]
    with topic.reader(consumer="c", on_gap="skip", follow=False) as reader:
        assert len(values(reader)) == 2
        assert reader.gaps == []


@pytest.mark.parametrize("way", ["reader", "consumer"])
def test_the_gap_is_raised_until_the_consumer_is_moved(topic, clock, way):
    topic.add_consumer("c")
    grown(topic, clock)
    topic.vacuum()
    for _ in range(2):
        with topic.reader(consumer="c", follow=False) as reader:
            with pytest.raises(penstock.OffsetTrimmed, match="0 to 1 of 'orders' partition 0 are gone"):
                reader.receive()
            if way == "reader":
                continue
    if way == "reader":
        with topic.reader(consumer="c", follow=False) as reader:
            reader.seek("earliest")
            assert sorted(values(reader)) == ["c", "d"]
    else:
        topic.seek_consumer("c", "earliest")
        with topic.reader(consumer="c", follow=False) as reader:
            assert sorted(values(reader)) == ["c", "d"]


def test_a_consumer_that_never_came_to_a_child_hears_of_it(topic, clock):
    """Of a partition that appeared after the consumer began, and went before it read it."""
    topic.write(b"a", partition=0)
    topic.seek_consumer("c", "latest")
    first, _ = topic.split(0)
    topic.write(b"b", partition=first)
    topic.split(first)
    clock.advance("2h")
    assert topic.vacuum().removed == (0, first)
    with topic.reader(consumer="c", on_gap="skip", follow=False) as reader:
        assert values(reader) == []
        assert [gap[:4] for gap in reader.gaps] == [("orders", first, 0, 1)]
    topic.add_consumer("later")
    with topic.reader(consumer="later", follow=False) as reader:
        assert values(reader) == []


def test_a_queue_hears_of_the_gap(topic, clock):
    with topic.reader(consumer="q", kind="queue") as reader:
        assert reader.receive(timeout=0) is None
    grown(topic, clock)
    topic.vacuum()
    with topic.reader(consumer="q", kind="queue", on_gap="skip") as reader:
        assert sorted(values([reader.receive(timeout=10), reader.receive(timeout=10)])) == ["c", "d"]
        assert [gap[:4] for gap in reader.gaps] == [("orders", 0, 0, 2)]


def test_a_reader_without_a_consumer_goes_on(topic, clock):
    topic.write_many([b"a", b"b"], partition=0)
    with topic.reader(on_gap="skip") as reader:
        assert reader.receive(timeout=10).value == b"a"
        first, _ = topic.split(0)
        clock.advance("2h")
        assert topic.vacuum().removed == (0,)
        topic.write(b"c", partition=first)
        found, deadline = [], time.monotonic() + PATIENCE_S
        while "c" not in found:
            assert time.monotonic() < deadline
            if (message := reader.receive(timeout=0.1)) is not None:
                found.append(message.value.decode())
        assert ("orders", 0) not in reader.assigned


def test_a_removed_partition_is_no_lag_and_has_no_position(topic, clock):
    topic.add_consumer("c")
    grown(topic, clock)
    topic.vacuum()
    (stats,) = topic.consumers()
    assert (stats.lag, sorted(stats.positions)) == (2, [])


def test_a_writer_that_slept_through_it_writes_to_the_children(topic, clock, open_store):
    elsewhere = open_store(clock=clock).topic("orders")
    elsewhere.write(b"a", key=b"k")
    with elsewhere.writer(producer_id="p", linger="1h") as writer:
        writer.write(b"b", key=b"k")
        writer.flush()
        grown(topic, clock)
        assert topic.vacuum().removed == (0,)
        writer.write(b"e", key=b"k")
        writer.flush()
        elsewhere.write(b"f", key=b"k")
    assert sorted(values(topic.read(limit=10))) == ["c", "d", "e", "f"]


def test_who_tidies_at_the_same_moment_does_not_mind(topic, clock, tmp_path):
    """Another process removes a partition between another's look at the rows and its turn."""
    grown(topic, clock)
    for opens_first in (True, False):
        parent = topic.partitions()[0].partition
        with penstock.open(tmp_path / "store", clock=clock) as slow:
            stale = inside(slow.topic("orders"))
            if opens_first:
                stale.logs()
            assert topic.vacuum().removed == (parent,)
            assert parent in stale.numbers()
            assert parent not in [each.partition for each in vacuum(stale).partitions]
            assert parent not in stale.numbers()
        if opens_first:
            topic.split(1)
            clock.advance("2h")


def test_a_folder_that_a_crash_left_goes_with_the_next_vacuum(topic, clock, tmp_path):
    grown(topic, clock)
    topic.vacuum()
    parts = tmp_path / "store" / "topics" / "orders" / "parts"
    for name in ("000000", ".removed-00ff"):
        (parts / name).mkdir()
        (parts / name / "append").touch()
    topic.vacuum()
    assert folders(tmp_path) == ["000001", "000002"]


def test_verify_knows_removed_partitions(topic, store, clock, tmp_path):
    topic.add_consumer("c")
    grown(topic, clock)
    topic.seek_consumer("c", "latest")
    topic.vacuum()
    store.close()
    assert list(StoreVerifier(tmp_path / "store").findings()) == []


def test_a_backup_and_a_rebuilt_store_know_removed_partitions(topic, store, clock, tmp_path, open_store):
    grown(topic, clock)
    topic.vacuum()
    store.close()
    backup(tmp_path / "store", tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored")
    (tmp_path / "store" / "state.db").unlink()
    apply_repair(plan_repair(tmp_path / "store"))
    for path in (tmp_path / "store", tmp_path / "restored"):
        found = open_store(path, clock=clock).topic("orders")
        assert (numbers(found), values(found.read(limit=10))) == ([1, 2], ["c", "d"])
        assert found.split(1) == (3, 4)
        assert list(StoreVerifier(path).findings()) == []


def test_retention_removes_it_by_itself(tmp_path):
    """With the clock of the machine: the thread that removes what expires."""
    with penstock.open(tmp_path / "store") as store:
        topic = store.create_topic("orders", retention="300ms", sync="os", autopartitioning="paused")
        topic.write(b"a", partition=0)
        topic.split(0)
        deadline = time.monotonic() + PATIENCE_S
        while folders(tmp_path) != ["000001", "000002"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert numbers(topic) == [1, 2]
