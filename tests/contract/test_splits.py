"""Splitting partitions: what is written goes on in the children, once; no other key moves (S001-15…30)."""

from contextlib import suppress

import pytest

import penstock
from penstock import InvalidOption, PartitionInactive, ProducerFenced
from tests.kit.trees import hash_of

KEYS = [f"key-{number}" for number in range(60)]
HALF = 2**31


@pytest.fixture
def topic(store):
    return store.create_topic("orders", autopartitioning="paused", sync="os")


def stored(topic):
    """Values by key, in the order of (partition, offset)."""
    found = {}
    for batch in topic.scan():
        for message in batch.messages():
            found.setdefault(None if message.key is None else message.key.decode(), []).append(message.value)
    return found


def side(key):
    return 1 if hash_of(key.encode()) < HALF else 2


def test_a_split_partition_is_read_and_its_children_are_written(topic):
    """S001-15, S001-20."""
    topic.write_many([b"before"] * len(KEYS), keys=KEYS)
    assert topic.split(0) == (1, 2)
    receipts = topic.write_many([b"after"] * len(KEYS), keys=KEYS)
    assert [receipt.partition for receipt in receipts] == list(map(side, KEYS))
    assert stored(topic) == {key: [b"before", b"after"] for key in KEYS}
    parent, low, high = topic.partitions()
    assert (parent.state, parent.children, parent.messages) == ("inactive", (1, 2), len(KEYS))
    assert [(each.state, each.low, each.high, each.parents) for each in (low, high)] == [
        ("active", 0, HALF, (0,)),
        ("active", HALF, 2**32, (0,)),
    ]
    assert [dict(each.gates) for each in (low, high)] == [{0: len(KEYS)}] * 2


def test_a_split_does_not_change_the_least_number_of_partitions(store, topic):
    topic.split(0)
    assert topic.options.partitions == 1
    again = store.create_topic("orders", autopartitioning="paused", sync="os", exists_ok=True)
    assert len(again.partitions()) == 3


def test_other_partitions_keep_their_keys(store):
    topic = store.create_topic("orders", partitions=3, autopartitioning="paused", sync="os")
    before = [receipt.partition for receipt in topic.write_many([b"1"] * len(KEYS), keys=KEYS)]
    assert topic.split(1, at=2**31) == (3, 4)
    after = [receipt.partition for receipt in topic.write_many([b"2"] * len(KEYS), keys=KEYS)]
    assert [now for was, now in zip(before, after, strict=True) if was != 1] == [p for p in before if p != 1]
    moved = {(key, now) for key, was, now in zip(KEYS, before, after, strict=True) if was == 1}
    assert moved == {(key, 3 if hash_of(key.encode()) < 2**31 else 4) for key, _ in moved}


def test_a_call_that_names_a_split_partition_is_refused(topic):
    topic.split(0)
    with pytest.raises(PartitionInactive, match="write to 1 and 2") as refused:
        topic.write(b"late", partition=0)
    assert (refused.value.partition, refused.value.children) == (0, (1, 2))
    with pytest.raises(PartitionInactive):
        topic.split(0)


def test_a_store_opened_before_hears_of_a_split_with_its_next_write(open_store, topic):
    other = open_store().topic("orders")
    other.write(b"1", key="a")
    topic.split(0)
    assert other.write(b"2", key="a").partition == side("a")
    assert topic.split(side("a")) == (3, 4)
    with pytest.raises(PartitionInactive):
        other.write(b"3", partition=side("a"))
    assert stored(other) == {"a": [b"1", b"2"]}


def test_what_was_buffered_for_a_split_partition_goes_down_the_tree(open_store, topic):
    writer = open_store().topic("orders").writer(linger="1h")
    for key in KEYS:
        writer.write(b"named", key=key, partition=0)
    writer.write(b"without a key", partition=0)
    topic.split(0)
    writer.flush()
    writer.close()
    found = stored(topic)
    assert found.pop(None) == [b"without a key"]
    assert found == {key: [b"named"] for key in KEYS}
    assert topic.partitions()[0].messages == 0


