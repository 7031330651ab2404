"""Cases of Spark's Kafka suites and of Delta's that need no session; docs/spark-cases.md lists them."""

import json
import random
from collections.abc import Callable, Iterator

import pytest

import penstock
from tests.kit.slices import StreamQuery, parse, survey
from tests.kit.slices import batches_module as batches
from tests.kit.values import EARLIEST, LATEST, Spot


@pytest.fixture
def store(clocked_store) -> penstock.Store:
    return clocked_store


@pytest.fixture
def query(store) -> Iterator[Callable[..., StreamQuery]]:
    made = []

    def make(**options: str) -> StreamQuery:
        made.append(StreamQuery(parse({"path": store.path, **options})))
        return made[-1]

    yield make
    for each in made:
        each.close()


def kept(offsets: dict) -> dict:
    """Through the JSON in which Spark keeps it."""
    return json.loads(json.dumps(offsets))


def rows(slices) -> list[tuple[str, int, int]]:
    """(topic, partition, offset) of everything that the tasks yield."""
    columns = {"topic": False, "partition": False, "offset": False}
    found = (batch for each in slices for batch in batches.read(each, columns))
    return [(row["topic"], row["partition"], row["offset"]) for batch in found for row in batch.to_pylist()]


def drained(stream: StreamQuery, begin: dict, limit: int | None = None) -> tuple[list, dict]:
    """All batches until there is nothing new: their rows, and where the stream stands then."""
    found = []
    while (end := stream.latest(kept(begin), limit, None)) != begin:
        found += rows(stream.planned(kept(begin), kept(end)))
        begin = end
    return found, begin


def refused(**options: str) -> str:
    with pytest.raises(penstock.InvalidOption) as raised:
        parse({"path": "data", **options})
    return str(raised.value)


# Where a stream begins, and how it goes on.


def each_partition(topic: str, places: list[int]) -> str:
    return json.dumps({topic: {str(number): place for number, place in enumerate(places)}})


@pytest.mark.parametrize("fail", ["true", "false"])
@pytest.mark.parametrize("beginning", ["latest", "earliest", "offsets", "times", "time"])
@pytest.mark.parametrize("chosen", [{"subscribe": "orders"}, {"subscribePattern": "ord.*"}])
def test_a_stream_from_any_beginning_goes_on_over_restarts_and_added_partitions(
    store, clock, query, chosen, beginning, fail
):
    topic = store.create_topic("orders", partitions=3, sync="os")
    for number in range(3):
        topic.write_many([b"old"] * 4, partition=number)
    clock.advance(1)
    later = clock.now_ns() // 10**6
    for number in range(3):
        topic.write_many([b"new"] * 2, partition=number)
    options, first = {
        "latest": ({"startingOffsets": "latest"}, [6, 6, 6]),
        "earliest": ({"startingOffsets": "earliest"}, [0, 0, 0]),
        "offsets": ({"startingOffsets": each_partition("orders", [-2, -1, 5])}, [0, 6, 5]),
        "times": ({"startingOffsetsByTimestamp": each_partition("orders", [0, later, later])}, [0, 4, 4]),
        "time": ({"startingTimestamp": str(later)}, [4, 4, 4]),
    }[beginning]
    asked = {**chosen, **options, "failOnDataLoss": fail}

    def all_from(first: list[int]) -> list[tuple[str, int, int]]:
        ends = {each.partition: each.end for each in topic.stats().partitions}
        starts = {number: first[number] if number < 3 else 0 for number in ends}
        return [("orders", number, at) for number, end in ends.items() for at in range(starts[number], end)]

    found, at = drained(query(**asked), query(**asked).initial())
    assert sorted(found) == all_from(first)
    topic.write_many([b"while it was stopped"] * 5, partition=1)
    found += drained(query(**asked), at)[0]
    assert sorted(found) == all_from(first)
    at = drained(query(**asked), at)[1]
    again = query(**asked)
    assert drained(again, at) == ([], at)
    topic.alter(partitions=5)
    for number in range(5):
        topic.write_many([b"while it runs"] * 3, partition=number)
    found += drained(again, at)[0]
    assert sorted(found) == all_from(first)


def test_a_place_for_a_whole_topic(store, query):
    """Newer Kafka sources take "earliest" and "latest" for a topic beside offsets of partitions."""
    for name in ("a", "b", "c"):
        store.create_topic(name, partitions=2, sync="os").write_many([b"x"] * 4, partition=1)
    stream = query(subscribe="a,b,c", startingOffsets='{"a": "earLIEST", "b": "latest", "c": {"1": 3}}')
    begin = stream.initial()
    assert {name: each["next"] for name, each in begin["topics"].items()} == {
        "a": {"0": 0, "1": 0}, "b": {"0": 0, "1": 4}, "c": {"0": 0, "1": 3},
    }  # fmt: skip
    pattern = {
        "path": store.path,
        "subscribePattern": "a|b",
        "endingOffsets": '{"a": "latest", "b": {"1": 1}}',
    }
    assert [where[:2] for where in rows(survey(parse(pattern)))] == [("a", 1)] * 4 + [("b", 1)]


