"""Messages that failed come again later, to their consumer only (B003-03, B003-04, C19, C24)."""

import threading

import pytest

import penstock
from penstock import Retry
from tests.kit.patience import PATIENCE_S

EXACT = Retry(jitter=0)


@pytest.fixture
def topic(store):
    return store.create_topic("orders")


def fill(topic, count, **options):
    for number in range(count):
        topic.write(f"m{number}", **options)


def values(messages):
    return [message.value.decode() for message in messages]


def drained(reader):
    """All there is now, committed."""
    found = []
    while (message := reader.receive(timeout=0)) is not None:
        found.append(message)
        reader.commit(message)
    return found


def test_a_retried_message_comes_back_after_its_time_with_one_attempt_more(topic, clock):
    topic.write(b"pay", key="customer-7", headers={"source": "shop"}, timestamp=5)
    with topic.reader(consumer="billing", retry=EXACT) as reader:
        first = reader.receive(timeout=0)
        assert reader.retry(first, error=ValueError("no answer")) is True
        assert reader.receive(timeout=0) is None
        clock.advance("999ms")
        assert reader.receive(timeout=0) is None
        clock.advance("1ms")
        again = reader.receive(timeout=0)
    assert (first.attempt, again.attempt) == (1, 2)
    for name in ("topic", "partition", "offset", "key", "value", "headers", "timestamp", "written_at"):
        assert getattr(again, name) == getattr(first, name)


def test_it_is_committed_and_others_go_on(topic, clock):
    fill(topic, 3)
    with topic.reader(consumer="billing") as reader:
        reader.retry(reader.receive(timeout=0), after="1m")
        assert values(drained(reader)) == ["m1", "m2"]
    assert topic.consumers()[0].lag == 0
    with topic.reader(consumer="billing") as reader:
        assert reader.receive(timeout=0) is None
        clock.advance("1m")
        assert values(drained(reader)) == ["m0"]
        clock.advance("1d")
        assert drained(reader) == []


def test_nothing_is_appended_and_no_other_consumer_gets_it(topic, clock):
    fill(topic, 1)
    with topic.reader(consumer="a") as a, topic.reader(consumer="b") as b:
        a.retry(a.receive(timeout=0), after="1s")
        assert values(drained(b)) == ["m0"]
        clock.advance("1s")
        assert b.receive(timeout=0) is None
        assert values(drained(a)) == ["m0"]
    assert topic.stats().messages == 1


def test_what_was_not_committed_comes_again_with_the_same_attempt(topic, clock):
    fill(topic, 1)
    with topic.reader(consumer="billing") as reader:
        reader.retry(reader.receive(timeout=0), after="1s")
        clock.advance("1s")
        assert reader.receive(timeout=0).attempt == 2
    with topic.reader(consumer="billing") as reader:
        message = reader.receive(timeout=0)
        assert message.attempt == 2
        assert reader.retry(message, after="1s")
        clock.advance("1s")
        assert reader.receive(timeout=0).attempt == 3


def test_batches_of_messages_that_come_again_are_committed_each_for_itself(topic, clock):
    fill(topic, 6)
    with topic.reader(consumer="billing") as reader:
        batch = reader.receive_batch(timeout=0)
        for place in (0, 3, 5):
            reader.retry(batch[place], after="1s")
        clock.advance("1s")
        again = reader.receive_batch(timeout=0)
        assert values(again) == ["m0", "m3", "m5"]
        reader.commit(again)
    with topic.reader(consumer="billing") as reader:
        # What lies between was not committed with them; behind it, done or not, all comes again.
        assert values(drained(reader)) == ["m1", "m2", "m3", "m4", "m5"]


def test_one_by_one_and_in_batches_nothing_comes_twice(topic, clock):
    fill(topic, 5)
    with topic.reader(consumer="billing") as reader:
        for message in reader.receive_batch(timeout=0):
            reader.retry(message, after="1s")
        clock.advance("1s")
        first = reader.receive(timeout=0)
        rest = reader.receive_batch(timeout=0)
        assert values([first, *rest]) == [f"m{number}" for number in range(5)]


