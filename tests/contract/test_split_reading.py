"""Reading partitions that were split: parents before children, for whoever reads (S001-22, U09)."""

import time

import pytest

from tests.kit.patience import PATIENCE_S


@pytest.fixture
def topic(store):
    return store.create_topic("orders", partitions=1, sync="os", autopartitioning="paused")


@pytest.fixture
def split(open_store, topic, clock):
    """Splits a partition of the topic elsewhere, as another process does; returns its children."""
    return open_store(clock=clock).topic("orders").split


def write(topic, partition, *values):
    topic.write_many([value.encode() for value in values], partition=partition)


def values(messages):
    return [message.value.decode() for message in messages]


def received(reader, count):
    """So many messages, each committed only at the end."""
    found = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, values(found)
        message = reader.receive(timeout=0.1)
        if message is not None:
            found.append(message)
    return found


def in_order(found, *chain):
    """Whether values come in this order."""
    places = [found.index(each) for each in chain]
    return places == sorted(places)


def two_generations(topic, split):
    """Partition 0 split into 1 and 2, 1 into 3 and 4; each with one message that says where it lies."""
    write(topic, 0, "0")
    split(0)
    write(topic, 1, "1")
    write(topic, 2, "2")
    split(1)
    write(topic, 3, "3")
    write(topic, 4, "4")


def generations_in_order(found):
    return sorted(found) == ["0", "1", "2", "3", "4"] and all(
        in_order(found, *chain) for chain in (("0", "1", "3"), ("0", "1", "4"), ("0", "2"))
    )


@pytest.mark.parametrize("consumer", ["c", None])
@pytest.mark.parametrize("follow", [True, False])
def test_parents_come_before_children(topic, split, consumer, follow):
    two_generations(topic, split)
    with topic.reader(consumer=consumer, follow=follow) as reader:
        found = values(received(reader, 5))
        if not follow:
            assert reader.receive() is None
    assert generations_in_order(found)


@pytest.mark.parametrize("consumer", ["c", None])
def test_batches_of_parents_come_before_those_of_children(topic, split, consumer):
    two_generations(topic, split)
    found = []
    with topic.reader(consumer=consumer, follow=False) as reader:
        while batch := reader.receive_batch(max_messages=1):
            found += values(batch)
    assert generations_in_order(found)


def test_a_child_opens_to_the_reader_that_delivered_its_parent(topic, split):
    """Nothing is committed: one reader gives out its parent's messages, then those of the children."""
    write(topic, 0, "a", "b")
    first, second = split(0)
    write(topic, first, "c")
    write(topic, second, "d")
    with topic.reader(consumer="c") as reader:
        assert sorted(values(received(reader, 4))) == ["a", "b", "c", "d"]


def test_a_reader_notices_a_split_while_another_partition_is_busy(store, open_store, clock):
    """It looks once a second, not only when there is nothing left to read."""
    topic = store.create_topic("orders", partitions=2, sync="os", autopartitioning="paused")
    elsewhere = open_store(clock=clock).topic("orders")
    for consumer, parent in ((None, 0), ("c", 2)):
        with topic.reader(consumer=consumer) as reader:
            first, _ = elsewhere.split(parent)
            elsewhere.write(b"child", partition=first)
            deadline = time.monotonic() + PATIENCE_S
            while True:
                assert time.monotonic() < deadline
                topic.write_many([b"busy"] * 10, partition=1)
                message = reader.receive(timeout=0.01)
                if message is not None and message.partition == first:
                    break


def test_a_consumer_that_stands_at_the_end_of_a_parent_goes_on_in_its_children(topic, split):
    """U09."""
    write(topic, 0, "a")
    topic.seek_consumer("c", "latest")
    first, second = split(0)
    write(topic, first, "b")
    write(topic, second, "c")
    with topic.reader(consumer="c", follow=False) as reader:
        assert sorted(values(reader)) == ["b", "c"]


def test_partitions_that_are_named_are_read_as_named(topic, split):
    """U09: one concrete partition of a split topic."""
    two_generations(topic, split)
    for partition in (3, 2, 0):
        for consumer in (None, "c"):
            with topic.reader(consumer=consumer, partitions=[partition], follow=False) as reader:
                assert values(reader) == [str(partition)]


@pytest.mark.parametrize("consumer", ["c", None])
def test_a_seek_into_a_parent_shuts_all_below_it(topic, split, consumer):
    two_generations(topic, split)
    with topic.reader(consumer=consumer, follow=True) as reader:
        for message in received(reader, 5):
            if consumer:
                reader.commit(message)
        assert reader.receive(timeout=0) is None
        reader.seek("earliest")
        assert generations_in_order(values(received(reader, 5)))


def test_a_consumer_that_is_moved_into_a_parent_reads_the_children_again_behind_it(topic, split):
    """Only the parent is moved: what is new in its grandchildren waits for it, too."""
    write(topic, 0, "a")
    two_generations(topic, split)
    with topic.reader(consumer="c") as reader:
        for message in received(reader, 6):
            reader.commit(message)
        assert reader.receive(timeout=0) is None
        topic.seek_consumer("c", {0: 0})
        deadline = time.monotonic() + PATIENCE_S
        while not (batch := reader.receive_batch(max_messages=1, timeout=0.1)):
            assert time.monotonic() < deadline
        assert values(batch) == ["a"]
        write(topic, 3, "new")
        assert values(received(reader, 2)) == ["0", "new"]


def test_children_wait_again_after_a_rollback(store, topic, split):
    write(topic, 0, "a")
    first, _ = split(0)
    write(topic, first, "b")
    with topic.reader(consumer="c") as reader:
        tx = store.transaction()
        tx.__enter__()
        found = [*reader.receive_batch(timeout=1, tx=tx), *reader.receive_batch(timeout=1, tx=tx)]
        assert values(found) == ["a", "b"]
        tx.__exit__(ValueError, ValueError(), None)
        assert values(received(reader, 2)) == ["a", "b"]


