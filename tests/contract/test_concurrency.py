"""Threads (coroutines, on the async interface) that share a topic, a writer, a store."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

WORKERS = 6
EACH = 50


def together(work, count=WORKERS):
    """Run `work(number)` at the same time; raise what any of them raised."""
    barrier = threading.Barrier(count)

    def one(number):
        barrier.wait(10)
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


@pytest.fixture
def topic(store):
    return store.create_topic("orders", sync="os", segment_bytes="16KiB")


def assert_complete(topic):
    """Every worker's messages are there once, in the order it wrote them."""
    seen = {}
    for message in topic.scan().messages():
        worker, number = map(int, message.value.split(b"-"))
        seen.setdefault(worker, []).append(number)
    assert seen == {worker: list(range(EACH)) for worker in range(WORKERS)}


def test_writes_to_one_topic_at_once(topic):
    def work(worker):
        return [topic.write(b"%d-%d" % (worker, n), headers={"pad": "x" * 100}).offset for n in range(EACH)]

    offsets = Counter(offset for each in together(work) for offset in each)
    assert sorted(offsets) == list(range(WORKERS * EACH))
    assert set(offsets.values()) == {1}
    assert_complete(topic)


def test_durable_writes_at_once_share_syncs(store):
    topic = store.create_topic("safe")

    def work(worker):
        for number in range(EACH):
            assert topic.write(b"%d-%d" % (worker, number)).sync == "disk"

    together(work)
    assert_complete(topic)


def test_one_writer_shared(topic):
    with topic.writer(linger="1ms") as writer:

        def work(worker):
            for number in range(EACH):
                writer.write(b"%d-%d" % (worker, number))
                if number % 20 == 0:
                    writer.flush()

        together(work)
        writer.flush()
        assert writer.written == WORKERS * EACH
    assert_complete(topic)


def test_a_writer_and_many_at_once_on_the_same_topic(topic):
    def work(worker):
        if worker % 2:
            with topic.writer() as writer:
                for number in range(EACH):
                    writer.write(b"%d-%d" % (worker, number))
        else:
            for first in range(0, EACH, 10):
                topic.write_many([b"%d-%d" % (worker, number) for number in range(first, first + 10)])

    together(work)
    assert_complete(topic)


def test_readers_of_their_own_beside_writers(topic):
    def work(worker):
        if worker < WORKERS - 2:
            for number in range(EACH):
                topic.write(b"%d-%d" % (worker, number))
            return None
        seen = []
        with topic.reader(consumer=f"reader-{worker}") as reader:
            while len(seen) < (WORKERS - 2) * EACH:
                batch = reader.receive_batch(max_messages=7, timeout=20)
                assert len(batch), "nothing came"
                seen += [message.offset for message in batch]
                reader.commit(batch)
        return seen

    for seen in together(work)[-2:]:
        assert seen == list(range((WORKERS - 2) * EACH))


def test_the_same_topic_is_created_once_however_many_try(store):
    topics = together(lambda number: store.create_topic("new", exists_ok=True, partitions=2))
    assert len({topic.id for topic in topics}) == 1
    assert topics[0].stats().messages == 0


def test_a_consumer_is_made_once_however_many_open_it(topic):
    topic.write(b"0-0")

    def work(number):
        with topic.reader(consumer="same") as reader:
            return reader.receive(timeout=10).offset

    assert together(work) == [0] * WORKERS
    assert [each.consumer for each in topic.consumers()] == ["same"]