def test_new_messages_and_those_that_come_again_take_turns(topic, clock):
    fill(topic, 2)
    with topic.reader(consumer="billing") as reader:
        for message in reader.receive_batch(timeout=0):
            reader.retry(message, after="1s")
        clock.advance("1s")
        topic.write("new")
        found = [reader.receive_batch(1, timeout=0)[0].value for _ in range(3)]
        assert found == [b"m0", b"new", b"m1"]


def test_iteration_delivers_what_is_due(topic, clock):
    fill(topic, 2)
    with topic.reader(consumer="billing", follow=False) as reader:
        for message in reader:
            reader.retry(message, after="1s")
        clock.advance("1s")
        seen = []
        for message in reader:
            seen.append(message)
            reader.commit(message)
    assert values(seen) == ["m0", "m1"]


def test_who_waits_is_woken_when_it_is_due(open_store):
    store = open_store()
    topic = store.create_topic("orders")
    fill(topic, 1)
    with topic.reader(consumer="billing") as reader:
        reader.retry(reader.receive(timeout=1), after="50ms")
        assert reader.receive(timeout=10).attempt == 2


def test_after_the_last_attempt_it_is_a_dead_letter(store, topic, clock):
    topic.write(b"pay", key="customer-7", headers={"source": "shop"})
    with topic.reader(consumer="billing", retry=Retry(first="1s", attempts=2, jitter=0)) as reader:
        assert reader.retry(reader.receive(timeout=0), error=ValueError("first")) is True
        clock.advance("1s")
        assert reader.retry(reader.receive(timeout=0), error="second") is False
        clock.advance("1d")
        assert reader.receive(timeout=0) is None
    (letter,) = store.dead_letters("orders").list()
    assert (letter.consumer, letter.attempts, letter.reason) == ("billing", 2, "attempts exhausted")
    assert (letter.first_error, letter.last_error) == ("ValueError: first", "second")
    assert (letter.message.key, letter.message.value) == (b"customer-7", b"pay")
    assert dict(letter.message.headers) == {"source": "shop"}
    assert store.topic("orders.dead").options.retention_s == 30 * 86400


def test_back_off_doubles_up_to_its_limit(topic, clock):
    fill(topic, 1)
    waits = []
    policy = Retry(first="1s", factor=2, limit="5s", attempts=6, jitter=0)
    with topic.reader(consumer="billing", retry=policy) as reader:
        message = reader.receive(timeout=0)
        while reader.retry(message):
            seconds = 0
            while (message := reader.receive(timeout=0)) is None:
                clock.advance("1s")
                seconds += 1
            waits.append(seconds)
    assert waits == [1, 2, 4, 5, 5]


def test_packed_and_typed_values_come_back_as_they_were(store, clock):
    topic = store.create_topic("typed", type=dict)
    with topic.writer(codec="gzip") as writer:
        writer.write({"amount": 7})
    with topic.reader(consumer="billing") as reader:
        reader.retry(reader.receive(timeout=0), after="1s")
        clock.advance("1s")
        message = reader.receive(timeout=0)
        assert (message.value, message.codec) == ({"amount": 7}, "gzip")
        reader.reject(message, "too much")
    (letter,) = store.dead_letters("typed").list()
    assert (letter.message.value, letter.message.codec) == (b'{"amount":7}', "gzip")


def test_tombstones_and_bytes_headers_come_back_as_they_were(topic, clock):
    topic.write(None, key=b"\xff", headers={"raw": b"\x00\xff", "text": "ü"})
    with topic.reader(consumer="billing") as reader:
        reader.retry(reader.receive(timeout=0), after="1s")
        clock.advance("1s")
        message = reader.receive(timeout=0)
    assert (message.key, message.value) == (b"\xff", None)
    assert dict(message.headers) == {"raw": b"\x00\xff", "text": "ü"}