def test_what_a_transaction_staged_for_a_split_partition_goes_down_the_tree(open_store, topic):
    store = open_store()
    with store.transaction() as tx:
        tx.write_many("orders", [b"1"] * len(KEYS), keys=KEYS)
        tx.write("orders", b"named", key="named", partition=0)
        tx.write("orders", b"grouped", group="g")
        topic.split(0)
    found = stored(topic)
    assert (found.pop("named"), found.pop(None)) == ([b"named"], [b"grouped"])
    assert found == {key: [b"1"] for key in KEYS}


def test_a_delayed_message_for_a_split_partition_goes_down_the_tree(topic, clock):
    topic.write(b"late", key="a", partition=0, delay="300ms")
    topic.split(0)
    clock.advance(1)
    with topic.reader() as reader:
        message = reader.receive(timeout=60)
    assert (message.value, message.partition) == (b"late", side("a"))


@pytest.mark.parametrize("keyed", [True, False])
def test_a_message_sent_again_after_a_split_is_stored_once(open_store, topic, keyed):
    """S001-20, S001-23: both children know all that the parent knew of producers."""

    def send(topic, numbers):
        with topic.writer(producer_id="shop") as writer:
            for number in numbers:
                writer.write(b"%d" % number, key=KEYS[number] if keyed else None, seqno=number)

    send(topic, range(40))
    topic.split(0)
    send(topic, range(60))
    topic.split(1)
    send(open_store().topic("orders"), range(60))
    values = sorted(int(value) for values in stored(topic).values() for value in values)
    assert values == list(range(60))


def test_a_writer_that_counts_goes_on_through_splits(open_store, topic):
    with open_store().topic("orders").writer(producer_id="shop") as writer:
        for number, key in enumerate(KEYS):
            writer.write(b"%d" % number, key=key)
            if number == 20:
                writer.flush()
                topic.split(0)
            if number == 40:
                writer.flush()
                topic.split(2)
    assert stored(topic) == {key: [b"%d" % number] for number, key in enumerate(KEYS)}


@pytest.mark.parametrize("splits", ["before the newer one", "after it", "twice"])
def test_an_older_writer_is_fenced_in_the_children_too(open_store, topic, splits):
    older = open_store().topic("orders").writer(producer_id="shop")
    older.write(b"older", key="a")
    older.flush()
    if splits in ("before the newer one", "twice"):
        topic.split(0)
    with open_store().topic("orders").writer(producer_id="shop") as newer:
        newer.write(b"newer", key="a")
        newer.flush()
        if splits in ("after it", "twice"):
            topic.split(side("a") if splits == "twice" else 0)
        older.write(b"too late", key="a")
        with pytest.raises((ProducerFenced, penstock.Closed)):
            older.flush()
        newer.write(b"newest", key="a")
    assert stored(topic) == {"a": [b"older", b"newer", b"newest"]}
    with suppress(penstock.PenstockError):  # it has been said, here or by the thread that flushes
        older.close()