def test_a_topic_that_the_pattern_matches_later_needs_no_place(store, query):
    store.create_topic("orders-a", sync="os").write(b"x")
    stream = query(subscribePattern="orders-.*", startingOffsets='{"orders-a": "latest"}')
    begin = stream.initial()
    store.create_topic("orders-b", sync="os").write(b"x")
    assert drained(stream, begin)[0] == [("orders-b", 0, 0)]
    with pytest.raises(penstock.UnknownTopic, match="orders-z"):
        query(subscribePattern="orders-.*", startingOffsets='{"orders-z": "latest"}').initial()


@pytest.mark.parametrize(
    "text",
    [
        '{"orders": "first"}', '{"orders": [0, 1]}', '{"orders": {"0": "earliest"}}', '"earliest"',
        "not json", '{"orders": "earliest", "orders": {"0": 23}}', '{"orders": {"0": 1, "0": 2}}',
    ],
)  # fmt: skip
def test_places_that_are_malformed_or_said_twice_are_refused(text):
    assert "startingOffsets" in refused(topic="orders", startingOffsets=text)


def test_times_are_given_for_partitions_not_for_topics_by_name():
    told = refused(topic="orders", startingOffsetsByTimestamp='{"orders": "earliest"}')
    assert "startingOffsetsByTimestamp" in told


def test_names_and_words_in_any_case():
    asked = parse({"path": "d", "topic": "o", "startingoffsets": "earLiEst", "ENDINGOFFSETS": "laTest"})
    assert (asked.starting.of("o", 0), asked.ending.of("o", 0)) == (EARLIEST, LATEST)
    asked = parse({"path": "d", "SUBSCRIBE": "topic-A", "StartingOffsets": '{"topic-A": {"0": 23}}'})
    assert asked.starting.of("topic-A", 0) == Spot("offset", 23)
    assert parse({"path": "d", "topic": "o", "MAXOFFSETSPERTRIGGER": "7"}).max_rows == 7


@pytest.mark.parametrize("choice", ["subscribe", "subscribePattern", "topic"])
def test_no_topic_at_all_is_refused(choice):
    assert refused(**{choice: ""})
    assert choice in refused(**{choice: "a", **({"topic": "b"} if choice != "topic" else {"subscribe": "b"})})


@pytest.mark.parametrize("value", ["a", "1.0", "0", "-1", ""])
@pytest.mark.parametrize("option", ["minPartitions", "maxOffsetsPerTrigger"])
def test_counts_that_are_none_are_refused(option, value):
    assert f"{option}={value!r}" in refused(topic="orders", **{option: value})


@pytest.mark.parametrize(
    "option",
    ["kafka.isolation.level", "kafka.auto.offset.reset", "kafka.enable.auto.commit", "kafka.key.deserializer",
     "kafka.interceptor.classes", "startingOffsetsByTimestampStrategy", "maxRecordsPerPartition"],
)  # fmt: skip
def test_settings_of_a_kafka_client_are_refused(option):
    assert option.lower() in refused(topic="orders", **{option: "read_uncommitted"})


# Runs to the present end, and batches that come again.


def test_available_now_over_a_topic_that_is_made_again_fails_whatever_it_holds(store, query):
    """With fewer partitions or with fewer messages: nothing of the old one is taken for the new one's."""
    topic = store.create_topic("orders", partitions=3, sync="os")
    topic.write_many([b"x"] * 15, partition=0)
    stream = query(topic="orders", failOnDataLoss="false")
    begin = stream.initial()
    stream.freeze()
    first = stream.latest(begin, 5, None)
    store.drop_topic("orders")
    store.create_topic("orders", partitions=2, sync="os").write_many([b"y"] * 10, partition=0)
    with pytest.raises(penstock.TopicReplaced, match="'orders' was dropped"):
        stream.latest(kept(first), 5, None)


def test_available_now_repeats_an_uncommitted_batch_though_partitions_were_added(store, query):
    topic = store.create_topic("orders", sync="os")
    topic.write_many([b"x"] * 7)
    stream = query(topic="orders")
    begin = stream.initial()
    stream.freeze()
    end = stream.latest(begin, None, None)
    topic.alter(partitions=3)
    topic.write(b"x", partition=2)
    for _ in range(2):
        again = query(topic="orders")
        again.freeze()
        assert len(rows(again.planned(kept(begin), kept(end)))) == 7
    assert drained(again, end)[0] == [("orders", 2, 0)]