def test_a_retried_message_outlives_its_topics_retention(store, clock):
    topic = store.create_topic("short", retention="1h", segment_age="1m")
    fill(topic, 1)
    with topic.reader(consumer="billing") as reader:
        reader.retry(reader.receive(timeout=0), after="1d")
        clock.advance("25h")
        topic.write("later")
        topic.vacuum()
        assert topic.stats().messages == 1
        assert sorted(values(drained(reader))) == ["later", "m0"]


def test_in_a_transaction_it_is_done_with_the_commit_and_again_after_a_rollback(store, topic, clock):
    fill(topic, 1)
    store.create_topic("out")
    with topic.reader(consumer="billing") as reader:
        reader.retry(reader.receive(timeout=0), after="1s")
        clock.advance("1s")
        transaction = store.transaction()
        assert len(reader.receive_batch(timeout=0, tx=transaction)) == 1
        transaction.rollback()
        with store.transaction() as transaction:
            batch = reader.receive_batch(timeout=0, tx=transaction)
            assert values(batch) == ["m0"]
            transaction.write("out", batch[0].value)
    with topic.reader(consumer="billing") as reader:
        assert reader.receive(timeout=0) is None
    assert values(store.topic("out").read()) == ["m0"]


def test_wrong_calls_are_told_so(topic, clock):
    fill(topic, 1)
    with topic.reader() as reader, pytest.raises(penstock.UsageError, match="without a consumer"):
        reader.retry(reader.receive(timeout=0))
    with topic.reader(consumer="billing") as reader:
        message = reader.receive(timeout=0)
        for wrong in (0, -1, "3650d", "soon"):
            with pytest.raises(penstock.InvalidOption):
                reader.retry(message, after=wrong)
        with pytest.raises(penstock.WrongType):
            reader.reject(message, 7)
        with pytest.raises(penstock.WrongType):
            reader.retry("m0")
        reader.retry(message, after="1s")
        with pytest.raises(penstock.UsageError, match="done already"):
            reader.retry(message, after="1s")
        reader.commit(message)  # as always: what is done stays done
        clock.advance("1s")
        assert reader.receive(timeout=0).value == b"m0"
    with pytest.raises(penstock.WrongType):
        topic.reader(consumer="billing", retry=3).close()


def test_a_partition_that_went_takes_what_waits_with_it(topic, clock):
    fill(topic, 1)
    with topic.reader(consumer="billing") as first:
        first.retry(first.receive(timeout=0), after="1s")
        clock.advance("1s")
        mine = first.receive(timeout=0)
        topic.kick_consumer("billing")
        with topic.reader(consumer="billing") as second:
            assert second.receive(timeout=5).value == b"m0"
            with pytest.raises(penstock.PartitionLost):
                first.commit(mine)
            with pytest.raises(penstock.PartitionLost):
                first.retry(mine)


def test_dropping_a_consumer_drops_what_waits(topic, clock):
    fill(topic, 1)
    with topic.reader(consumer="billing") as reader:
        reader.retry(reader.receive(timeout=0), after="1s")
    topic.drop_consumer("billing")
    clock.advance("1s")
    with topic.reader(consumer="billing", start="latest") as reader:
        assert reader.receive(timeout=0) is None


@pytest.mark.parametrize(
    "options",
    [
        {"attempts": 0}, {"attempts": 1.5}, {"first": 0}, {"first": "2h"}, {"limit": "10000d"},
        {"factor": 0.5}, {"factor": "2"}, {"jitter": 2}, {"jitter": None},
    ],
)  # fmt: skip
def test_a_policy_that_makes_no_sense_is_refused(options):
    with pytest.raises(penstock.UsageError):
        Retry(**options)


# process


def test_process_commits_retries_and_buries(interface, store, topic, clock):
    fill(topic, 4)
    seen = []

    def handle(message):
        seen.append((message.value, message.attempt))
        if message.value in (b"m1", b"m2") and (message.value == b"m2" or message.attempt == 1):
            raise ValueError("boom")

    policy = Retry(first="1s", attempts=2, jitter=0)
    with topic.reader(consumer="billing") as reader:
        first = reader.process(interface.handler(handle), retry=policy, follow=False)
        clock.advance("1s")
        second = reader.process(interface.handler(handle), retry=policy, follow=False)
    assert first == (2, 2, 0)
    assert second == (1, 0, 1)
    assert seen == [(b"m0", 1), (b"m1", 1), (b"m2", 1), (b"m3", 1), (b"m1", 2), (b"m2", 2)]
    assert [each.message.value for each in store.dead_letters("orders").list()] == [b"m2"]
    assert topic.consumers()[0].lag == 0


