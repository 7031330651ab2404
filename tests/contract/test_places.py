"""Places: where reading begins, in every spelling, and what is wrong with the others."""

from datetime import UTC, datetime, timedelta

import pytest

import penstock


@pytest.fixture
def topic(store, clock):
    """Ten messages, one an hour, the last one written now."""
    topic = store.create_topic("orders", sync="os")
    for number in range(10):
        if number:
            clock.advance("1h")
        topic.write(b"%d" % number)
    return topic


def moment(clock, hours_ago):
    return datetime.fromtimestamp(clock.now_ns() / 1e9, UTC) - timedelta(hours=hours_ago)


PLACES = [
    (lambda clock: 3, 3),
    (lambda clock: "3", 3),
    (lambda clock: 10, 10),
    (lambda clock: {0: 4}, 4),
    (lambda clock: {}, 0),
    (lambda clock: "earliest", 0),
    (lambda clock: "latest", 10),
    (lambda clock: "last", 9),
    (lambda clock: "2h", 7),
    (lambda clock: "150m", 7),
    (lambda clock: "0s", 9),
    (lambda clock: "52w", 0),
    (lambda clock: moment(clock, 5), 4),
    (lambda clock: moment(clock, 5).isoformat(), 4),
    (lambda clock: moment(clock, -1), 10),
    (lambda clock: moment(clock, 5).astimezone().replace(tzinfo=None), 4),
]


@pytest.mark.parametrize(("place", "offset"), PLACES)
def test_every_place_is_understood_everywhere(topic, clock, place, offset):
    place = place(clock)
    expected = list(range(offset, 10))
    with topic.reader(start=place, follow=False) as reader:
        assert [m.offset for m in reader] == expected
        reader.seek("earliest")
        reader.seek(place)
        assert [m.offset for m in reader] == expected
    assert [m.offset for m in topic.read(start=place)] == expected
    assert [m.offset for m in topic.scan(start=place).messages()] == expected
    assert [m.offset for m in topic.read(stop=place)] == list(range(offset))
    assert [m.offset for m in topic.scan(stop=place).messages()] == list(range(offset))
    assert topic.seek_consumer("c", place) == {0: offset}
    topic.add_consumer("d", start=place)
    assert [each.positions for each in topic.consumers()] == [{0: offset}] * 2


def test_an_offset_for_each_partition(store):
    topic = store.create_topic("wide", partitions=3, sync="os")
    for partition in range(3):
        topic.write_many([b"v"] * 5, partition=partition)
    with topic.reader(start={0: 4, 2: 3}, follow=False) as reader:
        first = {}
        for message in reader:
            first.setdefault(message.partition, message.offset)
    assert first == {0: 4, 1: 0, 2: 3}


BAD_PLACES = [
    (11, penstock.OffsetAhead),
    (2**62, penstock.OffsetAhead),
    ({0: 11}, penstock.OffsetAhead),
    (-1, penstock.InvalidOption),
    ({0: -1}, penstock.InvalidOption),
    (2**63, penstock.InvalidOption),
    ({1: 0}, penstock.InvalidOption),
    ("yesterday", penstock.InvalidOption),
    ("", penstock.InvalidOption),
    ("-2h", penstock.InvalidOption),
    (datetime(2500, 1, 1, tzinfo=UTC), penstock.InvalidOption),
    (True, penstock.WrongType),
    (None, penstock.WrongType),
    (1.5, penstock.WrongType),
    (b"earliest", penstock.WrongType),
    ({"0": 1}, penstock.WrongType),
    ({0: None}, penstock.WrongType),
]


@pytest.mark.parametrize(("place", "error"), BAD_PLACES)
def test_a_bad_place_is_a_clear_error_and_changes_nothing(store, topic, place, error):
    """W004-03: any bad start offset hung for ever."""
    with topic.reader(follow=False) as reader:
        assert reader.receive().offset == 0
        with pytest.raises(error):
            reader.seek(place)
        assert reader.receive().offset == 1
    for attempt in (
        lambda: topic.reader(start=place),
        lambda: topic.reader(consumer="c", start=place),
        lambda: topic.add_consumer("c", start=place),
        lambda: topic.seek_consumer("c", place),
        lambda: topic.read(start=place),
        lambda: topic.scan(start=place),
    ):
        with pytest.raises(error):
            attempt()
    assert store.consumers() == []


def test_an_error_in_a_place_says_what_would_do(topic):
    with pytest.raises(penstock.OffsetAhead, match="beyond the end") as ahead:
        topic.reader(start=11)
    assert (ahead.value.partition, ahead.value.offset, ahead.value.end) == (0, 11, 10)
    assert "latest" in ahead.value.hint
    with pytest.raises(penstock.InvalidOption, match="earliest"):
        topic.reader(start="yesterday")
