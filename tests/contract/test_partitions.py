"""Adding partitions: noticed by those who read and write, and no key loses its order."""

import time

import pytest

import penstock
from tests.kit.patience import PATIENCE_S


@pytest.fixture
def topic(store):
    return store.create_topic("orders", partitions=2, sync="os")


def keys_that_move(before, after, count=40):
    """Keys that another partition gets once there are more."""
    from tests.kit.topics import by_range

    keys = [f"key-{i}".encode() for i in range(1000)]
    moved = [key for key in keys if by_range(key, before) != by_range(key, after)]
    return moved[:count]


def test_an_open_reader_notices_new_partitions(topic):
    """S004-09."""
    with topic.reader() as reader:
        assert reader.receive(timeout=0) is None
        topic.alter(partitions=3)
        topic.write(b"new", partition=2)
        message = reader.receive(timeout=10)
        assert (message.partition, message.value) == (2, b"new")
        assert reader.assigned == [("orders", 0), ("orders", 1), ("orders", 2)]


def test_a_reader_that_began_at_the_end_gets_new_partitions_from_their_beginning(topic):
    with topic.reader(consumer="c", start="latest") as reader:
        topic.alter(partitions=3)
        topic.write_many([b"1", b"2"], partition=2)
        values = []
        while len(values) < 2:
            message = reader.receive(timeout=10)
            values.append(message.value)
            reader.commit(message)
    assert values == [b"1", b"2"]


def test_a_consumer_that_was_away_gets_new_partitions_from_their_beginning(topic):
    topic.add_consumer("c", start="latest")
    topic.alter(partitions=3)
    topic.write(b"1", partition=2)
    with topic.reader(consumer="c", follow=False) as reader:
        assert [m.value for m in reader] == [b"1"]


def test_a_key_that_moves_keeps_its_order(topic):
    """W004-11: a new partition opens to a consumer once it is done with what came before."""
    keys = keys_that_move(2, 4)
    for number in range(3):
        topic.write_many([b"%d" % number] * len(keys), keys=keys)
    topic.alter(partitions=4)
    for number in range(3, 6):
        topic.write_many([b"%d" % number] * len(keys), keys=keys)
    seen = {key: [] for key in keys}
    with topic.reader(consumer="c") as reader:
        deadline = time.monotonic() + PATIENCE_S
        while sum(map(len, seen.values())) < 6 * len(keys) and time.monotonic() < deadline:
            batch = reader.receive_batch(max_messages=7, timeout=1)
            for message in batch:
                seen[message.key].append(int(message.value))
            reader.commit(batch)
    assert seen == {key: [0, 1, 2, 3, 4, 5] for key in keys}


def test_a_new_partition_opens_when_what_came_before_is_delivered(topic):
    """One reader gives out both, in order; it need not commit in between."""
    topic.write(b"before", partition=0)
    topic.alter(partitions=3)
    topic.write(b"after", partition=2)
    with topic.reader(consumer="c") as reader:
        assert [reader.receive(timeout=10).value for _ in range(2)] == [b"before", b"after"]


def test_a_new_partition_stays_shut_to_handlers_while_what_came_before_is_not_committed(store, interface):
    """Handlers run beside each other: what came before must be done, not only delivered."""
    topic = store.create_topic("shut", partitions=1, sync="os")
    topic.write(b"before", partition=0)
    topic.alter(partitions=2)
    topic.write(b"after", partition=1)
    seen = []

    def handle(message):
        (stats,) = topic.consumers() if message.value == b"after" else (None,)
        seen.append((message.value, stats and stats.positions[0]))

    with topic.reader(consumer="c") as reader:
        reader.process(
            handle if interface.name == "blocking" else interface.handler(seen.append), follow=False
        )
    if interface.name == "blocking":
        assert seen == [(b"before", None), (b"after", 1)]
    else:
        assert [message.value for message in seen] == [b"before", b"after"]


KEYS = [b"k%d" % number for number in range(25)]


def grown(topic):
    """Messages of some keys in order, written while partitions are added twice; how many there are."""
    count = 0
    for partitions in (2, 4, 7):
        if partitions > 2:
            topic.alter(partitions=partitions)
        for _ in range(16):
            topic.write_many([b"%d" % number for number in range(count, count + 25)], keys=KEYS)
            count += 25
    return count