def test_process_with_several_workers_handles_each_once(interface, topic):
    fill(topic, 500)
    seen = []
    with topic.reader(consumer="billing") as reader:
        summary = reader.process(interface.handler(lambda m: seen.append(m.offset)), workers=8, follow=False)
    assert summary.handled == 500
    assert sorted(seen) == list(range(500))
    assert topic.consumers()[0].lag == 0


def test_workers_run_at_the_same_time(interface, topic):
    if interface.name == "async":
        pytest.skip("coroutines meet in one thread")
    fill(topic, 4)
    meeting = threading.Barrier(4, timeout=PATIENCE_S)
    with topic.reader(consumer="billing") as reader:
        assert reader.process(lambda message: meeting.wait(), workers=4, follow=False).handled == 4


@pytest.mark.parametrize("workers", [1, 3])
def test_stop_ends_a_process_and_loses_nothing(interface, topic, workers):
    fill(topic, 50)
    with topic.reader(consumer="billing") as reader:
        seen = []
        stop = getattr(reader, "_target", reader).stop  # the async one is called in its loop

        def handle(message):
            seen.append(message.offset)
            if len(seen) == 10:
                stop()

        summary = reader.process(interface.handler(handle), workers=workers)
        assert 10 <= summary.handled == len(seen) < 50
    with topic.reader(consumer="billing") as reader:
        rest = [message.offset for message in drained(reader)]
    assert sorted({*seen, *rest}) == list(range(50))


@pytest.mark.parametrize("workers", [1, 4])
def test_keep_order_blocks_only_the_key(interface, topic, clock, workers):
    for number in range(3):
        for key in ("a", "b", "c"):
            topic.write(f"{key}{number}", key=key)
    done = []

    def handle(message):
        if message.value == b"a0" and message.attempt < 3:
            raise ValueError("not yet")
        done.append(message.value.decode())

    policy = Retry(first="10s", jitter=0)
    with topic.reader(consumer="billing", retry=policy) as reader:

        def process():
            return reader.process(interface.handler(handle), workers=workers, keep_order=True, follow=False)

        process()
        assert sorted(done) == ["b0", "b1", "b2", "c0", "c1", "c2"]
        assert topic.consumers()[0].lag == 0  # those behind it wait in files, and hold up nobody
        clock.advance("11s")
        process()
        assert "a1" not in done
    with topic.reader(consumer="billing", retry=policy) as reader:
        clock.advance("25s")
        reader.process(interface.handler(handle), workers=workers, keep_order=True, follow=False)
    for key in ("a", "b", "c"):
        assert [value for value in done if value[0] == key] == [f"{key}{number}" for number in range(3)]


def test_a_handler_may_decide_for_itself(store, clock):
    if hasattr(store, "_target"):
        pytest.skip("the same reader underneath")
    topic = store.create_topic("orders")
    fill(topic, 3)
    with topic.reader(consumer="billing") as reader:

        def handle(message):
            if message.value == b"m0":
                reader.reject(message, "never")
            elif message.value == b"m1":
                reader.retry(message, after="1s")
                raise ValueError("decided already")

        assert reader.process(handle, follow=False).dead == 0
        clock.advance("1s")
        assert values(drained(reader)) == ["m1"]
    assert store.dead_letters("orders").count() == 1


def test_process_refuses_what_is_no_handler(interface, topic):
    with topic.reader(consumer="billing") as reader:
        with pytest.raises(penstock.WrongType):
            reader.process("handle", follow=False)
        with pytest.raises(penstock.InvalidOption):
            reader.process(interface.handler(print), workers=0, follow=False)
    with topic.reader() as reader, pytest.raises(penstock.UsageError):
        reader.process(interface.handler(print), follow=False)
