"""What users of readers and of `process` meet: traces of failures, durations, bounds, cost."""

import logging
from datetime import timedelta

import pytest

import penstock
from penstock import Retry


@pytest.fixture
def topic(store):
    return store.create_topic("orders", sync="os")


def test_each_failed_attempt_leaves_a_warning_and_a_dead_letter_an_error(
    store, topic, interface, caplog, clock
):
    topic.write(b"bad")

    def handle(message):
        raise LookupError("nobody is called so")

    policy = Retry(first="1s", attempts=2, jitter=0)
    with caplog.at_level(logging.WARNING, "penstock.reader"):
        with topic.reader(consumer="c", retry=policy) as reader:
            assert reader.process(interface.handler(handle), follow=False).retried == 1
            clock.advance(2)
            assert reader.process(interface.handler(handle), follow=False).dead == 1
    warnings = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert [each.getMessage().partition(":")[0] for each in warnings] == [
        f"attempt {number} of orders/0 offset 0 failed" for number in (1, 2)
    ]
    assert all("in handle" in logging.Formatter().formatException(each.exc_info) for each in warnings)
    (error,) = (each for each in caplog.records if each.levelno == logging.ERROR)
    assert "dead letter after 2 attempts" in error.getMessage()
    (letter,) = store.dead_letters("orders").list()
    assert letter.last_error == "LookupError: nobody is called so"
    assert "in handle" in letter.traceback
    assert letter.traceback.endswith("LookupError: nobody is called so\n")


def test_a_traceback_is_kept_in_part_when_it_is_long(store, topic, interface):
    topic.write(b"bad")

    def handle(message):
        raise ValueError("x" * 100_000)

    with topic.reader(consumer="c", retry=Retry(attempts=1)) as reader:
        reader.process(interface.handler(handle), follow=False)
    (letter,) = store.dead_letters("orders").list()
    assert len(letter.traceback) == 4000


def test_what_is_only_text_has_no_traceback(store, topic):
    topic.write(b"bad")
    with topic.reader(consumer="c") as reader:
        reader.reject(reader.receive(timeout=10), "no")
    (letter,) = store.dead_letters("orders").list()
    assert (letter.reason, letter.traceback) == ("no", "")


@pytest.mark.parametrize("timeout", ["20ms", 0.02, timedelta(milliseconds=20), 0, -1])
def test_a_timeout_is_a_duration_like_any_other(topic, timeout):
    with topic.reader() as reader:
        assert reader.receive(timeout=timeout) is None
        assert len(reader.receive_batch(timeout=timeout)) == 0


@pytest.mark.parametrize("timeout", ["soon", "20", True, [1]])
def test_what_is_no_duration_is_refused(topic, timeout):
    with topic.reader() as reader, pytest.raises(penstock.UsageError, match="timeout"):
        reader.receive(timeout=timeout)


def test_an_age_to_begin_at_is_text_or_a_timedelta(topic, clock):
    topic.write(b"old")
    clock.advance(100)
    topic.write(b"new")
    for start in ("10s", timedelta(seconds=10)):
        with topic.reader(start=start, follow=False) as reader:
            assert [message.value for message in reader] == [b"new"]
        assert [message.value for message in topic.read(start=start)] == [b"new"]


@pytest.mark.parametrize("on_gap", ["raise", "skip"])
def test_a_batch_of_no_bytes_is_a_batch_of_one_message(topic, on_gap):
    for number in range(3):
        topic.write(b"%d" % number)
    with topic.reader(consumer="c", follow=False, on_gap=on_gap) as reader:
        got = [[m.value for m in reader.receive_batch(10, max_bytes=0)] for _ in range(4)]
        assert (got, reader.gaps) == ([[b"0"], [b"1"], [b"2"], []], [])


def test_receiving_what_is_due_one_by_one_takes_each_from_its_file_once(topic, clock, monkeypatch):
    """200 due messages were built 20,100 times."""
    made = []
    from tests.kit.consumers import Envelope

    original = Envelope.message
    monkeypatch.setattr(Envelope, "message", lambda *args: made.append(1) or original(*args))
    topic.write_many([b"x"] * 200)
    with topic.reader(consumer="c") as reader:
        for _ in range(200):
            reader.retry(reader.receive(timeout=10), after=1)
        clock.advance(2)
        for _ in range(200):
            reader.commit(reader.receive(timeout=10))
        assert reader.receive(timeout=0) is None
    assert len(made) == 200


def test_what_is_due_and_fetched_is_given_back_when_the_reader_is_closed(topic, clock):
    topic.write_many([b"x"] * 5)
    with topic.reader(consumer="c") as reader:
        for _ in range(5):
            reader.retry(reader.receive(timeout=10), after=1)
        clock.advance(2)
        reader.commit(reader.receive(timeout=10))
    with topic.reader(consumer="c") as reader:
        got = [reader.receive(timeout=10) for _ in range(4)]
        assert sorted((m.offset, m.attempt) for m in got) == [(number, 2) for number in range(1, 5)]
        assert reader.receive(timeout=0) is None


def test_a_bounded_read_says_that_there_is_more_and_where(store):
    topic = store.create_topic("many", partitions=3, sync="os")
    for partition in range(3):
        topic.write_many([b"%d" % partition] * 700, partition=partition)
    batch = topic.read()
    assert (len(batch), batch.more, batch.next) == (1000, True, {0: 700, 1: 300, 2: 0})
    assert repr(batch) == "<Batch many: 1000 messages, and more>"
    rest = topic.read(start=batch.next, limit=1100)
    assert (len(rest), rest.more, rest.next) == (1100, False, {0: 700, 1: 700, 2: 700})
    assert repr(rest) == "<Batch many: 1100 messages>"
    topic.write(b"later", partition=1)
    assert [message.value for message in topic.read(start=rest.next)] == [b"later"]


def test_a_bounded_read_of_one_partition_or_key_says_so_too(store):
    topic = store.create_topic("many", partitions=2, sync="os", index="key")
    topic.write_many([b"a", b"b", b"c"] * 2, keys=["x", "y", "x"] * 2, partition=1)
    batch = topic.read(partition=1, limit=4)
    assert (batch.more, batch.next) == (True, {1: 4})
    batch = topic.read(key="x", limit=3)
    assert (len(batch), batch.more) == (3, True)
    batch = topic.read(key="x", start=batch.next)
    assert (len(batch), batch.more) == (1, False)


def test_a_message_that_is_not_there_yet_is_named_by_its_own_offset(topic):
    topic.write(b"x")
    with pytest.raises(penstock.OffsetAhead, match=r"offset 99 .* beyond the end \(1\)") as caught:
        topic.get(99)
    assert (caught.value.offset, caught.value.end) == (99, 1)


def test_key_retention_and_a_consumer_that_keeps_messages_are_refused_together(store):
    """S001-49, S001-56: the consumer got 0 of 5 messages, without a gap or an error."""
    topic = store.create_topic("orders", index="key", key_retention={"tmp": "1s"})
    for options in ({"important": True}, {"availability_period": "1h"}):
        with pytest.raises(penstock.InvalidOption, match=r"key_retention .*'audit' with .*(important|avail)"):
            topic.add_consumer("audit", **options)
    topic.add_consumer("audit")
    with pytest.raises(penstock.InvalidOption, match="key_retention"):
        topic.alter_consumer("audit", important=True)
    plain = store.create_topic("plain", index="key")
    plain.add_consumer("audit", important=True)
    with pytest.raises(penstock.InvalidOption, match=r"key_retention .*'audit' with important=True"):
        plain.alter(key_retention={"tmp": "1s"})
    assert plain.options.key_retention == ()
