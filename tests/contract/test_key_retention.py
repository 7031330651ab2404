"""`key_retention`: until when a message of a key is seen, by whom, and what is left of it afterwards."""

import datetime
import time

import pytest

import penstock
from penstock.errors import InvalidOption, OffsetTrimmed, WrongType
from penstock.testing import Clock
from tests.kit.logs import KeyDurations, seal_segment
from tests.kit.patience import PATIENCE_S
from tests.kit.system import NANOSECONDS
from tests.kit.topics import inside
from tests.kit.values import rules_of

SECOND = NANOSECONDS


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(tmp_path, clock):
    with penstock.open(tmp_path / "data", clock=clock) as opened:
        yield opened


@pytest.fixture(params=["active", "sealed", "tidied"])
def topic(store, clock, request):
    """Six keys, three times, nine seconds apart; then nine seconds have passed."""
    topic = store.create_topic(
        "t", index="key", retention="1h",
        key_retention={"a*": "10s", ("chat", "*"): "20s", "a1": 30},
    )  # fmt: skip
    for turn in range(3):
        for key in ("a1", "a2", ["chat", 1], "chat", "z", None):
            topic.write(str(turn), key=key)
        clock.advance(9)
    if request.param != "active":
        seal_segment(inside(topic).log(0))
    if request.param == "tidied":
        topic.vacuum()
    return topic


#: What is over then: a2 of the first two turns, a chat of the first.
OVER = [1, 2, 7]
ALIVE = [offset for offset in range(18) if offset not in OVER]


def offsets(messages):
    return [message.offset for message in messages]


def test_each_key_lives_as_long_as_the_pattern_that_fits_it_best(topic):
    assert offsets(topic.read(key="a1")) == [0, 6, 12]
    assert offsets(topic.read(key="a2")) == [13]
    assert offsets(topic.read(key=["chat", 1])) == [8, 14]
    assert offsets(topic.read(key="chat")) == [3, 9, 15]
    assert offsets(topic.read(prefix="a")) == [0, 6, 12, 13]
    assert offsets(topic.scan(prefix="").messages()) == [each for each in ALIVE if each % 6 != 5]


def test_a_limit_counts_only_what_is_alive(topic):
    assert offsets(topic.read(key="a2", limit=1)) == [13]
    assert offsets(topic.read(prefix="a", limit=2)) == [0, 6]
    assert offsets(topic.read(limit=3)) in ([0, 3, 4], [0])  # a read may end early, never with what is over


def test_nobody_who_reads_on_gets_what_is_over(topic):
    assert offsets(topic.read()) == ALIVE
    assert offsets(topic.scan().messages()) == ALIVE
    with topic.reader(follow=False) as reader:
        assert offsets(reader) == ALIVE
    assert topic.read(start=7, stop=8).messages() == []


def test_the_latest_of_a_key_is_gone_with_its_time(topic, clock):
    assert topic.latest("a2").offset == 13
    clock.advance(1)
    assert topic.latest("a2").offset == 13  # written ten seconds ago, to the nanosecond
    clock.advance(0.000_000_001)
    assert topic.latest("a2") is None
    assert topic.latest("a1").offset == 12


def test_one_that_is_over_cannot_be_had_by_its_offset(topic):
    with pytest.raises(OffsetTrimmed) as caught:
        topic.get(7)
    assert caught.value.first == 8
    assert topic.get(8).key == b'["chat",1]'


def test_a_consumer_commits_over_what_is_over(topic):
    with topic.reader(consumer="c", follow=False) as reader:
        for message in reader:
            reader.commit(message)
        assert reader.gaps == []
    assert topic.consumers()[0].positions == {0: 18}


def test_subscribers_get_what_is_alive_and_no_gap(store, topic):
    events = store.events("t")
    first = events.subscribe("a2", f"{events.epoch}.1", timeout=0)
    assert ([event.id for event in first.events], first.gap) == ([14], None)
    assert [event.id for event in events.subscribe(prefixes=[["chat"]], rewind=5).events] == [9, 15]


def test_expired_gives_what_is_over_and_each_once_since_a_moment(topic, clock):
    assert offsets(topic.expired()) == [each for each in OVER if each >= topic.stats().partitions[0].start]
    moment = clock.now_ns()
    assert offsets(topic.expired(since=moment)) == []
    clock.advance(5)
    assert offsets(topic.expired(since=moment)) == [0, 8, 13]
    later = datetime.datetime.fromtimestamp(clock.now_ns() / SECOND, datetime.UTC)
    assert offsets(topic.expired(since=later)) == []


def test_a_vacuum_takes_what_is_over_in_front_and_nothing_else(topic, clock):
    clock.advance(25)  # all but z, chat and those without a key
    report = topic.vacuum()
    assert report.partitions[0].start == 3
    assert offsets(topic.read()) == [3, 4, 5, 9, 10, 11, 15, 16, 17]


