"""Live readers: what comes, in which portions, when it ends."""

import threading
import time

import pytest

import penstock

SMALL = {"sync": "os", "segment_bytes": "4KiB"}


@pytest.fixture
def topic(store):
    return store.create_topic("orders", **SMALL)


def values(messages):
    return [int(message.value) for message in messages]


def numbers(start, stop):
    return [b"%d" % i for i in range(start, stop)]


def test_receive_hands_out_one_by_one_and_none_after_the_timeout(topic):
    topic.write_many(numbers(0, 3))
    with topic.reader() as reader:
        assert [int(reader.receive().value) for _ in range(3)] == [0, 1, 2]
        assert reader.receive(timeout=0) is None
        began = time.monotonic()
        assert reader.receive(timeout=0.05) is None
        assert time.monotonic() - began >= 0.05


def test_follow_false_ends_at_the_present_end(topic):
    topic.write_many(numbers(0, 3))
    with topic.reader(follow=False) as reader:
        assert values(reader) == [0, 1, 2]
        assert reader.receive() is None
        assert len(reader.receive_batch()) == 0
        topic.write(b"3")
        assert values(reader) == [3]


def test_a_waiting_reader_gets_what_is_written_later(topic):
    with topic.reader() as reader:
        timer = threading.Timer(0.05, lambda: topic.write(b"7"))
        timer.start()
        assert reader.receive(timeout=10).value == b"7"
        timer.join()


def test_a_reader_at_the_end_hears_of_a_write_soon(topic):
    """S004-07: how soon is measured in benchmarks; here, that it does not wait for its next look."""
    with topic.reader() as reader:
        assert reader.receive(timeout=0) is None
        waits = []
        for number in range(10):
            timer = threading.Timer(0.01, lambda number=number: topic.write(b"%d" % number))
            timer.start()
            began = time.monotonic()
            assert int(reader.receive(timeout=10).value) == number
            waits.append(time.monotonic() - began)
            timer.join()
    assert min(waits) < 0.5


def test_closing_a_reader_ends_who_waits_on_it(topic):
    """W001-2: nothing hangs on close."""
    reader = topic.reader()
    timer = threading.Timer(0.05, reader.close)
    timer.start()
    with pytest.raises(penstock.Closed):
        reader.receive(timeout=30)
    timer.join()
    for call in (reader.receive, reader.receive_batch, reader.lag, lambda: reader.seek(0)):
        with pytest.raises(penstock.Closed):
            call()


def test_closing_the_store_ends_who_waits_in_it(store, topic):
    reader = topic.reader()
    timer = threading.Timer(0.05, store.close)
    timer.start()
    with pytest.raises(penstock.Closed):
        reader.receive(timeout=30)
    timer.join()


def test_a_batch_holds_no_more_messages_than_asked(topic):
    topic.write_many(numbers(0, 10))
    for number in range(10, 20):
        topic.write(b"%d" % number)
    with topic.reader(follow=False) as reader:
        batches = []
        while batch := reader.receive_batch(max_messages=3):
            batches.append(values(batch))
    assert [number for batch in batches for number in batch] == list(range(20))
    assert max(map(len, batches)) == 3


def test_a_batch_cut_by_bytes_counts_exactly(topic):
    """B001 tests: "batch cut by max_bytes keeps byte accounting exact"; keys and values count."""
    topic.write_many([b"v" * 90] * 20, keys=[b"k" * 10] * 20)
    with topic.reader(follow=False) as reader:
        counts = [len(reader.receive_batch(max_bytes=limit)) for limit in (500, 499, 599, 100, 101)]
        assert counts == [5, 4, 5, 1, 1]
        assert len(reader.receive_batch()) == 4


@pytest.mark.parametrize("seal", [False, True])
def test_single_messages_are_cut_by_bytes_too(store, topic, seal):
    for _ in range(40):
        topic.write(b"v" * 90, key=b"k" * 10)
    if seal:
        topic.write(b"v" * 4000)
        assert store.flush_housekeeping()
    with topic.reader(follow=False) as reader:
        seen = 0
        while seen < 40:
            batch = reader.receive_batch(max_bytes=350)
            assert 1 <= len(batch) <= 3
            assert batch[0].offset == seen
            seen += len(batch)


def test_a_batch_holds_one_message_at_least(topic):
    """B001-13: the first message comes even if it is larger than asked for."""
    topic.write_many([b"v" * 2000] * 3)
    topic.write(b"v" * 2000)
    with topic.reader(follow=False) as reader:
        assert [len(reader.receive_batch(max_bytes=1)) for _ in range(4)] == [1, 1, 1, 1]
        assert len(reader.receive_batch(max_bytes=1)) == 0


def test_a_batch_after_receive_goes_on_where_it_was(topic):
    topic.write_many([b"%03d" % i for i in range(100)])
    with topic.reader(follow=False) as reader:
        assert reader.receive().offset == 0
        assert values(reader.receive_batch(max_messages=2)) == [1, 2]
        assert values(reader.receive_batch(max_bytes=9)) == [3, 4, 5]
        assert reader.receive().offset == 6
        assert values(reader.receive_batch()) == list(range(7, 100))


