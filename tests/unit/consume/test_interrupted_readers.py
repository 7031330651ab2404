"""Ctrl-C between two steps of a reader that goes on: what it had read and nobody got comes next."""

import threading

import pytest

import penstock
from penstock.consume.partition import Commits
from penstock.state.queues import Queues


@pytest.fixture
def topic(tmp_path):
    with penstock.open(tmp_path / "store") as store:
        topic = store.create_topic("orders", sync="os")
        topic.write_many([b"%d" % number for number in range(10)])
        yield topic


def interrupted(patch, owner, name):
    """Have the next call of a method interrupted before it begins."""
    method, left = getattr(owner, name), [1]

    def call(*arguments, **options):
        if left:
            left.pop()
            raise KeyboardInterrupt
        return method(*arguments, **options)

    patch.setattr(owner, name, call)


@pytest.mark.parametrize("consumer", [None, "c"])
def test_what_was_read_and_not_noted_is_read_again(topic, monkeypatch, consumer):
    with topic.reader(consumer=consumer, follow=False) as reader:
        interrupted(monkeypatch, Commits, "deliver")
        with pytest.raises(KeyboardInterrupt):
            reader.receive_batch(4)
        assert [message.offset for message in reader] == list(range(10))


@pytest.mark.parametrize("count", [1, 100])
def test_what_was_read_ahead_of_a_queue_and_not_taken_is_taken(topic, monkeypatch, count):
    with topic.reader(consumer="c", kind="queue", follow=False) as reader:
        interrupted(monkeypatch, Queues, "take_new")
        with pytest.raises(KeyboardInterrupt):
            reader.receive_batch(count)
        found = []
        while batch := reader.receive_batch(count):
            found += [message.offset for message in batch]
            reader.commit(batch)
        assert found == list(range(10))


def test_a_worker_that_was_kept_from_starting_is_not_waited_for(topic, monkeypatch):
    handled = set()
    with topic.reader(consumer="c") as reader:
        with monkeypatch.context() as patch:
            interrupted(patch, threading.Thread, "start")
            with pytest.raises(KeyboardInterrupt):
                reader.process(lambda message: None, workers=2, follow=False, signals=False)
        reader.process(lambda message: handled.add(message.offset), workers=2, follow=False)
    assert handled == set(range(10))
