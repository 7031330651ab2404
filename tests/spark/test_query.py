"""A stream's driver side over real stores, without Spark: what is new, what is read, what is done."""

import json
from collections.abc import Callable, Iterator

import pytest

import penstock
from tests.kit.logs import purge
from tests.kit.slices import ConsumerProgress, StreamQuery, parse
from tests.kit.slices import batches_module as batches
from tests.kit.topics import input_module, inside


@pytest.fixture
def topic(store):
    return store.create_topic("orders", partitions=2, segment_bytes="16KiB", sync="os")


@pytest.fixture
def query(store) -> Iterator[Callable[..., StreamQuery]]:
    """Make queries: `query(topic="orders", consumer="billing")`; without any topic it is "orders"."""
    made = []

    def make(**options: str) -> StreamQuery:
        chosen = (
            options if {"subscribe", "subscribePattern"} & options.keys() else {"topic": "orders", **options}
        )
        made.append(StreamQuery(parse({"path": store.path, **chosen})))
        return made[-1]

    yield make
    for each in made:
        each.close()


def kept(offsets: dict) -> dict:
    """Through the JSON in which Spark keeps it."""
    return json.loads(json.dumps(offsets))


def places(offsets: dict, topic: str = "orders") -> dict[int, int]:
    return {int(number): at for number, at in offsets["topics"].get(topic, {"next": {}})["next"].items()}


def read(query: StreamQuery, start: dict, end: dict) -> list[tuple[int, int]]:
    """(partition, offset) of everything that the tasks of a batch yield."""
    columns = {"partition": False, "offset": False}
    return [
        (row["partition"], row["offset"])
        for planned in query.planned(kept(start), kept(end))
        for batch in batches.read(planned, columns)
        for row in batch.to_pylist()
    ]


def write(topic: penstock.Topic, count: int, partition: int = 0) -> None:
    topic.write_many([b"x" * 100] * count, partition=partition)


# Where it begins and how far it goes.


def test_begins_at_the_beginning_or_where_it_was_told(topic, query):
    write(topic, 10)
    write(topic, 5, partition=1)
    assert places(query().initial()) == {0: 0, 1: 0}
    assert places(query(startingOffsets="latest").initial()) == {0: 10, 1: 5}
    assert places(query(startingOffsets='{"orders": {"0": 3, "1": -1}}').initial()) == {0: 3, 1: 5}


