"""Readers over several topics, what they pass over, and how far behind they are."""

from datetime import UTC, datetime

import pytest

import penstock


@pytest.fixture
def orders(store):
    return store.create_topic("orders", partitions=2, sync="os")


@pytest.fixture
def payments(store):
    return store.create_topic("payments", sync="os")


# Several topics (B001-12, B001-24).


def test_one_consumer_reads_several_topics_in_turn(store, orders, payments):
    """Batches are of one topic each; each partition gets its turn."""
    for partition in range(2):
        orders.write_many([b"o"] * 4, partition=partition)
    payments.write_many([b"p"] * 4)
    with store.reader(["orders", payments], consumer="billing", follow=False) as reader:
        assert reader.assigned == [("orders", 0), ("orders", 1), ("payments", 0)]
        batches = [reader.receive_batch(max_messages=2) for _ in range(6)]
        turns = [(batch.topic, batch[0].partition) for batch in batches]
        assert turns == [("orders", 0), ("orders", 1), ("payments", 0)] * 2
        for batch in batches:
            reader.commit(batch)
        assert not reader.lag()
    assert orders.consumers()[0].positions == {0: 4, 1: 4}
    assert payments.consumers()[0].positions == {0: 4}
    assert store.consumers() == ["billing"]


def test_messages_of_a_reader_carry_their_topic_and_are_committed_there(store, orders, payments):
    orders.write(b"o", partition=0)
    payments.write(b"p")
    with store.reader(["orders", "payments"], consumer="c", follow=False) as reader:
        for message in reader:
            reader.commit(message)
    assert [topic.consumers()[0].lag for topic in (orders, payments)] == [0, 0]


def test_a_reader_of_several_topics_waits_for_any_of_them(store, orders, payments):
    with store.reader([orders, payments]) as reader:
        assert reader.receive(timeout=0) is None
        payments.write(b"p")
        assert reader.receive(timeout=10).topic == "payments"


def test_a_single_name_will_do(store, payments):
    payments.write(b"p")
    with store.reader("payments", follow=False) as reader:
        assert reader.receive().value == b"p"


@pytest.mark.parametrize("wrong", [[], ["orders", "orders"], 3, None])
def test_topics_that_make_no_sense_are_refused(store, orders, wrong):
    with pytest.raises(penstock.UsageError):
        store.reader(wrong).receive(timeout=0)


def test_a_topic_of_another_store_is_refused(store, open_store, orders, tmp_path):
    other = open_store(tmp_path / "other").create_topic("elsewhere")
    with pytest.raises(penstock.InvalidOption, match="another store"):
        store.reader([orders, other]).receive(timeout=0)
    with pytest.raises(penstock.UnknownTopic):
        store.reader(["orders", "nothing"]).receive(timeout=0)


# What is passed over (B001-04, B001-12).


def test_messages_written_before_read_from_are_passed_over_and_told(payments, clock):
    payments.write_many([b"old"] * 5)
    clock.advance("2h")
    payments.write_many([b"new"] * 3)
    with payments.reader(consumer="c", read_from="1h", follow=False) as reader:
        assert [message.offset for message in reader] == [5, 6, 7]
        (gap,) = reader.skipped
        assert (gap.topic, gap.partition, gap.first, gap.stop) == ("payments", 0, 0, 5)
        assert "read_from" in gap.reason
        assert reader.gaps == []
    assert payments.consumers()[0].positions == {0: 5}, "what is passed over is done"


def test_read_from_of_a_consumer_holds_for_its_readers_and_can_be_changed(payments, clock):
    payments.write_many([b"old"] * 2)
    clock.advance("2h")
    payments.write(b"new")
    moment = datetime.fromtimestamp(clock.now_ns() / 1e9 - 60, UTC)
    payments.add_consumer("c", read_from=moment)
    with payments.reader(consumer="c", follow=False) as reader:
        assert [message.value for message in reader] == [b"new"]
    payments.alter_consumer("c", read_from=None)
    payments.seek_consumer("c", "earliest")
    with payments.reader(consumer="c", follow=False) as reader:
        assert [message.value for message in reader] == [b"old", b"old", b"new"]
    with payments.reader(read_from=moment, follow=False) as reader:
        assert [message.value for message in reader] == [b"new"], "also without a consumer"


