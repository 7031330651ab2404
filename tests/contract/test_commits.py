"""Consumers: what is committed is not delivered again, what is not is."""

import pytest

import penstock


@pytest.fixture
def topic(store):
    topic = store.create_topic("orders", sync="os", segment_bytes="4KiB")
    topic.write_many([b"%d" % i for i in range(10)])
    return topic


def position(topic, consumer="billing"):
    (found,) = [each for each in topic.consumers() if each.consumer == consumer]
    return found.positions[0]


def test_commits_in_any_order_move_the_position_over_what_is_whole(topic):
    """B001-15: 1, 3, 2 gives 1, 1, 3."""
    with topic.reader(consumer="billing") as reader:
        messages = [reader.receive() for _ in range(5)]
        moves = []
        for index in (0, 2, 4, 1, 3):
            reader.commit(messages[index])
            moves.append(position(topic))
        assert moves == [1, 1, 1, 3, 5]
        reader.commit(messages[2])
        assert position(topic) == 5


def test_whole_batches_are_committed_in_any_order(topic):
    with topic.reader(consumer="billing") as reader:
        batches = [reader.receive_batch(max_messages=3) for _ in range(3)]
        moves = []
        for index in (1, 2, 0):
            reader.commit(batches[index])
            moves.append(position(topic))
        assert moves == [0, 0, 9]


def test_an_uncommitted_message_comes_again(topic):
    """S001-03: at least once."""
    with topic.reader(consumer="billing") as reader:
        reader.commit(reader.receive())
        assert reader.receive().offset == 1
    with topic.reader(consumer="billing") as reader:
        assert reader.receive().offset == 1


def test_a_consumer_goes_on_after_reopening_the_store(store, topic, open_store, clock):
    """S004-08, S001-55."""
    with topic.reader(consumer="billing") as reader:
        reader.commit(reader.receive_batch(max_messages=4))
    store.close()
    topic = open_store(clock=clock).topic("orders")
    with topic.reader(consumer="billing", follow=False) as reader:
        assert [message.offset for message in reader] == list(range(4, 10))


def test_a_consumer_that_has_read_everything_goes_on(store, topic, open_store, clock):
    """W004-02: it hung for ever."""
    with topic.reader(consumer="billing", follow=False) as reader:
        for message in reader:
            reader.commit(message)
    store.close()
    topic = open_store(clock=clock).topic("orders")
    with topic.reader(consumer="billing") as reader:
        assert reader.receive(timeout=0) is None
        topic.write(b"10")
        assert reader.receive(timeout=5).offset == 10


def test_a_new_consumer_begins_where_it_says_and_an_old_one_where_it_stood(topic):
    with topic.reader(consumer="fresh", start="latest") as reader:
        assert reader.receive(timeout=0) is None
        topic.write(b"10")
        reader.commit(reader.receive(timeout=5))
    topic.write(b"11")
    with topic.reader(consumer="fresh", start="earliest", follow=False) as reader:
        assert [message.offset for message in reader] == [11]


def test_what_was_not_delivered_cannot_be_committed(topic):
    with topic.reader(consumer="billing") as reader, topic.reader() as other:
        last = other.receive_batch()[-1]
        with pytest.raises(penstock.InvalidOption, match="not delivered"):
            reader.commit(last)
        reader.receive_batch()
        reader.commit(last)
    assert position(topic) == 0


def test_a_message_of_another_topic_cannot_be_committed(store, topic):
    other = store.create_topic("other", sync="os")
    other.write(b"x")
    with topic.reader(consumer="billing") as reader:
        reader.receive()
        with pytest.raises(penstock.InvalidOption, match="'other'"):
            reader.commit(other.get(0))


@pytest.mark.parametrize("wrong", [None, 3, "1", [1]])
def test_only_messages_and_batches_can_be_committed(topic, wrong):
    with topic.reader(consumer="billing") as reader, pytest.raises(penstock.WrongType):
        reader.commit(wrong)


def test_a_hole_in_the_offsets_belongs_to_the_message_behind_it(store, clock):
    """B001 tests: a commit's range covers the hole before it."""
    topic = store.create_topic("short", retention="1h", sync="os")
    topic.write_many([b"old"] * 5)
    with topic.reader(consumer="billing", on_gap="skip") as reader:
        early = reader.receive_batch(max_messages=2)
        clock.advance("2h")
        topic.write_many([b"new"] * 2)
        topic.vacuum()
        late = reader.receive_batch()
        assert [m.offset for m in late] == [5, 6]
        reader.commit(late[0])
        assert position(topic) == 0
        reader.commit(early)
        assert position(topic) == 6


def test_a_consumer_moved_by_someone_else_loses_its_place_loudly(topic):
    """B001-15: "partition expired"; opening again goes on at the new place."""
    with topic.reader(consumer="billing") as reader:
        message = reader.receive()
        assert topic.seek_consumer("billing", 7) == {0: 7}
        with pytest.raises(penstock.PartitionLost):
            reader.commit(message)
    with topic.reader(consumer="billing") as reader:
        assert reader.receive().offset == 7


def test_a_seek_is_stored_at_once(topic):
    with topic.reader(consumer="billing") as reader:
        reader.receive()
        reader.seek(6)
        assert position(topic) == 6
        message = reader.receive()
        assert message.offset == 6
        reader.commit(message)
    assert position(topic) == 7


def test_consumers_are_declared_listed_and_dropped(store, topic):
    """S001-54."""
    topic.add_consumer("audit", important=True, start=4)
    with pytest.raises(penstock.AlreadyExists):
        topic.add_consumer("audit")
    (audit,) = topic.consumers()
    assert (audit.consumer, audit.important, audit.positions, audit.lag) == ("audit", True, {0: 4}, 6)
    assert store.consumers() == ["audit"]
    topic.drop_consumer("audit")
    assert store.consumers() == []
    with pytest.raises(penstock.UnknownConsumer):
        topic.drop_consumer("audit")
    with pytest.raises(penstock.UnknownConsumer):
        topic.reader(consumer="audit", create=False)
    assert store.consumers() == []


def test_seeking_a_consumer_that_is_not_there_makes_it(topic):
    assert topic.seek_consumer("later", "latest") == {0: 10}
    assert position(topic, "later") == 10
