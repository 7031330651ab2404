"""Dropping a topic: those who have it open are told, and a new one of its name is another topic."""

import contextlib
import threading

import pytest

import penstock


@pytest.fixture
def topic(store):
    topic = store.create_topic("orders", sync="os")
    topic.write_many([b"1", b"2"])
    return topic


def test_a_dropped_topic_is_gone(store, topic):
    store.drop_topic("orders")
    assert store.topics() == []
    for call in (lambda: store.topic("orders"), lambda: store.drop_topic("orders")):
        with pytest.raises(penstock.UnknownTopic):
            call()


def test_who_holds_a_dropped_topic_gets_topic_replaced(store, topic):
    reader, writer = topic.reader(consumer="c"), topic.writer()
    message = reader.receive()
    store.drop_topic("orders")
    store.create_topic("orders", sync="os").write(b"other")
    writer.write(b"3")
    for call in (
        lambda: topic.write(b"3"),
        lambda: topic.write_many([b"3"]),
        lambda: topic.read(),
        lambda: topic.get(0),
        lambda: topic.stats(),
        lambda: topic.vacuum(),
        lambda: topic.alter(retention="1h"),
        lambda: topic.reader(),
        lambda: reader.receive_batch() and reader.receive_batch(timeout=5),
        lambda: reader.commit(message),
        writer.flush,
    ):
        with pytest.raises((penstock.TopicReplaced, penstock.PartitionLost)):
            call()
    reader.close()
    with contextlib.suppress(penstock.TopicReplaced):
        writer.close()


def test_who_holds_it_elsewhere_is_told_too(store, topic, open_store, clock):
    """The other store stands for another process."""
    elsewhere = open_store(clock=clock).topic("orders")
    with elsewhere.reader() as reader, elsewhere.writer() as writer:
        assert len(reader.receive_batch()) == 2
        store.drop_topic("orders")
        store.create_topic("orders", sync="os").write(b"other")
        for call in (
            lambda: reader.receive(timeout=10),
            lambda: elsewhere.write(b"3"),
            lambda: writer.write_many([b"3"]),
            lambda: elsewhere.stats(),
        ):
            with pytest.raises(penstock.TopicReplaced):
                call()
    assert [m.value for m in store.topic("orders").read()] == [b"other"]


def test_a_waiting_reader_is_told(store, topic):
    with topic.reader(start="latest") as reader:
        timer = threading.Timer(0.05, store.drop_topic, ["orders"])
        timer.start()
        with pytest.raises(penstock.TopicReplaced):
            reader.receive(timeout=30)
        timer.join()


def test_a_new_topic_of_the_same_name_begins_anew(store, topic):
    with topic.reader(consumer="c", follow=False) as reader:
        reader.commit(reader.receive_batch())
    store.drop_topic("orders")
    again = store.create_topic("orders", sync="os", partitions=2)
    assert again.id != topic.id
    assert (again.stats().messages, again.consumers(), store.consumers()) == (0, [], [])
    assert again.write(b"first", partition=0).offset == 0
    with again.reader(consumer="c", follow=False) as reader:
        assert [m.value for m in reader] == [b"first"]


def test_other_topics_stay(store, topic):
    other = store.create_topic("other", sync="os")
    other.write(b"mine")
    other.add_consumer("c")
    topic.add_consumer("c")
    store.drop_topic("orders")
    assert [m.value for m in other.read()] == [b"mine"]
    assert store.consumers() == ["c"]


def test_a_store_whose_topic_was_dropped_elsewhere_says_so_and_closes(store, open_store, clock):
    """Also when nobody made a new one in its place, and files are gone that were never opened here."""
    topic = store.create_topic("t", sync="os", segment_bytes=4096)
    for _ in range(10):
        topic.write(b"x" * 1000)
    elsewhere = open_store(clock=clock)
    assert len(elsewhere.topic("t").read()) == 10
    held = elsewhere.topic("t")
    assert store.flush_housekeeping()
    store.drop_topic("t")
    with pytest.raises(penstock.TopicReplaced):
        held.read()
    elsewhere.close()
