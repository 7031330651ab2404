"""A process dies inside `create_topic` or `drop_topic`; the next finds a topic or none, and can go on."""

import os

import pytest

import penstock
from penstock.errors import TopicReplaced, Unavailable, UnknownTopic
from tests.crash.tracing import FIRST_BOOT, BootFiles
from tests.kit.topics import inside


class Died(BaseException):
    """What kill -9 looks like from inside."""


def die():
    raise Died


@pytest.fixture
def path(scratch):
    return os.path.join(scratch, "store")


def opened(path):
    return penstock.open(path, files=BootFiles(FIRST_BOOT))


def values_of(topic):
    return [message.value for message in topic.read()]


def test_a_drop_that_died_before_its_rows_were_gone_did_not_happen(path):
    with opened(path) as store:
        topic = store.create_topic("orders", partitions=2)
        topic.write(b"a", partition=0)
        reader = topic.reader(follow=False)
        with pytest.raises(Died):
            inside(topic).publish_dropped(die)
    with opened(path) as store:
        topic = store.topic("orders")
        assert values_of(topic) == [b"a"]
        assert topic.write(b"b", partition=0).offset == 1
        store.drop_topic("orders")
        with pytest.raises(UnknownTopic):
            store.topic("orders")
    reader.close()


def test_those_who_have_it_open_go_on_after_a_drop_that_died(path):
    with opened(path) as store, opened(path) as other:
        topic = store.create_topic("orders")
        topic.write(b"a")
        with other.topic("orders").reader(follow=False) as reader:
            with pytest.raises(Died):
                inside(topic).publish_dropped(die)
            assert reader.receive().value == b"a"
        assert other.topic("orders").write(b"b").offset == 1


def test_a_drop_that_could_not_be_recorded_did_not_happen(path):
    with opened(path) as store, opened(path) as other:
        store.create_topic("orders").write(b"a")

        def unavailable():
            raise Unavailable("state.db is busy")

        with pytest.raises(Unavailable):
            inside(store.topic("orders")).publish_dropped(unavailable)
        assert values_of(other.topic("orders")) == [b"a"]
        assert other.topic("orders").write(b"b").offset == 1


def test_a_drop_that_died_before_its_folder_was_gone_is_finished_by_the_next_open(path):
    with opened(path) as store:
        topic = store.create_topic("orders")
        topic.write(b"old")
        with pytest.raises(Died):
            inside(topic).publish_dropped(lambda: store._records.drop(topic.id, after=die))
    with opened(path) as store:
        assert store.topics() == []
        assert os.listdir(os.path.join(path, "topics")) == []
        assert values_of(store.create_topic("orders")) == []


def test_a_new_topic_never_takes_over_the_folder_of_one_whose_drop_died(path):
    """The one who creates it dies, too, at the worst moment."""
    with opened(path) as store:
        old = store.create_topic("orders")
        old.write(b"old")
        with pytest.raises(Died):
            inside(old).publish_dropped(lambda: store._records.drop(old.id, after=die))
        commit = store._records._database.transaction

        def die_after_commit(*, after=None):
            return commit(after=die)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store._records._database, "transaction", die_after_commit)
            with pytest.raises(Died):
                store.create_topic("orders")
    with opened(path) as store:
        topic = store.topic("orders")
        assert topic.id != old.id
        assert values_of(topic) == []
        assert topic.write(b"new").offset == 0
        assert values_of(topic) == [b"new"]


def test_a_topic_whose_creator_died_before_making_its_folder_is_an_empty_topic(path):
    with opened(path) as store:
        commit = store._records._database.transaction
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store._records._database, "transaction", lambda *, after=None: commit(after=die))
            with pytest.raises(Died):
                store.create_topic("orders")
    with penstock.open(path, read_only=True) as store:
        assert values_of(store.topic("orders")) == []
    with opened(path) as store:
        assert values_of(store.topic("orders")) == []
        assert store.topic("orders").write(b"first").offset == 0


def test_readers_and_writers_of_a_dropped_topic_hear_of_it_also_when_it_was_made_anew(path):
    with opened(path) as store, opened(path) as other:
        old = other.create_topic("orders")
        old.write(b"old")
        reader = old.reader(follow=False)
        store.drop_topic("orders")
        store.create_topic("orders").write(b"new")
        with pytest.raises(TopicReplaced):
            old.write(b"more")
        with pytest.raises(TopicReplaced):
            reader.receive()
        assert values_of(other.topic("orders")) == [b"new"]