def test_space_comes_back_when_all_of_a_segment_is_over(store, clock):
    topic = store.create_topic("p", index="key", key_retention={"*": "10s"}, segment_bytes=4096)
    topic.write_many([b"x" * 100] * 200, keys=["a", "b"] * 100)
    topic.write_many([b"x" * 100] * 200, keys=["a", "b"] * 100)
    assert topic.stats().bytes > 40_000
    clock.advance(11)
    topic.vacuum()
    assert topic.stats().bytes < 1000
    assert topic.write(b"on", key="a").offset == 400


def test_an_important_consumer_is_refused_until_keys_live_as_long_as_it_needs(topic, clock):
    with pytest.raises(InvalidOption, match="key_retention"):
        topic.add_consumer("careful", important=True)
    topic.alter(key_retention=None)
    topic.add_consumer("careful", important=True)
    clock.advance(3600)
    start = topic.stats().partitions[0].start
    topic.vacuum()
    assert topic.stats().partitions[0].start == start
    with topic.reader(consumer="careful", follow=False) as reader:
        assert offsets(reader) == list(range(start, 18))


def test_lifetimes_can_be_changed_and_what_still_lies_there_comes_back(topic):
    topic.alter(key_retention={"a1": "1s"})
    gone = {0, 6, 12} | ({1, 2} if topic.stats().partitions[0].start else set())
    assert set(offsets(topic.read())) == set(range(18)) - gone
    topic.alter(key_retention=None)
    assert offsets(topic.read()) == list(range(topic.stats().partitions[0].start, 18))


def test_another_opening_follows_within_a_second(tmp_path, topic):
    with penstock.open(tmp_path / "data", clock=inside(topic).clock) as other:
        there = other.topic("t")
        assert offsets(there.read(key="z")) == [4, 10, 16]
        topic.alter(key_retention={"z": "1s"})
        deadline = time.monotonic() + PATIENCE_S
        while offsets(there.read(key="z")):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_delete_before_returns_all_that_it_took(topic, clock):
    start = topic.stats().partitions[0].start
    deleted = topic.delete_before("15s")
    assert offsets(deleted) == list(range(start, 12))
    assert offsets(topic.read()) == list(range(12, 18))
    assert offsets(topic.delete_before("15s")) == []
    assert offsets(topic.delete_before("latest")) == list(range(12, 18))
    assert topic.write(b"on", key="z").offset == 18


def test_delete_before_leaves_what_an_important_consumer_wants(topic):
    with topic.reader(follow=False) as reader:
        taken = [next(reader) for _ in range(4)]
    topic.alter(key_retention=None)
    topic.add_consumer("careful", important=True, start=taken[-1].offset)
    assert offsets(topic.delete_before("latest"))[-1] == taken[-1].offset - 1
    assert taken[-1].offset in offsets(topic.read())


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"key_retention": {"a": "2h"}, "retention": "1h", "index": "key"}, InvalidOption, "longer than"),
        ({"key_retention": {"a": "2h"}}, InvalidOption, 'index="key"'),
        ({"key_retention": {"a": 0}, "index": "key"}, InvalidOption, "is 0"),
        ({"key_retention": {"a": "soon"}, "index": "key"}, InvalidOption, "not a duration"),
        ({"key_retention": {"[1": "1s"}, "index": "key"}, InvalidOption, "not an array"),
        ({"key_retention": {5: "1s"}, "index": "key"}, WrongType, "pattern"),
        ({"key_retention": ["a"], "index": "key"}, WrongType, "dict"),
        ({"key_retention": {str(n): 1 for n in range(1001)}, "index": "key"}, InvalidOption, "1000"),
    ],
)
def test_what_cannot_be_is_said(store, options, error, says):
    with pytest.raises(error, match=says):
        store.create_topic("x", **options)


def test_retention_and_index_cannot_be_taken_from_under_lifetimes(topic):
    with pytest.raises(InvalidOption, match="longer than retention"):
        topic.alter(retention="25s")
    with pytest.raises(InvalidOption, match='index="key"'):
        topic.alter(index=None)
    topic.alter(retention="30s")


def test_patterns_are_kept_in_one_spelling(store):
    options = {"index": "key", "key_retention": {("chat", 1): "1m", '["chat", 2]': "1m"}}
    topic = store.create_topic("x", **options)
    assert topic.options.key_retention == (('["chat",1]', 60.0), ('["chat",2]', 60.0))
    assert store.create_topic("x", exists_ok=True, **options).options == topic.options


def test_the_key_goes_before_a_pattern_and_the_longer_one_before_the_shorter():
    lifetimes = KeyDurations(rules_of({"*": 1, "ab*": 2, "abc": 3, ("a", "*"): 4, ("a", 1): 5}))
    asked = [b"x", b"ab", b"abc", b"abcd", b'["a"]', b'["a",1]', b'["a",1,2]', b"a", None, b""]
    found = [lifetimes.of(key) for key in asked]
    assert [each and each // SECOND for each in found] == [1, 2, 3, 2, 4, 5, 4, 1, None, 1]
