"""The thread that appends delayed messages: a topic that fails holds up no other, and loses nothing."""

import logging

import pytest

import penstock
from penstock.delay import file_reader
from penstock.delay.records import uuid7
from penstock.delay.waiting import WaitingMessages
from penstock.errors import DiskFull
from penstock.files import Files
from penstock.topic import delayed_publisher
from penstock.topic.open_topic import OpenTopic
from tests.kit.topics import inside


@pytest.fixture
def failing(monkeypatch):
    """Names of topics that cannot be appended to."""
    names, append = set(), OpenTopic.append

    def refuse(self, *arguments, **options):
        if self.name in names:
            raise DiskFull("no room", hint="make some")
        return append(self, *arguments, **options)

    monkeypatch.setattr(OpenTopic, "append", refuse)
    return names


def texts(store, name):
    return [message.text for message in store.topic(name).read()]


def test_a_failing_topic_does_not_hold_up_others(store, clock, failing, caplog):
    """Issue 17, 7: its messages wait, in order, those of other topics enter theirs in time."""
    for name in ("bad", "good"):
        store.create_topic(name)
        for number in range(3):
            store.topic(name).write(f"{number}", delay="1m", timestamp=number)
    failing.add("bad")
    clock.advance("1m")
    with caplog.at_level(logging.WARNING):
        store.flush_housekeeping()
    assert texts(store, "good") == ["0", "1", "2"]
    assert "could not be appended" in caplog.text
    store.topic("good").write("later", delay="1s")
    store.topic("bad").write("3", delay="1s")
    clock.advance("1s")
    store.flush_housekeeping()
    assert texts(store, "good") == ["0", "1", "2", "later"]
    assert texts(store, "bad") == []
    failing.clear()
    clock.advance("2m")
    store.flush_housekeeping()
    assert texts(store, "bad") == ["0", "1", "2", "3"]


def test_a_topic_that_fails_is_left_alone_for_a_while(store, clock, failing, monkeypatch):
    tries = []
    publish = delayed_publisher.DelayedPublisher._append

    def counted(self, topic_id, messages):
        tries.append(len(messages))
        publish(self, topic_id, messages)

    monkeypatch.setattr(delayed_publisher.DelayedPublisher, "_append", counted)
    store.create_topic("bad").write("x", delay="1s")
    failing.add("bad")
    clock.advance("1s")
    for _ in range(5):
        store.flush_housekeeping()
    assert tries == [1]
    clock.advance("1s")
    store.flush_housekeeping()
    assert tries == [1, 1]


def test_many_messages_of_a_failing_topic_are_stored_again(store, clock, failing, monkeypatch):
    """Or they would fill the window of their chain, and with it hold up others of the same delay."""
    monkeypatch.setattr(delayed_publisher, "_KEPT_MAX", 10)
    bad, good = store.create_topic("bad"), store.create_topic("good")
    with bad.writer() as writer:
        for number in range(50):
            writer.write(b"%d" % number, delay="1m")
    good.write("x", delay="1m")
    failing.add("bad")
    clock.advance("1m")
    store.flush_housekeeping()
    assert texts(store, "good") == ["x"]
    failing.clear()
    for _ in range(3):
        clock.advance("1m")
        store.flush_housekeeping()
    assert sorted(map(int, texts(store, "bad"))) == list(range(50))


def test_large_messages_of_a_failing_topic_do_not_hold_up_others(store, clock, failing):
    """Issue 17, 7: a few of them fill the window of their chain, as many small ones do."""
    bad, good = store.create_topic("bad"), store.create_topic("good")
    for number in range(8):
        bad.write(b"%d" % number * 1_000_000, delay="1m")
    for number in range(3):
        good.write(f"{number}", delay="1m")
    failing.add("bad")
    clock.advance("1m")
    for _ in range(10):
        store.flush_housekeeping()
    assert texts(store, "good") == ["0", "1", "2"]
    failing.clear()
    for _ in range(5):
        clock.advance("1m")
        store.flush_housekeeping()
    assert sorted(text[0] for text in texts(store, "bad")) == sorted("01234567")


def test_many_failing_topics_together_do_not_hold_up_others(store, clock, failing, monkeypatch):
    monkeypatch.setattr(delayed_publisher, "_KEPT_MAX", 20)
    for number in range(10):
        store.create_topic(f"bad{number}")
        failing.add(f"bad{number}")
        with store.topic(f"bad{number}").writer() as writer:
            for each in range(15):
                writer.write(b"%d" % each, delay="1m")
    good = store.create_topic("good")
    good.write("x", delay="1m")
    clock.advance("1m")
    store.flush_housekeeping()
    publisher = inside(good).delayed
    assert sum(len(each.due) for each in publisher._failing.values()) <= 20
    assert texts(store, "good") == ["x"]
    failing.clear()
    for _ in range(5):
        clock.advance("1m")
        store.flush_housekeeping()
    assert all(sorted(map(int, texts(store, f"bad{number}"))) == list(range(15)) for number in range(10))


def test_what_a_failing_topic_left_is_appended_by_the_next_process(tmp_path, clock, failing):
    with penstock.open(tmp_path / "data", clock=clock) as store:
        store.create_topic("bad").write("x", delay="1m")
        failing.add("bad")
        clock.advance("1m")
        store.flush_housekeeping()
    failing.clear()
    with penstock.open(tmp_path / "data", clock=clock) as store:
        for _ in range(3):
            clock.advance("1m")
            store.flush_housekeeping()
        assert texts(store, "bad") == ["x"]


def test_a_record_that_is_no_message_stays_and_holds_up_nobody(tmp_path, clock, caplog):
    path = tmp_path / "data"
    with penstock.open(path, clock=clock) as store:
        store.create_topic("orders").write("x", delay="1m")
        folder = path / "delay" / "publish"
        with WaitingMessages(folder, clock=clock) as waiting:
            waiting.store(wait="1m", id=uuid7(0), topic="orders", data=b"\xc1 no message")
        clock.advance("1m")
        store.flush_housekeeping()
        assert texts(store, "orders") == ["x"]
        assert "cannot be read" in caplog.text
    states = file_reader.stored_states(str(folder), Files())
    assert [record.data for record in file_reader.records(str(folder), Files(), states)] == [
        b"\xc1 no message"
    ]


def test_a_quota_of_one_topic_does_not_hold_up_others(store, clock):
    """Delayed messages are charged to it, and those who write behind them wait."""
    slow = store.create_topic("slow", write_quota=True, partition_write_speed="1KiB")
    quick = store.create_topic("quick")
    slow.write(b"x" * 100 * 1024)
    for number in range(3):
        slow.write(f"{number}", delay="1m")
        quick.write(f"{number}", delay="1m")
    clock.advance("1m")
    before = clock.monotonic()
    store.flush_housekeeping()
    assert clock.monotonic() == before
    assert texts(store, "quick") == ["0", "1", "2"]
    assert texts(store, "slow")[1:] == ["0", "1", "2"]
    assert slow.write(b"x").waited > 30