def test_begins_at_a_time(topic, query):
    write(topic, 10)
    newest = topic.get(9).written_at
    later = str(newest // 10**6 + 1000)
    assert places(query(startingTimestamp="0").initial()) == {0: 0, 1: 0}
    assert places(query(startingTimestamp=later).initial()) == {0: 10, 1: 0}


@pytest.mark.parametrize(
    ("offsets", "told"),
    [
        ('{"orders": {"0": 11}}', r"offset 11 of 'orders' partition 0 is beyond the end \(10\)"),
        ('{"orders": {"7": 0}}', "'orders' has no partition 7"),
    ],
)
def test_wrong_beginning_is_refused(topic, query, offsets, told):
    write(topic, 10)
    with pytest.raises(penstock.PenstockError, match=told):
        query(startingOffsets=offsets).initial()


def test_nothing_new_is_the_same_offset(topic, query):
    write(topic, 10)
    stream = query()
    end = stream.latest(kept(stream.initial()), None, None)
    assert places(end) == {0: 10, 1: 0}
    assert json.dumps(stream.latest(kept(end), None, None)) == json.dumps(end)
    assert stream.planned(end, end) == []


def test_never_passes_what_is_durable(store, query):
    """Written and not yet synced: a power cut could take it, and its offsets with it."""
    topic = store.create_topic("safe")
    write(topic, 3)
    stream = query(subscribe="safe")
    end = stream.latest(stream.initial(), None, None)
    unsynced = input_module.batch_of_many([b"x"] * 5, None, None, None, None, 2**20)
    landed = list(inside(topic).append(unsynced))
    assert stream.latest(end, None, None) == end
    inside(topic).sync(landed)
    assert places(stream.latest(end, None, None), "safe") == {0: 8}


def test_limits_are_shared_by_the_partitions(topic, query):
    write(topic, 900)
    write(topic, 100, partition=1)
    stream = query()
    begin = stream.initial()
    assert places(stream.latest(begin, 100, None)) == {0: 90, 1: 10}
    some = places(stream.latest(begin, None, 20_000))
    assert 0 < some[1] < some[0] < 300
    assert sum(places(stream.latest(begin, 10**6, 1)).values()) <= 2


@pytest.mark.parametrize(("rows", "size"), [(None, None), (7, None), (100, None), (None, 3000), (50, 2000)])
def test_every_message_comes_once_however_batches_are_cut(store, topic, query, rows, size):
    """Single frames, large ones, sealed, repacked and active segments, while it is written to."""
    for number in range(60):
        topic.write(b"single %d" % number, partition=number % 2)
    write(topic, 200)
    store.flush_housekeeping()
    stream = query(minPartitions="3")
    begin, seen = stream.initial(), []
    for round in range(1000):
        end = stream.latest(kept(begin), rows, size)
        if end == begin:
            break
        seen += read(stream, begin, end)
        begin = end
        if round < 5:
            topic.write(b"live", partition=1)
    assert sorted(seen) == [
        (log.partition, n) for log in inside(topic).logs() for n in range(log.bounds().end)
    ]


def test_batch_that_is_run_again_reads_the_same(topic, query):
    write(topic, 10)
    first = query()
    begin = first.initial()
    end = first.latest(begin, None, None)
    before = read(first, begin, end)
    write(topic, 10)
    assert read(query(), begin, end) == before == [(0, n) for n in range(10)]


# Partitions and topics that appear.


def test_added_partition_is_read_after_what_was_there_before_it(topic, query):
    write(topic, 10)
    stream = query()
    begin = stream.initial()
    topic.alter(partitions=3)
    write(topic, 4, partition=2)
    write(topic, 1)
    first = stream.latest(begin, 5, None)
    assert places(first) == {0: 5, 1: 0}
    second = stream.latest(kept(first), None, None)
    assert places(second) == {0: 11, 1: 0}
    third = stream.latest(kept(second), None, None)
    assert places(third) == {0: 11, 1: 0, 2: 4}
    assert read(stream, second, third) == [(2, n) for n in range(4)]


def test_added_partition_begins_at_its_first_offset_also_for_a_query_from_latest(topic, query):
    stream = query(startingOffsets="latest")
    begin = stream.initial()
    topic.alter(partitions=3)
    write(topic, 4, partition=2)
    end = stream.latest(begin, None, None)
    assert read(stream, begin, end) == [(2, n) for n in range(4)]


def test_available_now_ends_although_more_is_written(topic, query):
    write(topic, 10)
    stream = query()
    begin = stream.initial()
    topic.alter(partitions=3)
    write(topic, 4, partition=2)
    stream.freeze()
    write(topic, 50)
    write(topic, 50, partition=2)
    topic.alter(partitions=4)
    first = stream.latest(begin, None, None)
    second = stream.latest(first, None, None)
    assert (places(first), places(second)) == ({0: 10, 1: 0}, {0: 10, 1: 0, 2: 4})
    assert stream.latest(second, None, None) == second
    assert places(stream.newest()) == {0: 60, 1: 0, 2: 54, 3: 0}


def test_topic_made_later_that_the_pattern_matches_is_read_from_its_beginning(store, topic, query):
    stream = query(subscribePattern="ord.*", startingOffsets="latest")
    begin = stream.initial()
    write(store.create_topic("orders2"), 3)
    write(store.create_topic("payments"), 3)
    end = stream.latest(begin, None, None)
    assert places(end, "orders2") == {0: 3}
    assert "payments" not in end["topics"]
    assert places(query(subscribe="orders,orders2").latest(kept(end), None, None), "orders2") == {0: 3}


# Retention.


def overtaken(topic: penstock.Topic) -> int:
    """Have retention take the beginning of partition 0; return the first offset left."""
    for _ in range(20):
        write(topic, 50)
    topic.alter(max_bytes=20_000)
    topic.vacuum()
    start = topic.stats().partitions[0].start
    assert start > 0
    return start


def test_what_retention_took_before_it_was_planned_is_an_error_that_names_it(topic, query):
    stream = query()
    begin = stream.initial()
    first = overtaken(topic)
    told = rf"still to be read: 'orders' partition 0, offsets 0 to {first - 1}; the first one left is {first}"
    with pytest.raises(penstock.OffsetTrimmed, match=told):
        stream.latest(begin, None, None)
    with pytest.raises(penstock.OffsetTrimmed, match=told):
        stream.planned(begin, stream.newest())


def test_what_retention_took_is_passed_over_with_a_warning(topic, query, caplog):
    stream = query(failOnDataLoss="false")
    begin = stream.initial()
    first = overtaken(topic)
    end = stream.latest(begin, 7, None)
    assert read(stream, begin, end) == [(0, n) for n in range(first, first + 7)]
    assert f"offsets 0 to {first - 1}" in caplog.text


@pytest.mark.parametrize("fail", ["true", "false"])
def test_planned_slices_stay_readable_for_a_while_then_failondataloss_decides(store, topic, query, fail):
    for _ in range(20):
        write(topic, 50)
    assert store.flush_housekeeping()
    stream = query(failOnDataLoss=fail)
    begin = stream.initial()
    slices = stream.planned(begin, stream.latest(begin, None, None))
    topic.alter(max_bytes=20_000)
    assert topic.vacuum().segments

    def rows() -> int:
        return sum(batch.num_rows for each in slices for batch in batches.read(each, {"offset": False}))

    assert rows() == 1000
    purge(inside(topic).log(0).folder, now=True)
    if fail == "true":
        with pytest.raises(penstock.OffsetTrimmed, match="while the query was running"):
            rows()
    else:
        assert 0 < rows() < 1000


# Checkpoints of something else.


def test_checkpoint_of_a_topic_created_again_is_refused(store, topic, query):
    write(topic, 10)
    begin = query().initial()
    store.drop_topic("orders")
    store.create_topic("orders")
    for ask in (lambda q: q.latest(begin, None, None), lambda q: q.planned(begin, begin)):
        with pytest.raises(penstock.TopicReplaced, match="'orders' was dropped and created again"):
            ask(query())


def test_topic_dropped_under_a_running_query_is_an_error(store, topic, query):
    stream = query()
    begin = stream.initial()
    store.drop_topic("orders")
    with pytest.raises(penstock.TopicReplaced, match="'orders' was dropped while the query was reading it"):
        stream.latest(begin, None, None)


def test_topic_dropped_in_the_middle_of_planning_is_the_same_error(store, topic, query, monkeypatch):
    """It was there when the query looked, and its files are gone a moment later."""
    stream = query(consumer="billing")
    begin = stream.initial()
    monkeypatch.setattr(stream, "_look", lambda: store.drop_topic("orders"))
    with pytest.raises(penstock.TopicReplaced, match="'orders' was dropped while the query"):
        stream.latest(begin, None, None)


def test_checkpoint_of_another_store_is_refused(store, topic, query, tmp_path):
    with penstock.open(tmp_path / "other") as other:
        other.create_topic("orders")
        begin = StreamQuery(parse({"path": other.path, "topic": "orders"})).initial()
    with pytest.raises(penstock.TopicReplaced, match=f"of store .*, this one is {store.id}"):
        query().latest(begin, None, None)


# The consumer.


def test_progress_shows_as_a_consumer_with_lag(topic, query):
    write(topic, 10)
    stream = query(consumer="billing")
    begin = stream.initial()
    end = stream.latest(begin, 4, None)
    (seen,) = topic.consumers()
    assert (seen.consumer, seen.positions, seen.lag) == ("billing", {0: 0, 1: 0}, 10)
    stream.latest(end, 4, None)  # asked from there: the batch up to there is done
    assert topic.consumers()[0].lag == 6
    stream.done(stream.latest(end, 4, None))
    assert topic.consumers()[0].positions == {0: 8, 1: 0}


def test_consumer_follows_the_checkpoint_also_backwards(topic, query):
    write(topic, 10)
    stream = query(consumer="billing")
    begin = stream.initial()
    stream.done(stream.latest(begin, None, None))
    stream.close()
    query(consumer="billing").latest(begin, 1, None)
    assert topic.consumers()[0].positions == {0: 0, 1: 0}


def test_added_partition_gets_a_position_when_it_is_read(topic, query):
    stream = query(consumer="billing")
    begin = stream.initial()
    stream.latest(begin, None, None)
    topic.alter(partitions=3)
    write(topic, 4, partition=2)
    end = stream.latest(begin, None, None)
    stream.latest(end, None, None)
    assert topic.consumers()[0].positions == {0: 0, 1: 0, 2: 4}


def test_retention_waits_for_an_important_consumer(topic, query):
    stream = query(consumer="billing", important="true")
    begin = stream.initial()
    stream.latest(begin, None, None)
    for _ in range(20):
        write(topic, 50)
    topic.alter(max_bytes=20_000)
    assert topic.vacuum().partitions[0].held_by == ("billing",)
    end = stream.latest(begin, None, None)
    assert topic.stats().partitions[0].start == 0
    stream.done(end)
    topic.vacuum()  # unless a roll's own was quicker
    assert topic.stats().partitions[0].start > 0
    for options, is_important in (({}, True), ({"important": "false"}, False)):
        stream.close()
        stream = query(consumer="billing", **options)
        stream.latest(end, None, None)
        assert topic.consumers()[0].important is is_important


def test_what_a_dead_writer_left_is_seen_before_long(store, query):
    """Appended, never synced, nobody else there: a query with a consumer helps, as readers do."""
    topic = store.create_topic("safe")
    stream = query(subscribe="safe", consumer="billing")
    begin = stream.initial()
    list(inside(topic).append(input_module.batch_of_many([b"x"] * 5, None, None, None, None, 2**20)))
    assert stream.latest(begin, None, None) == begin
    stream._helped_at -= 2
    assert places(stream.latest(begin, None, None), "safe") == {0: 5}


def test_second_query_with_the_same_consumer_is_refused(topic, query, monkeypatch):
    monkeypatch.setattr(ConsumerProgress.__init__, "__kwdefaults__", {"wait_s": 0.2})
    first = query(consumer="billing")
    begin = first.initial()
    with pytest.raises(
        penstock.PartitionLost, match=r"'billing' of 'orders' is used by another.*process \d+"
    ):
        query(consumer="billing").initial()
    query(consumer="other").initial()
    first.close()
    assert query(consumer="billing").initial() == begin


def test_consumer_moved_by_someone_else_is_an_error(topic, query):
    write(topic, 10)
    stream = query(consumer="billing")
    end = stream.latest(stream.initial(), None, None)
    topic.seek_consumer("billing", "latest")
    with pytest.raises(penstock.PartitionLost, match="the consumer is this query's alone"):
        stream.done(end)


def test_without_a_consumer_nothing_is_written_to_the_store(topic, query):
    write(topic, 10)
    stream = query()
    stream.done(stream.latest(stream.initial(), None, None))
    assert topic.consumers() == []
