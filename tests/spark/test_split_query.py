"""A stream's driver side over a topic that is split, without Spark: parents before children (S001-22)."""

import json
from collections.abc import Callable, Iterator

import pytest

import penstock
from tests.kit.slices import StreamQuery, parse, survey


@pytest.fixture
def store(clocked_store) -> penstock.Store:
    return clocked_store


@pytest.fixture
def topic(store) -> penstock.Topic:
    return store.create_topic("orders", retention="1h", sync="os", autopartitioning="paused")


@pytest.fixture
def query(store) -> Iterator[Callable[..., StreamQuery]]:
    made = []

    def make(**options: str) -> StreamQuery:
        made.append(StreamQuery(parse({"path": store.path, "topic": "orders", **options})))
        return made[-1]

    yield make
    for each in made:
        each.close()


def places(offsets: dict) -> dict[int, int]:
    return {int(number): at for number, at in offsets["topics"]["orders"]["next"].items()}


def batches(query: StreamQuery, begin: dict) -> list[dict[int, int]]:
    """How many messages of each partition the batches have that follow, until there is nothing new."""
    found = []
    while (end := query.latest(json.loads(json.dumps(begin)), None, None)) != begin:
        planned = query.planned(begin, end)
        found.append({each.partition: each.stop - each.start for each in planned})
        begin = end
    return found


def write(topic, count, partition):
    topic.write_many([b"x"] * count, partition=partition)


def two_generations(topic):
    write(topic, 5, 0)
    topic.split(0)
    write(topic, 3, 1)
    write(topic, 2, 2)
    topic.split(1)
    write(topic, 4, 3)
    write(topic, 1, 4)


def test_children_come_in_the_batch_after_their_parent(topic, query):
    """No batch has messages of a key from both sides of a split, so state by key sees them in order."""
    two_generations(topic)
    stream = query()
    assert batches(stream, stream.initial()) == [{0: 5}, {1: 3, 2: 2}, {3: 4, 4: 1}]


def test_a_query_that_runs_goes_on_in_the_children(topic, query):
    write(topic, 5, 0)
    stream = query()
    begin = stream.latest(stream.initial(), None, None)
    two_generations(topic)
    assert batches(stream, begin) == [{0: 5}, {1: 3, 2: 2}, {3: 4, 4: 1}]


def test_grandchildren_wait_for_a_place_in_their_grandparent(topic, query):
    """The child stands at its end, its parent does not: what is below both waits."""
    two_generations(topic)
    stream = query(startingOffsets='{"orders": {"0": 2, "1": -1, "2": 0, "3": 0, "4": 0}}')
    assert batches(stream, stream.initial()) == [{0: 3}, {2: 2, 3: 4, 4: 1}]


def test_a_batch_read_has_all_partitions(store, topic):
    two_generations(topic)
    found = survey(parse({"path": store.path, "topic": "orders"}))
    assert {each.partition: each.stop - each.start for each in found} == {0: 5, 1: 3, 2: 2, 3: 4, 4: 1}


def remove_parent(topic, clock):
    clock.advance("2h")
    assert topic.vacuum().removed == (0,)


def test_a_checkpoint_that_names_a_removed_parent_it_has_read_goes_on(topic, query, clock):
    write(topic, 5, 0)
    stream = query()
    begin = stream.latest(stream.initial(), None, None)
    topic.split(0)
    remove_parent(topic, clock)
    write(topic, 3, 1)
    assert batches(stream, begin) == [{1: 3}]
    again = query()
    assert batches(again, begin) == [{1: 3}]


def test_a_checkpoint_that_stood_in_a_removed_parent_is_a_loss(topic, query, clock):
    write(topic, 5, 0)
    begin = query().latest(query().initial(), 2, None)
    assert places(begin) == {0: 2}
    topic.split(0)
    remove_parent(topic, clock)
    write(topic, 3, 1)
    with pytest.raises(penstock.OffsetTrimmed, match="partition 0, offsets 2 to 4; the first one left is 5"):
        query().latest(begin, None, None)
    assert batches(query(failOnDataLoss="false"), begin) == [{}, {1: 3}]


def test_a_query_without_a_checkpoint_begins_with_what_is_there(topic, query, clock):
    write(topic, 5, 0)
    topic.split(0)
    remove_parent(topic, clock)
    write(topic, 3, 1)
    for start in ("earliest", '{"orders": {"1": 0, "2": 0}}'):
        stream = query(startingOffsets=start)
        assert batches(stream, stream.initial()) == [{1: 3}]


def test_a_querys_consumer_has_read_the_removed_parent(topic, query, clock):
    write(topic, 5, 0)
    topic.split(0)
    stream = query(consumer="billing")
    begin = stream.initial()
    end = stream.latest(begin, None, None)
    stream.done(end)
    remove_parent(topic, clock)
    write(topic, 3, 1)
    stream.done(stream.latest(end, None, None))
    (stats,) = topic.consumers()
    assert stats.lag == 0
