"""A store whose folder is moved while it is open: that is said, and nothing is made at the old place."""

import os
import shutil

import pytest

import penstock
from tests.kit.logs import seal_segment
from tests.kit.topics import inside

SENTENCE = "moved or removed"


@pytest.fixture
def moved(tmp_path):
    """An open store and its topic, moved elsewhere."""
    old, new = tmp_path / "data", tmp_path / "moved"
    store = penstock.open(old)
    topic = store.create_topic("orders", segment_bytes=4096)
    topic.write(b"before")
    os.rename(old, new)
    yield store, topic, old, new
    store.close()
    assert not old.exists(), "it was made again at its old place"


def fill(topic):
    """Write until the open segment is full."""
    for _ in range(100):
        topic.write(bytes(1000))


def in_a_transaction(store):
    with store.transaction() as tx:
        tx.write("orders", b"x")


@pytest.mark.parametrize(
    "act",
    [
        lambda store, topic: store.topic("orders"),
        lambda store, topic: store.create_topic("other"),
        lambda store, topic: in_a_transaction(store),
        lambda store, topic: store.stream("s"),
        lambda store, topic: store.sessions.open("orders"),
        lambda store, topic: topic.write(b"later", delay="1s"),
        lambda store, topic: topic.vacuum(),
        lambda store, topic: topic.reader(consumer="c").receive(timeout=0),
        lambda store, topic: topic.alter(partitions=3),
        lambda store, topic: seal_segment(inside(topic).log(0)),
        lambda store, topic: fill(topic),
    ],
)
def test_what_needs_the_folder_says_that_it_was_moved(moved, act):
    store, topic, _, _ = moved
    with pytest.raises(penstock.StoreMoved, match=SENTENCE) as raised:
        act(store, topic)
    assert "open" in raised.value.hint


def test_what_was_acknowledged_before_and_after_is_in_the_moved_store(moved):
    _, topic, _, new = moved
    acknowledged = [b"before"]
    for number in range(100):
        try:
            topic.write(b"%d" % number)
        except penstock.StoreMoved:
            break
        acknowledged.append(b"%d" % number)
    with penstock.open(new) as other:
        assert [m.value for m in other.topic("orders").read()] == acknowledged


def test_another_store_in_the_old_place_is_left_alone(tmp_path):
    old, new = tmp_path / "data", tmp_path / "moved"
    first = penstock.open(old)
    topic = first.create_topic("orders", segment_bytes=4096)
    topic.write(b"of the first")
    os.rename(old, new)
    with penstock.open(old) as second:
        second.create_topic("orders").write(b"of the second")
    with pytest.raises(penstock.StoreMoved):
        fill(topic)
    with pytest.raises(penstock.StoreMoved):
        first.topic("orders")
    first.close()
    with penstock.open(old) as second:
        assert [m.value for m in second.topic("orders").read()] == [b"of the second"]
    shutil.rmtree(new)