def test_max_lag_passes_over_what_is_too_old_each_time(payments, clock):
    payments.write_many([b"0"] * 3)
    with payments.reader(consumer="c", max_lag="10m") as reader:
        assert len(reader.receive_batch(max_messages=2, timeout=5)) == 2
        clock.advance("1h")
        payments.write_many([b"1"] * 2)
        batch = reader.receive_batch(timeout=5)
        assert [message.offset for message in batch] == [3, 4]
        clock.advance("1h")
        payments.write(b"2")
        assert reader.receive(timeout=5).offset == 5
        assert [(gap.first, gap.stop) for gap in reader.skipped] == [(2, 3)]
        reader.commit(batch)
        assert payments.consumers()[0].positions == {0: 0}, "the first two are not committed"


def test_a_message_with_all_before_it_passed_over_is_committed_alone(payments, clock):
    payments.write_many([b"old"] * 3)
    clock.advance("1h")
    payments.write(b"new")
    with payments.reader(consumer="c", max_lag="1m") as reader:
        reader.commit(reader.receive(timeout=5))
    assert payments.consumers()[0].positions == {0: 4}


@pytest.mark.parametrize(
    "options",
    [
        {"read_from": "earliest"}, {"read_from": "7"}, {"read_from": 1.5}, {"read_from": "sometime"},
        {"max_lag": "soon"}, {"max_lag": -1}, {"max_lag": []}, {"handover": "x"}, {"handover": None},
        {"partitions": []}, {"partitions": "01"}, {"partitions": [2]},
    ],
)  # fmt: skip
def test_reader_options_that_make_no_sense_are_refused(orders, options):
    with pytest.raises(penstock.UsageError):
        orders.reader(**options).receive(timeout=0)


# Options of consumers.


def test_a_consumers_options_are_changed_and_told(payments):
    """U01, S001-56."""
    payments.add_consumer("c", availability_period="7d")
    payments.alter_consumer("c", important=True)
    (consumer,) = payments.consumers()
    assert (consumer.important, consumer.availability_period_s) == (True, 7 * 86400)
    payments.alter_consumer("c", availability_period=None, important=False)
    (consumer,) = payments.consumers()
    assert (consumer.important, consumer.availability_period_s) == (False, None)


def test_altering_refuses_what_it_does_not_know(payments):
    payments.add_consumer("c")
    with pytest.raises(penstock.InvalidOption, match="important"):
        payments.alter_consumer("c", imporant=True)
    with pytest.raises(penstock.WrongType):
        payments.alter_consumer("c", important="yes")
    with pytest.raises(penstock.UnknownConsumer):
        payments.alter_consumer("nobody", important=True)


@pytest.mark.parametrize("name", ["../c", "a/b", "", ".c", "c\0", "x" * 201])
def test_a_consumers_name_is_no_path(payments, name):
    with pytest.raises(penstock.InvalidOption):
        payments.reader(consumer=name).receive(timeout=0)
    with pytest.raises(penstock.InvalidOption):
        payments.kick_consumer(name)


# Lag (S001-57, B001-19).


def test_lag_is_told_in_messages_bytes_and_time(payments, clock):
    payments.add_consumer("c")
    assert payments.consumers()[0].lag_bytes == 0
    payments.write_many([b"x" * 100] * 5)
    clock.advance("90s")
    payments.write_many([b"x" * 100] * 5)
    (consumer,) = payments.consumers()
    assert (consumer.lag, consumer.lag_seconds) == (10, 90.0)
    assert 1000 < consumer.lag_bytes < 3000
    with payments.reader(consumer="c") as reader:
        reader.commit(reader.receive_batch(max_messages=5))
        assert reader.lag().messages == 5
        assert reader.lag().seconds == 0.0
        half = payments.consumers()[0]
        assert (half.lag, half.lag_seconds) == (5, 0.0)
        assert 500 < half.lag_bytes < consumer.lag_bytes
        reader.commit(reader.receive_batch())
        assert reader.lag() == (0, 0, 0.0)
    assert payments.consumers()[0].lag_bytes == 0


def test_bytes_behind_are_counted_over_segments(store):
    topic = store.create_topic("long", sync="os", segment_bytes="4KiB")
    for _ in range(100):
        topic.write(b"x" * 100)
    topic.add_consumer("first")
    topic.add_consumer("middle", start=50)
    found = {consumer.consumer: consumer for consumer in topic.consumers()}
    assert found["first"].lag_bytes >= 10_000
    assert 5_000 <= found["middle"].lag_bytes < found["first"].lag_bytes
    topic.vacuum()
    assert topic.consumers()[0].lag == 100