def test_available_now_of_an_empty_topic_ends(store, query):
    topic = store.create_topic("orders", sync="os")
    stream = query(topic="orders")
    begin = stream.initial()
    stream.freeze()
    assert stream.latest(kept(begin), None, None) == begin
    topic.write_many([b"x"] * 3)
    assert stream.latest(kept(begin), None, None) == begin
    assert len(drained(query(topic="orders"), begin)[0]) == 3


def test_limits_change_between_runs(store, query):
    topic = store.create_topic("orders", sync="os")
    topic.write_many([b"x" * 100] * 20)
    stream = query(topic="orders")
    end = stream.latest(stream.initial(), 3, None)
    again = query(topic="orders")
    assert again.latest(kept(end), 5, None)["topics"]["orders"]["next"] == {"0": 8}
    one = again.latest(kept(end), None, 1)["topics"]["orders"]["next"]["0"]
    assert one == 4  # at least one message, however small the limit
    both = again.latest(kept(end), 10, 250)["topics"]["orders"]["next"]["0"]
    assert 3 < both < 8  # the stricter one counts


def test_available_now_keeps_to_a_limit_of_bytes_and_to_its_end(store, query):
    topic = store.create_topic("orders", sync="os")
    topic.write_many([b"x" * 100] * 20)
    stream = query(topic="orders")
    begin = stream.initial()
    stream.freeze()
    topic.write_many([b"x" * 100] * 20)
    sizes = []
    while (end := stream.latest(kept(begin), None, 600)) != begin:
        sizes.append(len(rows(stream.planned(begin, end))))
        begin = end
    assert sum(sizes) == 20
    assert len(sizes) > 2


def test_a_dropped_topic_ends_a_query_by_pattern_too(store, query):
    """Otherwise than with Kafka, failOnDataLoss is about retention, never about a topic that is gone."""
    for name in ("orders-a", "orders-b"):
        store.create_topic(name, sync="os").write(b"x")
    asked = {"subscribePattern": "orders-.*", "failOnDataLoss": "false"}
    stream = query(**asked)
    end = stream.latest(stream.initial(), None, None)
    store.drop_topic("orders-b")
    with pytest.raises(penstock.TopicReplaced, match="'orders-b' was dropped"):
        stream.latest(kept(end), None, None)
    with pytest.raises(penstock.TopicReplaced, match="the checkpoint is of topic 'orders-b'"):
        query(**asked).latest(kept(end), None, None)


def test_a_pattern_that_matches_nothing_yet_waits(store, query):
    stream = query(subscribePattern="orders-.*")
    begin = stream.initial()
    assert stream.latest(kept(begin), None, None) == begin
    store.create_topic("orders-a", sync="os").write(b"x")
    assert drained(stream, begin)[0] == [("orders-a", 0, 0)]


def test_tasks_of_a_batch_are_as_many_as_asked_for(store, query):
    topic = store.create_topic("orders", partitions=3, sync="os")
    topic.write_many([b"x"] * 100, partition=0)
    topic.write_many([b"x"] * 4, partition=1)
    for least, tasks in (("1", 2), ("2", 2), ("4", 4), ("7", 7)):
        stream = query(topic="orders", minPartitions=least)
        begin = stream.initial()
        planned = stream.planned(begin, stream.latest(begin, None, None))
        assert len(planned) == tasks
        assert len(set(rows(planned))) == 104


@pytest.mark.parametrize("seed", range(5))
def test_topics_and_partitions_come_while_it_is_read_and_every_message_comes_once(store, query, seed):
    chance = random.Random(seed)
    topics = [store.create_topic("orders-0", partitions=2, sync="os")]
    asked = {"subscribePattern": "orders-.*"}
    stream, found = query(**asked), []
    begin = stream.initial()
    for _ in range(60):
        step = chance.randrange(8)
        if step == 0:
            topics.append(store.create_topic(f"orders-{len(topics)}", partitions=2, sync="os"))
        elif step == 1:
            chosen = chance.choice(topics)
            chosen.alter(partitions=len(chosen.stats().partitions) + 1)
        elif step == 2:
            stream = query(**asked)
        elif step < 6:
            chosen = chance.choice(topics)
            number = chance.randrange(len(chosen.stats().partitions))
            chosen.write_many([b"x"] * chance.randrange(1, 9), partition=number)
        else:
            end = stream.latest(kept(begin), chance.randrange(1, 20), None)
            found += rows(stream.planned(kept(begin), kept(end)))
            begin = end
    topics.append(store.create_topic("orders-last", sync="os"))
    topics[-1].write(b"x")
    found += drained(stream, begin, 7)[0]
    written = [
        (topic.name, each.partition, at)
        for topic in topics
        for each in topic.stats().partitions
        for at in range(each.end)
    ]
    assert sorted(found) == sorted(written)