@pytest.mark.parametrize("wrong", [{"max_messages": 0}, {"max_messages": -1}, {"max_bytes": "many"}])
def test_senseless_limits_are_refused(topic, wrong):
    with topic.reader() as reader, pytest.raises(penstock.InvalidOption):
        reader.receive_batch(**wrong)


def test_a_lagging_reader_gets_nothing_twice_while_segments_roll(topic):
    """W004-01: 34 messages in 4 segments came as 38."""
    with topic.reader() as reader:
        seen = []
        for number in range(34):
            topic.write(b"%d" % number, headers={"pad": "x" * 400})
            if number % 3 == 0:
                seen.append(reader.receive(timeout=0))
        while (message := reader.receive(timeout=0)) is not None:
            seen.append(message)
    assert topic.stats().partitions[0].segments >= 4
    assert values(seen) == list(range(34))


def test_readers_are_independent_of_each_other(topic):
    """S001-02: each consumer gets everything, in the order written."""
    topic.write_many(numbers(0, 10))
    with topic.reader(consumer="a", follow=False) as a, topic.reader(consumer="b", follow=False) as b:
        for message in a:
            a.commit(message)
        assert values(b.receive_batch(max_messages=4)) == [0, 1, 2, 3]
        assert a.receive() is None
        assert b.receive().offset == 4
    positions = {each.consumer: each.positions for each in topic.consumers()}
    assert positions == {"a": {0: 10}, "b": {0: 0}}


def test_without_a_consumer_nothing_is_saved_and_commit_is_refused(store, topic):
    """B001-16."""
    topic.write_many(numbers(0, 3))
    with topic.reader(follow=False) as reader:
        message = reader.receive()
        with pytest.raises(penstock.UsageError, match="without a consumer"):
            reader.commit(message)
    assert store.consumers() == []
    with topic.reader(follow=False) as reader:
        assert values(reader) == [0, 1, 2]


def test_some_partitions_can_be_chosen(store):
    topic = store.create_topic("wide", partitions=3, sync="os")
    for partition in range(3):
        topic.write(b"%d" % partition, partition=partition)
    with topic.reader(partitions=[0, 2], follow=False) as reader:
        assert reader.assigned == [("wide", 0), ("wide", 2)]
        assert sorted(values(reader)) == [0, 2]
    with pytest.raises(penstock.InvalidOption):
        topic.reader(partitions=[3])


def test_partitions_take_turns(store):
    topic = store.create_topic("wide", partitions=3, sync="os")
    for partition in range(3):
        topic.write_many(numbers(0, 4), partition=partition)
    with topic.reader(follow=False) as reader:
        turns = [reader.receive_batch(max_messages=2)[0].partition for _ in range(6)]
    assert turns == [0, 1, 2, 0, 1, 2]


def test_lag_counts_what_was_not_delivered(topic):
    topic.write_many(numbers(0, 10))
    with topic.reader(follow=False) as reader:
        assert reader.lag().messages == 10
        reader.receive_batch(max_messages=4)
        assert reader.lag().messages == 6
        reader.receive()
        assert reader.lag().messages == 5, "what was only fetched was not delivered"
    with topic.reader(start="latest") as reader:
        assert reader.lag() == (0, 0, 0.0)
        assert not reader.lag()


def test_a_position_behind_retention_raises_and_names_the_first_offset_left(store, clock):
    """W004-06: never a silent jump."""
    topic = store.create_topic("short", retention="1h", **SMALL)
    topic.write_many(numbers(0, 5))
    with topic.reader(consumer="slow") as slow, topic.reader() as fast:
        assert slow.receive().offset == 0
        clock.advance("2h")
        topic.write_many(numbers(5, 8))
        assert topic.vacuum().messages == 5
        slow.receive_batch()  # what it had in its hands already
        assert values(slow.receive_batch()) == [5, 6, 7]
        with pytest.raises(penstock.OffsetTrimmed) as gone:
            fast.receive()
        assert (gone.value.partition, gone.value.offset, gone.value.first) == (0, 0, 5)
        fast.seek("earliest")
        assert values(fast.receive_batch()) == [5, 6, 7]
    with topic.reader(consumer="slow") as slow, pytest.raises(penstock.OffsetTrimmed):
        slow.receive()


def test_a_position_behind_retention_can_be_skipped_and_is_noted(store, clock):
    """W004-06."""
    topic = store.create_topic("short", retention="1h", **SMALL)
    topic.write_many(numbers(0, 5))
    topic.add_consumer("slow")
    clock.advance("2h")
    topic.write_many(numbers(5, 8))
    topic.vacuum()
    with topic.reader(consumer="slow", on_gap="skip", follow=False) as reader:
        batch = reader.receive_batch()
        assert values(batch) == [5, 6, 7]
        (gap,) = reader.gaps
        assert (gap.topic, gap.partition, gap.first, gap.stop) == ("short", 0, 0, 5)
        reader.commit(batch)
    assert topic.consumers()[0].positions == {0: 8}


def test_an_unknown_way_to_treat_gaps_is_refused(topic):
    with pytest.raises(penstock.InvalidOption):
        topic.reader(on_gap="ignore")


def test_a_reader_of_an_empty_topic_waits(topic):
    with topic.reader(consumer="c") as reader:
        assert reader.receive(timeout=0) is None
        topic.write(b"1")
        assert reader.receive(timeout=5).value == b"1"
