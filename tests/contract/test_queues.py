"""Queues: readers of one consumer share messages, each for the time of a lease (U04, wish 10)."""

import pytest

import penstock
from penstock import Retry


@pytest.fixture
def topic(store):
    topic = store.create_topic("jobs")
    topic.write_many([f"job {number}" for number in range(6)])
    return topic


def queue(topic, **options):
    return topic.reader(consumer="workers", kind="queue", **options)


def offsets(batch):
    return [message.offset for message in batch]


def position(topic):
    (consumer,) = topic.consumers()
    return consumer.positions[0]


def test_readers_share_the_messages_of_one_partition(topic):
    with queue(topic) as one, queue(topic) as two:
        assert offsets(one.receive_batch(2)) == [0, 1]
        assert offsets(two.receive_batch(2)) == [2, 3]
        assert one.receive(timeout=0).offset == 4
        assert two.receive(timeout=0).offset == 5
        assert one.receive(timeout=0) is None
        assert one.assigned == two.assigned == [("jobs", 0)]


def test_commits_come_in_any_order_and_the_position_follows(topic):
    with queue(topic) as one, queue(topic) as two:
        batch = one.receive_batch(3)
        other = two.receive_batch(3)
        two.commit(other)
        assert position(topic) == 0
        one.commit(batch[1])
        one.commit(batch[0])
        assert position(topic) == 2
        one.commit(batch[2])
        assert position(topic) == 6
        assert one.lag().messages == 0


def test_what_is_not_settled_in_time_comes_again_with_the_next_attempt(topic, clock):
    with queue(topic, lease="30s") as one, queue(topic) as two:
        batch = one.receive_batch(2)
        one.commit(batch[0])
        clock.advance("29s")
        assert offsets(two.receive_batch(1)) == [2]
        clock.advance("2s")
        again = two.receive_batch(10)  # stuck and new ones by the same call: the stuck ones first
        assert [(message.offset, message.attempt) for message in again] == [(1, 2)]
        assert offsets(two.receive_batch(10)) == [3, 4, 5]
        with pytest.raises(penstock.PartitionLost):
            one.commit(batch[1])
        with pytest.raises(penstock.PartitionLost):
            one.retry(batch[1])
        two.commit(again)


def test_a_lease_that_ran_out_and_nobody_took_can_still_be_settled(topic, clock):
    with queue(topic, lease="1s") as reader:
        batch = reader.receive_batch(2)
        clock.advance("1h")
        reader.commit(batch)
        assert position(topic) == 2


def test_what_a_reader_had_comes_again_when_it_is_closed(topic):
    reader = queue(topic)
    reader.commit(reader.receive_batch(4)[1])
    reader.close()
    with queue(topic) as other:
        assert offsets(other.receive_batch(10)) == [0, 2, 3]
        assert offsets(other.receive_batch(10)) == [4, 5]


def test_a_retried_message_comes_to_any_reader_when_it_is_due(topic, clock):
    with queue(topic) as one, queue(topic) as two:
        first = one.receive(timeout=0)
        assert one.retry(first, after="1m", error="busy") is True
        two.commit(two.receive_batch(10))
        assert position(topic) == 6
        assert two.receive(timeout=0) is None
        clock.advance("1m")
        found = [reader.receive(timeout=0) for reader in (two, one)]
        (again,) = [message for message in found if message is not None]
        assert (again.offset, again.value, again.attempt) == (0, b"job 0", 2)
        (one if found[0] is None else two).commit(again)
        clock.advance("1h")
        assert one.receive(timeout=0) is two.receive(timeout=0) is None


def test_after_its_attempts_it_is_a_dead_letter_and_so_is_what_is_rejected(store, topic, clock):
    with queue(topic, retry=Retry(first="1s", attempts=2, jitter=0)) as reader:
        reader.reject(reader.receive(timeout=0), "nonsense")
        message = reader.receive(timeout=0)
        assert reader.retry(message, error="one") is True
        clock.advance("1s")
        again = reader.receive(timeout=0)
        assert (again.offset, again.attempt) == (1, 2)
        assert reader.retry(again, error="two") is False
    rejected, tried = store.dead_letters("jobs").list()
    assert (rejected.reason, rejected.message.offset) == ("nonsense", 0)
    assert (tried.attempts, tried.first_error, tried.last_error) == (2, "one", "two")
    assert store.dead_letters("jobs").replay(tried.number) == 1
    with queue(topic) as reader:
        assert [(m.offset, m.attempt) for m in reader.receive_batch(10)] == [(1, 2)]


def test_one_that_nobody_settles_in_time_becomes_a_dead_letter(store, clock):
    topic = store.create_topic("jobs")
    topic.write("poison")
    with queue(topic, lease="1s", retry=Retry(attempts=3)) as reader:
        for attempt in (1, 2, 3):
            assert reader.receive(timeout=0).attempt == attempt
            clock.advance("2s")
        assert reader.receive(timeout=0) is None
    (letter,) = store.dead_letters("jobs").list()
    assert (letter.attempts, letter.reason) == (3, "attempts exhausted")
    assert "not settled in time" in letter.last_error
    assert position(topic) == 1


