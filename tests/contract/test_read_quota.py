"""Readers held to a consumer's `read_speed`, all together, by time that the test moves."""

import pytest

import penstock
from penstock.testing import Clock

KIB = 1024


@pytest.fixture
def topic(store):
    topic = store.create_topic("orders", partitions=2)
    for number in range(40):
        topic.write_many([b"x" * KIB] * 5, partition=number % 2)
    return topic


def drained(reader, most=1000):
    """How many messages come without waiting."""
    count = 0
    while batch := reader.receive_batch(most, timeout=0):
        count += len(batch)
        reader.commit(batch)
    return count


def test_without_a_speed_everything_comes_at_once(topic):
    with topic.reader(consumer="c") as reader:
        assert drained(reader) == 200


@pytest.mark.parametrize("kind", ["stream", "queue"])
def test_no_more_comes_than_the_speed_allows(topic, clock, kind):
    topic.add_consumer("c", read_speed="20KiB", read_burst="10KiB")
    with topic.reader(consumer="c", kind=kind) as reader:
        first = drained(reader)
        assert 5 <= first <= 20
        total = first
        for _ in range(20):
            clock.advance(0.25)
            total += drained(reader)
        assert total == pytest.approx(100 + 10, abs=15)


def test_readers_share_it(topic, open_store, clock):
    topic.add_consumer("c", read_speed="20KiB", read_burst="10KiB")
    other = open_store(clock=clock).topic("orders")
    with topic.reader(consumer="c", partitions=[0]) as one, other.reader(consumer="c", partitions=[1]) as two:
        total = drained(one) + drained(two)
        for _ in range(16):
            clock.advance(0.25)
            total += drained(one) + drained(two)
        assert total == pytest.approx(80 + 10, abs=25)


def test_each_consumer_has_its_own(topic):
    topic.add_consumer("slow", read_speed="1KiB")
    with topic.reader(consumer="slow") as slow, topic.reader(consumer="quick") as quick:
        assert drained(slow) <= 10
        assert drained(quick) == 200
    with topic.reader(follow=False) as nobody:
        assert sum(1 for _ in nobody) == 200


def test_a_reader_that_does_not_follow_gets_everything_later(open_store, tmp_path):
    """It waits for its quota, and does not take that for the end."""
    with open_store() as store:
        topic = store.create_topic("orders")
        topic.write_many([b"x" * KIB] * 50)
        topic.add_consumer("c", read_speed="100KiB", read_burst="10KiB")
        with topic.reader(consumer="c", follow=False) as reader:
            assert sum(1 for _ in reader) == 50


class Rushing(Clock):
    """Time passes between any two looks at it."""

    def __init__(self, step_s):
        super().__init__()
        self._step_s = step_s

    def monotonic(self):
        self.advance(self._step_s)
        return super().monotonic()


@pytest.mark.parametrize("step_s", [0.02, 0.03, 0.04])
def test_a_quota_that_is_free_again_when_one_looks_is_not_the_end(open_store, step_s):
    """A reader that was refused a moment ago has more to come, also if it may read again by now."""
    topic = open_store(clock=Rushing(step_s)).create_topic("orders")
    topic.write_many([b"x" * KIB] * 50)
    topic.add_consumer("c", read_speed="100KiB", read_burst="10KiB")
    with topic.reader(consumer="c", follow=False) as reader:
        assert sum(1 for _ in reader) == 50


def test_the_speed_is_changed_for_readers_that_are_open(topic, clock):
    topic.add_consumer("c", read_speed="1KiB")
    with topic.reader(consumer="c") as reader:
        first = drained(reader)
        assert first < 20
        topic.alter_consumer("c", read_speed=None)
        clock.advance(2)
        assert first + drained(reader) == 200


def test_it_is_told_and_goes_with_the_consumer(topic, tmp_path):
    topic.add_consumer("c", read_speed="1KiB", read_burst="3KiB")
    (stats,) = topic.consumers()
    assert (stats.read_speed, stats.read_burst) == (1024, 3072)
    with topic.reader(consumer="c") as reader:
        drained(reader)
    assert [path.name for path in tmp_path.rglob("quotas/*")] == ["c"]
    topic.drop_consumer("c")
    assert not list(tmp_path.rglob("quotas/*"))


@pytest.mark.parametrize("options", [{"read_speed": 0}, {"read_speed": "fast"}, {"read_burst": -1}])
def test_a_speed_that_makes_no_sense_is_refused(topic, options):
    with pytest.raises(penstock.UsageError):
        topic.add_consumer("c", **options)
    assert topic.consumers() == []