def test_a_bound_group_stays_together_through_splits(topic):
    receipts = []
    for number in range(4):
        receipts += [topic.write(b"%d" % number, group="g") for _ in range(3)]
        if number < 3:
            topic.split(receipts[-1].partition)
    numbers = [receipt.partition for receipt in receipts]
    assert all(len(set(numbers[first : first + 3])) == 1 for first in range(0, 12, 3))
    assert numbers == sorted(numbers)
    assert stored(topic)[None] == [b"%d" % (number // 3) for number in range(12)]


def test_partitions_can_be_added_beside_split_ones(topic):
    topic.split(0, at=2**30)
    topic.alter(partitions=3)
    cut = 2**30 + 3 * 2**29
    assert [(each.partition, each.low, each.high, each.parents) for each in topic.partitions()[1:]] == [
        (1, 0, 2**30, (0,)),
        (2, 2**30, cut, (0,)),
        (3, cut, 2**32, (2,)),
    ]
    topic.write_many([b"1"] * len(KEYS), keys=KEYS)
    assert stored(topic) == {key: [b"1"] for key in KEYS}


# Parents that are empty.


def test_a_parent_goes_when_its_messages_are_gone(store, clock, tmp_path):
    """S001-16, S001-27: its row stays, and a consumer that stood in it goes on in the children."""
    topic = store.create_topic("orders", autopartitioning="paused", retention="1h", sync="os")
    topic.add_consumer("billing")
    with topic.writer(producer_id="shop") as writer:
        for number, key in enumerate(KEYS):
            writer.write(b"old", key=key, seqno=number)
    topic.split(0)
    topic.vacuum()
    assert [each.partition for each in topic.partitions()] == [0, 1, 2]
    clock.advance(7200)
    topic.write_many([b"new"] * len(KEYS), keys=KEYS)
    topic.vacuum()
    assert [(each.partition, dict(each.gates)) for each in topic.partitions()] == [(1, {}), (2, {})]
    assert not (tmp_path / "store" / "topics" / "orders" / "parts" / "000000").exists()
    with topic.reader(consumer="billing", follow=False, on_gap="skip") as reader:
        assert [message.value for message in reader] == [b"new"] * len(KEYS)
        assert [gap[:4] for gap in reader.gaps] == [("orders", 0, 0, len(KEYS))]
    with topic.writer(producer_id="shop") as writer:
        for number, key in enumerate(KEYS):
            writer.write(b"again", key=key, seqno=number)
    assert stored(topic) == {key: [b"new"] for key in KEYS}
    assert topic.split(1) == (3, 4), "a number is used once"
    with pytest.raises(InvalidOption, match="no partition 0"):
        topic.write(b"late", partition=0)


def test_a_parent_stays_while_a_reader_has_it(store, clock):
    topic = store.create_topic("orders", autopartitioning="paused", retention="1h", sync="os")
    topic.write(b"old", key="a")
    topic.split(0)
    with topic.reader(consumer="billing") as reader:
        message = reader.receive(timeout=10)
        clock.advance(7200)
        topic.vacuum()
        assert [each.partition for each in topic.partitions()] == [0, 1, 2]
        reader.commit(message)
    topic.vacuum()
    assert [each.partition for each in topic.partitions()] == [1, 2]


# What is refused.


def test_a_topic_that_does_not_grow_is_not_split(store):
    topic = store.create_topic("fixed")
    with pytest.raises(InvalidOption, match="autopartitioning='disabled'"):
        topic.split(0)


def test_once_enabled_it_is_only_paused(topic):
    """S001-28, S001-30."""
    topic.alter(autopartitioning="up")
    topic.alter(autopartitioning="paused")
    topic.alter(autopartitioning="scale_up")
    assert topic.options.autopartitioning == "up"
    with pytest.raises(InvalidOption, match="can only be paused"):
        topic.alter(autopartitioning="disabled")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_bytes": "1MiB"}, "max_bytes"),
        ({"partitioner": "kafka"}, "partitioner='kafka'"),
        ({"partitioner": "diskq"}, "partitioner='diskq'"),
        ({"partitions": 65}, "max_partitions=64"),
        ({"up_utilization_percent": 0}, "up_utilization_percent"),
        ({"up_utilization_percent": 101}, "up_utilization_percent"),
        ({"stabilization_window": "0s"}, "stabilization_window"),
        ({"stabilization_window": 300}, "no unit"),
        ({"max_partitions": 0}, "max_partitions"),
        ({"autopartitioning": "down"}, "autopartitioning='down'"),
    ],
)
def test_what_cannot_be_together_is_refused_by_name(store, options, named):
    """S001-32; each refusal names both options."""
    with pytest.raises(InvalidOption, match=named):
        store.create_topic("orders", **{"autopartitioning": "up", **options})
    assert "orders" not in [each.name for each in store.topics()]


@pytest.mark.parametrize("at", [0, -1, 2**32, 2**33])
def test_a_partition_is_split_inside_its_range(topic, at):
    with pytest.raises(InvalidOption):
        topic.split(0, at=at)
    assert len(topic.partitions()) == 1


@pytest.mark.parametrize("partition", [1, -1, 10**9])
def test_only_a_partition_that_exists_is_split(topic, partition):
    with pytest.raises(InvalidOption):
        topic.split(partition)


def test_a_writers_own_partitioner_is_refused(topic):
    with pytest.raises(InvalidOption, match=r"partitioner.*autopartitioning"):
        topic.writer(partitioner=lambda key, count: 0)


@pytest.mark.parametrize("change", [{"partitions": 2}, {"autopartitioning": "up"}])
def test_streams_and_events_keep_their_one_partition(store, change):
    """The topic remembers what it is used as: the stream opens again."""
    store.stream("chat")
    store.events("news")
    for name in ("chat", "news"):
        with pytest.raises(InvalidOption, match="one partition"):
            store.topic(name).alter(**change)
    store.stream("chat")
    store.events("news")