def test_scans_and_reads_go_from_parents_to_children(topic, split):
    """(partition, offset) is the order of each key."""
    two_generations(topic, split)
    assert values(topic.read(limit=100)) == ["0", "1", "2", "3", "4"]
    assert values(topic.scan().messages()) == ["0", "1", "2", "3", "4"]


def test_a_drained_parent_is_no_lag(topic, split):
    two_generations(topic, split)
    with topic.reader(consumer="c") as reader:
        assert reader.lag().messages == 5
        for message in received(reader, 5):
            reader.commit(message)
        assert reader.lag().messages == 0
    (stats,) = topic.consumers()
    assert stats.lag == 0


def test_a_queue_reads_all_partitions_without_waiting(topic, split):
    write(topic, 0, "a")
    first, second = split(0)
    write(topic, first, "b")
    write(topic, second, "c")
    with topic.reader(consumer="q", kind="queue") as one:
        held = one.receive(timeout=10)
        found = [held, *received(one, 2)]
        assert sorted(values(found)) == ["a", "b", "c"]


# Members.


def settled(*readers, shares):
    """Let readers poll until each has these partitions."""
    deadline = time.monotonic() + PATIENCE_S
    while [[number for _, number in reader.assigned] for reader in readers] != shares:
        assert time.monotonic() < deadline, [reader.assigned for reader in readers]
        for reader in readers:
            assert reader.receive(timeout=0.01) is None


def test_members_share_what_can_be_read(topic, split):
    """S001-22: a parent that is done and a child that is shut count for nobody."""
    write(topic, 0, "a")
    first, second = split(0)
    with topic.reader(consumer="c") as one:
        (message,) = received(one, 1)
        with topic.reader(consumer="c") as other:
            for _ in range(20):
                assert other.receive(timeout=0.01) is None
            assert other.assigned == []
            one.commit(message)
            settled(one, other, shares=[[first], [second]])
            write(topic, first, "b")
            write(topic, second, "c")
            assert values(received(one, 1) + received(other, 1)) == ["b", "c"]


def test_a_child_opens_to_another_member_when_its_parent_is_committed(store):
    topic = store.create_topic("orders", partitions=2, sync="os", autopartitioning="paused")
    write(topic, 0, "a")
    first, second = topic.split(0)
    write(topic, first, "b")
    write(topic, second, "c")
    with topic.reader(consumer="c") as one, topic.reader(consumer="c") as other:
        held = None
        deadline = time.monotonic() + PATIENCE_S
        while held is None:
            assert time.monotonic() < deadline
            for reader in (one, other):
                held = held or ((message := reader.receive(timeout=0.05)) and (reader, message))
        has_parent, message = held
        without = other if has_parent is one else one
        assert message.value == b"a"
        for _ in range(20):
            assert without.receive(timeout=0.01) is None
        has_parent.commit(message)
        found = []
        while len(found) < 2:
            assert time.monotonic() < deadline
            for reader in (one, other):
                if (message := reader.receive(timeout=0.05)) is not None:
                    found.append(message.value.decode())
                    reader.commit(message)
    assert sorted(found) == ["b", "c"]


def test_what_waits_of_a_drained_parent_is_still_delivered(topic, split):
    write(topic, 0, "a")
    split(0)
    with topic.reader(consumer="c") as one, topic.reader(consumer="c") as other:
        message = None
        deadline = time.monotonic() + PATIENCE_S
        while message is None:
            assert time.monotonic() < deadline
            message = one.receive(timeout=0.05)
            other.receive(timeout=0)
        assert one.retry(message, after="1h")
        for _ in range(30):
            assert one.receive(timeout=0.01) is None
            assert other.receive(timeout=0.01) is None
        assert sum(("orders", 0) in reader.assigned for reader in (one, other)) == 1


# Handlers.


def test_with_keep_order_children_wait_for_what_waits_of_their_parent(topic, split, clock, interface):
    """Nothing of a key may pass an earlier message of it that is tried again later."""
    topic.write(b"1", key=b"k")
    first, second = split(0)
    child = topic.write(b"2", key=b"k").partition
    assert child in (first, second)
    seen = []

    def handle(message):
        seen.append((message.value, message.attempt))
        if message.value == b"1" and message.attempt == 1:
            raise ValueError("not yet")

    with topic.reader(consumer="c") as reader:
        reader.process(interface.handler(handle), follow=False, keep_order=True)
        assert seen == [(b"1", 1)]
        clock.advance(3600)
        reader.process(interface.handler(handle), follow=False, keep_order=True)
    assert seen == [(b"1", 1), (b"1", 2), (b"2", 1)]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("keep_order", [True, False])
def test_process_without_follow_handles_parents_and_children(topic, split, interface, workers, keep_order):
    two_generations(topic, split)
    seen = []
    with topic.reader(consumer="c") as reader:
        reader.process(
            interface.handler(lambda message: seen.append(message.value.decode())),
            follow=False,
            workers=workers,
            keep_order=keep_order,
        )
    assert generations_in_order(seen)


def test_the_latest_of_a_key_is_that_of_the_child(store):
    """Also when both were written in the same moment, as the clock tells."""
    topic = store.create_topic("keyed", index="key", sync="os", autopartitioning="paused")
    topic.write(b"old", key="k")
    topic.split(0)
    topic.write(b"new", key="k")
    assert topic.latest("k").value == b"new"
    assert values(topic.read(key="k", limit=10)) == ["old", "new"]