# A table between two places.


@pytest.fixture
def three_times(store, clock) -> list[int]:
    """Three rounds of two messages in three partitions, a second apart; returns when each round was."""
    topic = store.create_topic("orders", partitions=3, sync="os")
    moments = []
    for _ in range(3):
        moments.append(clock.now_ns() // 10**6)
        for number in range(3):
            topic.write_many([b"x"] * 2, partition=number)
        clock.advance(1)
    return moments


@pytest.mark.parametrize(
    ("starting", "ending", "spans"),
    [
        ({"OffsetsByTimestamp": [1, 1, 1]}, {"OffsetsByTimestamp": [2, 2, 2]}, [(2, 4)] * 3),
        ({"OffsetsByTimestamp": [0, 0, 0]}, {"Offsets": [-1, -1, 1]}, [(0, 6), (0, 6), (0, 1)]),
        ({"Offsets": [-2, -2, 1]}, {"OffsetsByTimestamp": [2, 2, 2]}, [(0, 4), (0, 4), (1, 4)]),
        ({"OffsetsByTimestamp": [1, 1, 1]}, {}, [(2, 6)] * 3),
        ({}, {"OffsetsByTimestamp": [2, 2, 2]}, [(0, 4)] * 3),
        ({"Timestamp": 1}, {"Timestamp": 2}, [(2, 4)] * 3),
        ({"OffsetsByTimestamp": [1, 1, 9]}, {}, [(2, 6), (2, 6), (6, 6)]),
        ({}, {"OffsetsByTimestamp": [1, 1, 9]}, [(0, 2), (0, 2), (0, 6)]),
        ({"Offsets": [-1, -1, -1]}, {}, [(6, 6)] * 3),
        ({}, {"Offsets": [-2, -2, -2]}, [(0, 0)] * 3),
        ({"Offsets": [1, 1]}, {"Offsets": [2]}, [(1, 2), (1, 6), (0, 6)]),
        ({"Offsets": "latest"}, {}, [(6, 6)] * 3),
        ({}, {"Offsets": "earliest"}, [(0, 0)] * 3),
    ],
)
def test_a_table_between_any_two_places(store, three_times, starting, ending, spans):
    def moment(index: int) -> int:
        return three_times[index] if index < 3 else three_times[-1] + 10**6

    def text(kind: str, value) -> str:
        if not isinstance(value, list):
            return str(moment(value)) if isinstance(value, int) else value
        return each_partition("orders", [moment(v) for v in value] if "Timestamp" in kind else value)

    given = {f"starting{kind}": text(kind, value) for kind, value in starting.items()}
    given |= {f"ending{kind}": text(kind, value) for kind, value in ending.items()}
    found = rows(survey(parse({"path": store.path, "topic": "orders", **given})))
    assert sorted(found) == [
        ("orders", number, at) for number, (start, stop) in enumerate(spans) for at in range(start, stop)
    ]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"startingOffsets": '{"orders": {"1": 5}}', "endingTimestamp": "1"}, "begin at 5 and end at 4"),
        ({"startingOffsets": '{"orders": {"1": 7}}'}, "beyond the end"),
        ({"startingOffsetsByTimestamp": '{"orders": {"3": 1}}'}, "no partition 3"),
        ({"endingOffsetsByTimestamp": '{"orders": {"3": 1}}'}, "no partition 3"),
    ],
)
def test_a_table_that_would_begin_behind_its_end_is_refused(store, three_times, options, told):
    given = {**options, "path": store.path, "topic": "orders"}
    if "endingTimestamp" in given:
        given["endingTimestamp"] = str(three_times[2])
    with pytest.raises(penstock.PenstockError, match=told):
        survey(parse(given))


@pytest.mark.parametrize("streaming", [True, False])
def test_what_retention_took_is_passed_over_without_a_row_twice(store, query, streaming):
    topic = store.create_topic("orders", segment_bytes="16KiB", sync="os")
    for _ in range(20):
        topic.write_many([b"x" * 100] * 50)
    topic.alter(max_bytes=20_000)
    topic.vacuum()
    first = topic.stats().partitions[0].start
    assert first > 0
    options = {"topic": "orders", "startingOffsets": '{"orders": {"0": 0}}'}
    for fail in ("true", "false"):
        asked = {**options, "failOnDataLoss": fail}

        def read(asked=asked) -> list[tuple[str, int, int]]:
            if not streaming:
                return rows(survey(parse({"path": store.path, **asked})))
            return drained(query(**asked), query(**asked).initial())[0]

        if fail == "true":
            with pytest.raises(penstock.OffsetTrimmed, match=f"the first one left is {first}"):
                read()
        else:
            assert read() == [("orders", 0, at) for at in range(first, 1000)]
