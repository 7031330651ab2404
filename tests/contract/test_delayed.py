"""Messages written now that enter their topic later (C19)."""

from datetime import UTC, datetime, timedelta

import pytest

import penstock


@pytest.fixture
def topic(store):
    return store.create_topic("orders", partitions=2)


def test_a_delayed_message_enters_the_topic_when_it_is_due(store, topic, clock):
    receipt = topic.write(b"x", key="k", headers={"a": b"1"}, partition=1, delay="1h")
    assert (receipt.partition, receipt.offset) == (-1, -1)
    assert receipt.due_at == clock.now_ns() + 3600 * 10**9
    begin = clock.now_ns()
    clock.advance("59m")
    store.flush_housekeeping()
    assert len(topic.read()) == 0
    clock.advance("1m")
    store.flush_housekeeping()
    (message,) = topic.read()
    assert (message.partition, message.key, message.value) == (1, b"k", b"x")
    assert dict(message.headers) == {"a": b"1"}
    assert (message.timestamp, message.written_at) == (begin, clock.now_ns())
    clock.advance("1d")
    store.flush_housekeeping()
    assert len(topic.read()) == 1


def test_deliver_at_takes_a_moment_and_the_past_is_now(store, topic, clock):
    now = datetime(2030, 1, 1, tzinfo=UTC)
    topic.write("later", deliver_at=now + timedelta(hours=1), partition=0)
    assert topic.write("now", deliver_at=now - timedelta(hours=1), partition=0).offset == 0
    clock.advance("1h")
    store.flush_housekeeping()
    assert [message.text for message in topic.read()] == ["now", "later"]


def test_they_enter_in_the_order_of_their_times(store, topic, clock):
    for number in (3, 1, 2, 0):
        topic.write(str(number), partition=0, delay=f"{number + 1}m", timestamp=number)
    clock.advance("1h")
    store.flush_housekeeping()
    assert [message.text for message in topic.read()] == ["0", "1", "2", "3"]
    assert [message.timestamp for message in topic.read()] == [0, 1, 2, 3]


def test_groups_keep_to_their_partition(store, topic, clock):
    for _ in range(4):
        topic.write("x", group="g", delay="1s")
    clock.advance("1s")
    store.flush_housekeeping()
    assert len({message.partition for message in topic.read()}) == 1


def test_without_anyone_asking_it_comes_by_itself(open_store):
    store = open_store()
    topic = store.create_topic("orders")
    with topic.reader() as reader:
        topic.write("x", delay="50ms")
        assert reader.receive(timeout=10).value == b"x"


def test_a_store_that_was_closed_meanwhile_is_late_and_loses_nothing(open_store, clock):
    store = open_store(clock=clock)
    store.create_topic("orders").write("x", delay="1m")
    store.close()
    clock.advance("1h")
    store = open_store(clock=clock)
    store.flush_housekeeping()
    assert [message.text for message in store.topic("orders").read()] == ["x"]


def test_those_of_a_dropped_topic_go_with_it(store, topic, clock):
    topic.write("x", delay="1s")
    store.create_topic("other").write("y", delay="1s")
    store.drop_topic("orders")
    clock.advance("1s")
    store.flush_housekeeping()
    assert [message.text for message in store.topic("other").read()] == ["y"]


@pytest.mark.parametrize(
    "options",
    [
        {"delay": 0}, {"delay": -5}, {"delay": "3650d"}, {"delay": "soon"}, {"deliver_at": 2**62},
        {"delay": "1s", "deliver_at": 5},
    ],
)  # fmt: skip
def test_waits_that_make_no_sense_are_refused(topic, options):
    with pytest.raises(penstock.InvalidOption):
        topic.write("x", **options)


def test_what_could_not_be_written_at_once_cannot_be_later(store, topic):
    with pytest.raises(penstock.MessageTooLarge):
        topic.write(b"x" * (2 << 20), delay="1s")
    with pytest.raises(penstock.InvalidOption):
        topic.write(b"x", partition=7, delay="1s")