@pytest.mark.parametrize("consumer", ["c", None])
def test_a_reader_that_ends_at_the_end_delivers_all_of_added_partitions_in_order(store, consumer):
    """S001-45: 750 of 1,200 came, and then the reader ended in silence; nothing is committed meanwhile."""
    topic = store.create_topic("grows", partitions=2, sync="os")
    count = grown(topic)
    with topic.reader(consumer=consumer, follow=False) as reader:
        got = list(reader)
    assert sorted(int(m.value) for m in got) == list(range(count))
    for key in KEYS:
        numbers = [int(m.value) for m in got if m.key == key]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("workers", [1, 3])
def test_process_without_follow_handles_all_of_added_partitions(store, interface, workers):
    topic = store.create_topic("grows", partitions=2, sync="os")
    count = grown(topic)
    seen = []

    def handle(message):
        seen.append(int(message.value))

    with topic.reader(consumer="c") as reader:
        summary = reader.process(interface.handler(handle), follow=False, workers=workers)
    assert (summary.handled, sorted(seen)) == (count, list(range(count)))


def test_a_reader_without_a_consumer_reads_added_partitions_behind_those_before_them(topic):
    topic.write(b"before", partition=0)
    topic.alter(partitions=3)
    topic.write(b"after", partition=2)
    with topic.reader() as reader:
        got = [reader.receive(timeout=10).value for _ in range(2)]
    assert got == [b"before", b"after"]


def test_without_a_consumer_there_is_nothing_to_wait_for(topic):
    topic.write(b"before", partition=0)
    topic.alter(partitions=3)
    topic.write(b"after", partition=2)
    with topic.reader(follow=False) as reader:
        assert sorted(m.value for m in reader) == [b"after", b"before"]


def test_who_has_the_topic_open_elsewhere_writes_by_the_new_partitions(topic, open_store, clock):
    """The other store stands for another process: it learns of the change when it writes."""
    elsewhere = open_store(clock=clock).topic("orders")
    keys = keys_that_move(2, 4)
    elsewhere.write_many([b"before"] * len(keys), keys=keys)
    with elsewhere.writer(linger="1h") as writer:
        writer.write(b"buffered", key=keys[0])
        topic.alter(partitions=4)
        receipts = elsewhere.write_many([b"after"] * len(keys), keys=keys)
        writer.write(b"buffered", key=keys[1])
    assert elsewhere.options.partitions == 4
    there = {m.key: m.partition for m in topic.read() if m.value == b"after"}
    assert {r.partition for r in receipts} == set(there.values())
    assert all(topic.write(b"x", key=key).partition == there[key] for key in keys)
    buffered = {m.key: m.partition for m in topic.read() if m.value == b"buffered"}
    assert buffered == {key: there[key] for key in keys[:2]}


def test_a_scan_elsewhere_finds_what_lies_in_new_partitions(topic, open_store, clock):
    elsewhere = open_store(clock=clock).topic("orders")
    topic.alter(partitions=4)
    topic.write(b"new", partition=3)
    assert [m.value for m in elsewhere.scan().messages()] == [b"new"]


def test_partitions_cannot_be_taken_away(topic):
    """S001-14."""
    with pytest.raises(penstock.InvalidOption, match="taken away"):
        topic.alter(partitions=1)
    assert topic.options.partitions == 2


def test_added_partitions_are_there_after_reopening(topic, store, open_store, clock):
    """B004-13."""
    topic.alter(partitions=4)
    store.close()
    topic = open_store(clock=clock).topic("orders")
    assert topic.options.partitions == 4
    assert len(topic.stats().partitions) == 4


def test_options_can_be_altered_and_read_back(topic, open_store, clock):
    """B001 tests: alter and read it back; B001-27: no change is a success."""
    topic.alter()
    topic.alter(retention="2h", max_bytes="1MiB", segment_bytes="8KiB")
    elsewhere = open_store(clock=clock).topic("orders")
    assert elsewhere.options == topic.options
    assert (topic.options.retention_s, topic.options.max_bytes, topic.options.segment_bytes) == (
        7200.0,
        1 << 20,
        8192,
    )
    topic.alter(retention=None)
    assert topic.options.retention_s is None


@pytest.mark.parametrize(
    "wrong", [{"sync": "disk"}, {"colour": "red"}, {"partitions": 0}, {"retention": "x"}]
)
def test_a_change_that_makes_no_sense_changes_nothing(topic, wrong):
    before = topic.options
    with pytest.raises(penstock.InvalidOption):
        topic.alter(**wrong)
    assert topic.options == before