def test_process_shares_retries_and_buries(open_store, interface):
    store = open_store()
    topic = store.create_topic("jobs", partitions=2)
    topic.write_many([f"job {number}" for number in range(40)], keys=[str(number) for number in range(40)])
    seen = []

    def handle(message):
        seen.append((message.text, message.attempt))
        if message.text.endswith("7") and message.attempt < 2:
            raise RuntimeError("not yet")
        if message.text == "job 13":
            raise RuntimeError("never")

    with queue(topic, retry=Retry(first="1ms", limit="1ms", attempts=2)) as reader:
        done = retried = dead = 0
        while done + dead < 40:
            summary = reader.process(interface.handler(handle), workers=3, follow=False)
            done, retried, dead = done + summary.handled, retried + summary.retried, dead + summary.dead
    assert (done, retried, dead) == (39, 5, 1)
    assert len(seen) == 45
    assert [letter.message.text for letter in store.dead_letters("jobs").list()] == ["job 13"]


def test_a_reader_that_waits_gets_what_is_written_and_what_falls_due(open_store):
    store = open_store()
    topic = store.create_topic("jobs")
    with queue(topic) as reader:
        topic.write("x")
        message = reader.receive(timeout=30)
        reader.retry(message, after="20ms")
        assert reader.receive(timeout=30).attempt == 2


def test_partitions_that_are_added_are_read_too(topic):
    with queue(topic) as reader:
        reader.commit(reader.receive_batch(10))
        topic.alter(partitions=2)
        topic.write("new", partition=1)
        assert reader.receive(timeout=30).text == "new"


def test_seek_moves_all_readers(topic):
    with queue(topic) as one, queue(topic) as two:
        batch = one.receive_batch(4)
        two.seek("earliest")
        assert offsets(two.receive_batch(10)) == [0, 1, 2, 3, 4, 5]
        with pytest.raises(penstock.PartitionLost):
            one.commit(batch)
        topic.seek_consumer("workers", 5)
        assert offsets(one.receive_batch(10)) == [5]


def test_what_retention_took_is_told_or_passed_over(store, clock):
    topic = store.create_topic("jobs", retention="1h", segment_bytes="64KiB")
    for _ in range(4):
        topic.write_many([b"x" * 30_000] * 3)
    with queue(topic, on_gap="skip") as reader:
        held = reader.receive_batch(1)
        clock.advance("2h")
        topic.write("fresh")
        topic.vacuum()
        begin = topic.stats().partitions[0].start
        assert begin > 1
        batch = reader.receive_batch(100)
        assert batch[0].offset == begin
        assert [(gap.first, gap.stop) for gap in reader.gaps] == [(0, 1), (1, begin)]
        with pytest.raises(penstock.PartitionLost):
            reader.commit(held)  # its lease ran out, and nothing of it is left
        reader.commit(batch)
        assert position(topic) == 13
    clock.advance("2h")


def test_a_dropped_consumer_forgets_what_was_out(topic):
    with queue(topic) as reader:
        batch = reader.receive_batch(3)
        topic.drop_consumer("workers")
        with pytest.raises(penstock.PartitionLost):
            reader.commit(batch)
    with queue(topic) as reader:
        assert offsets(reader.receive_batch(10)) == [0, 1, 2, 3, 4, 5]


def test_a_typed_topic_gives_its_values(store):
    topic = store.create_topic("jobs", type=dict)
    topic.write({"n": 1})
    with queue(topic, lease="1s") as reader:
        assert reader.receive(timeout=0).value == {"n": 1}
    with queue(topic) as reader:
        assert reader.receive(timeout=0).value == {"n": 1}


def test_several_topics_are_one_queue(store, topic):
    store.create_topic("more").write("x")
    with store.reader(["jobs", "more"], consumer="workers", kind="queue") as reader:
        found = set()
        while batch := reader.receive_batch(timeout=0):
            found |= {message.topic for message in batch}
            reader.commit(batch)
        assert found == {"jobs", "more"}


def test_a_consumer_is_a_queue_or_none(topic):
    with topic.reader(consumer="stream") as reader:
        reader.receive(timeout=0)
        with pytest.raises(penstock.ConflictError, match="share partitions"):
            topic.reader(consumer="stream", kind="queue")
    with queue(topic):
        pass
    with pytest.raises(penstock.InvalidOption, match="is a queue"):
        topic.reader(consumer="workers")


def test_what_a_queue_does_not_do_is_said(store, topic, interface):
    for wrong in (
        {"kind": "heap"}, {"consumer": None}, {"partitions": [0]}, {"max_lag": "1h"}, {"lease": 0},
        {"lease": "3650d"},
    ):  # fmt: skip
        with pytest.raises(penstock.InvalidOption):
            topic.reader(**{"consumer": "workers", "kind": "queue", **wrong})
    with queue(topic, lease="1s") as reader:
        message = reader.receive(timeout=0)
        with pytest.raises(penstock.UsageError, match="no order"):
            reader.process(interface.handler(print), keep_order=True, follow=False)
        with pytest.raises(penstock.UsageError, match="too short"):
            reader.process(interface.handler(print), follow=False)
        with store.transaction() as tx:
            with pytest.raises(penstock.UsageError, match="transaction"):
                reader.receive_batch(tx=tx)
            with pytest.raises(penstock.UsageError, match="transaction"):
                reader.commit(message, tx=tx)
        with pytest.raises(penstock.WrongType):
            reader.reject(message, 7)
        reader.commit(message)
        with pytest.raises(penstock.PartitionLost):
            reader.commit(message)
