"""`store.events()`: pushed under a key, heard at once, found again after a break; never lost in silence."""

import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

import penstock
from tests.kit.cursors import id_of
from tests.kit.patience import PATIENCE_S
from tests.kit.topics import inside

PUSHER = """
import sys, penstock
with penstock.open(sys.argv[1]) as store:
    events = store.events()
    sys.stdin.readline()
    print(events.push(["chat", 345], {"from": "elsewhere"}).first, flush=True)
"""


@pytest.fixture
def events(store):
    return store.events()


def now(events, *keys):
    """Where a subscriber who comes now stands."""
    return events.subscribe(list(keys) or ["k"]).next


def ids(answer):
    return [event.id for event in answer.events]


def in_thread(call):
    """Begin a call that waits; returns what gives its result."""
    found = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()

    def result():
        thread.join(30)
        return found[0]

    return result


def wait_for_waiters(events, count):
    """Return when so many have found nothing and wait."""
    real = getattr(events, "_target", events)
    tail = getattr(real, "_listeners", None)  # coroutines share one
    deadline = time.monotonic() + PATIENCE_S
    while (len(inside(real).readers) if tail is None else tail.waiting) < count:
        assert time.monotonic() < deadline, "nobody waits"
        time.sleep(0.001)


def test_the_topic_is_made_at_first_use(store, open_store, clock):
    events = store.events()
    assert events.topic == "events"
    options = store.topic("events").options
    assert (options.index, options.retention_s, options.sync) == ("key", 3600.0, "disk")
    assert store.events().epoch == events.epoch == open_store(clock=clock).events().epoch
    assert store.events("others").topic == "others"
    assert store.events("others").epoch != events.epoch


def test_what_is_new_is_answered_at_once_in_order_over_all_keys(events):
    """S002-02, S002-22, B002-03."""
    cursor = now(events)
    events.push(["chat", 345], {"n": 1})
    events.push(["user", 1], {"n": 2})
    events.push("plain", None)
    events.push(["chat", 345], [1, "two", None])
    answer = events.subscribe([["chat", 345], "plain"], cursor)
    assert [(e.id, e.key, e.data) for e in answer.events] == [
        (1, ["chat", 345], {"n": 1}),
        (3, "plain", None),
        (4, ["chat", 345], [1, "two", None]),
    ]
    assert (answer.min, answer.gap) == (1, None)
    assert id_of(answer.next) == f"{events.epoch}.5"


def test_an_event_carries_the_time_it_was_stored(events, clock):
    """S002-19."""
    cursor = now(events)
    events.push("k", 1)
    assert events.subscribe(["k"], cursor).events[0].time == clock.now_ns() / 1e9


def test_without_a_cursor_the_answer_is_where_one_stands(events):
    """B002-04."""
    events.push("k", 1)
    answer = events.subscribe(["k"], timeout=30)
    assert (answer.events, id_of(answer.next), answer.min) == ([], f"{events.epoch}.2", 1)


def test_with_nothing_new_an_empty_answer_comes_after_the_timeout_and_has_moved_on(events):
    """S002-24, S002-25, B002-05, B002-09."""
    cursor = now(events)
    events.push("other", 1)
    began = time.monotonic()
    answer = events.subscribe(["k"], cursor, timeout=0.1)
    assert time.monotonic() - began >= 0.1
    assert (answer.events, answer.gap, id_of(answer.next)) == ([], None, f"{events.epoch}.2")
    assert id_of(events.subscribe(["k"], cursor, timeout=0).next) == f"{events.epoch}.2"


def test_a_waiting_subscriber_is_woken(events):
    """S002-23, S002-26."""
    cursor = now(events)
    waiting = in_thread(lambda: events.subscribe([["chat", 1]], cursor, timeout=30))
    wait_for_waiters(events, 1)
    events.push(["other"], "not for them")
    events.push(["chat", 1], "hello")
    assert [event.data for event in waiting().events] == ["hello"]


def test_each_of_several_is_woken_by_its_own_keys_only(events):
    """B002-09."""
    cursor = now(events)
    waiting = [
        in_thread(lambda n=n: events.subscribe([["a", n], ["b", n], ["c", n]], cursor, timeout=30))
        for n in range(3)
    ]
    wait_for_waiters(events, 3)
    for n, name in ((1, "b"), (0, "c"), (2, "a")):
        events.push([name, n], n)
    assert [[event.key for event in result().events] for result in waiting] == [
        [["c", 0]], [["b", 1]], [["a", 2]],
    ]  # fmt: skip


def test_any_process_may_push(store, events):
    cursor = now(events)
    process = subprocess.Popen(
        [sys.executable, "-c", PUSHER, store.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    waiting = in_thread(lambda: events.subscribe([["chat", 345]], cursor, timeout=30))
    wait_for_waiters(events, 1)
    pushed, _ = process.communicate("go\n", timeout=PATIENCE_S)
    assert [(event.id, event.data) for event in waiting().events] == [(int(pushed), {"from": "elsewhere"})]


def test_a_subscriber_misses_nothing_and_gets_nothing_twice_while_others_push(events):
    """S002-11, S002-13."""
    cursor = now(events)
    pushing = in_thread(lambda: [events.push(["n", n % 3], n) for n in range(90)])
    got = []
    while len(got) < 60:
        answer = events.subscribe([["n", 0], ["n", 2]], cursor, timeout=30)
        cursor = answer.next
        got += [event.data for event in answer.events]
    pushing()
    assert got == [n for n in range(90) if n % 3 != 1]


def test_several_events_are_pushed_together(events):
    """S002-17, B002-01, B002-07."""
    events.push("k", 0)
    pushed = events.push_many([("a", 1), (["b"], None), ("a", {"x": [1.5]})])
    assert (pushed.epoch, pushed.first, pushed.last) == (events.epoch, 2, 4)
    answer = events.subscribe(prefixes=["", []], since="1h")
    assert [(event.id, event.data) for event in answer.events] == [
        (1, 0),
        (2, 1),
        (3, None),
        (4, {"x": [1.5]}),
    ]


def test_many_large_events_are_pushed_together_too(store, events):
    """More than a frame holds: still all or none, one after the other."""
    pushed = events.push_many([("k", "x" * 100_000) for _ in range(25)])
    assert (pushed.first, pushed.last) == (1, 25)
    assert ids(events.subscribe(["k"], rewind=100)) == list(range(1, 26))


def test_of_a_push_that_cannot_be_nothing_is_stored(store, events):
    for wrong in ([("k", 1), ("k", object())], [("k", 1), (None, 1)], [("k", 1), ("k",)], [], "text", 5):
        with pytest.raises(penstock.UsageError):
            events.push_many(wrong)
    with pytest.raises(penstock.MessageTooLarge):
        events.push_many([("k", 1), ("k", "x" * 2**21)])
    assert store.topic("events").stats().messages == 0


def test_the_last_ones_and_those_since_a_time(events, clock):
    for number in range(10):
        events.push("even" if number % 2 == 0 else "odd", number)
        clock.advance("1m")
    assert ids(events.subscribe(["even"], rewind=2)) == [7, 9]
    assert ids(events.subscribe(["even"], rewind=100)) == [1, 3, 5, 7, 9]
    assert ids(events.subscribe(["nobody"], rewind=1)) == []
    assert ids(events.subscribe(["odd"], since="3m")) == [8, 10]
    moment = datetime.fromtimestamp(clock.now_ns() / 1e9 - 180, UTC)
    answer = events.subscribe(["odd"], since=moment)
    assert ids(answer) == [8, 10]
    assert id_of(answer.next) == f"{events.epoch}.11"


def test_an_answer_has_a_limit_and_the_next_one_goes_on(events):
    """W002-2."""
    cursor = now(events)
    events.push_many([("k", n) for n in range(25)])
    sizes, got = [], []
    while (answer := events.subscribe(["k", "k"], cursor, timeout=0, limit=10)).events:
        cursor = answer.next
        sizes.append(len(answer.events))
        got += [event.data for event in answer.events]
    assert (sizes, got) == ([10, 10, 5], list(range(25)))


def test_prefixes(events):
    """W002-4."""
    cursor = now(events)
    for key in (["chat", 1], ["chatter", 1], ["chat", 2, "x"], "chat"):
        events.push(key, 0)
    assert ids(events.subscribe(cursor=cursor, prefixes=[["chat"]])) == [1, 3]
    assert ids(events.subscribe("chat", cursor, prefixes=[["chatter"]])) == [2, 4]


def test_a_cursor_behind_retention_is_answered_at_once_with_a_gap(store, events, clock):
    """B002-04."""
    cursor = now(events)
    events.push_many([("k", n) for n in range(3)])
    clock.advance("2h")
    events.push("k", "young")
    store.topic("events").vacuum()
    answer = events.subscribe(["k"], cursor, timeout=30)
    assert (answer.events, answer.min) == ([], 4)
    assert (answer.gap.reason, answer.gap.first, answer.gap.stop) == ("retention", 1, 4)
    assert [event.data for event in events.subscribe(["k"], answer.next).events] == ["young"]


def test_ids_go_on_when_everything_expired_and_the_store_was_opened_again(store, open_store, clock):
    """W002-1: in lp a client with cursor 6 then waited, and silently missed ids 1 to 5."""
    events = store.events()
    events.push_many([("k", n) for n in range(5)])
    cursor = now(events)
    clock.advance("2h")
    store.topic("events").vacuum()
    store.close()
    events = open_store(clock=clock).events()
    answer = events.subscribe(["k"], cursor, timeout=0)
    assert (answer.events, answer.gap, answer.min) == ([], None, 6)
    assert events.push("k", "again").first == 6
    assert ids(events.subscribe(["k"], cursor)) == [6]


def test_a_cursor_of_another_epoch_is_answered_at_once_with_a_gap(store):
    events = store.events()
    events.push("k", "old")
    cursor = now(events)
    elsewhere = now(store.events("others"))
    store.drop_topic("events")
    events = store.events()
    events.push("k", "new")
    for foreign in (cursor, elsewhere):
        answer = events.subscribe(["k"], foreign, timeout=30)
        assert (answer.events, answer.gap.reason, answer.gap.first) == ([], "epoch", None)
        assert [event.data for event in events.subscribe(["k"], answer.next).events] == ["new"]
    several = f"abc.7_{now(events)}"
    assert events.subscribe(["k"], several, timeout=0).gap is None


def test_a_cursor_ahead_of_everything_is_a_gap_too(events):
    events.push("k", 1)
    answer = events.subscribe(["k"], f"{events.epoch}.100", timeout=30)
    assert (answer.gap.reason, answer.gap.first, answer.gap.stop) == ("ahead", 2, 100)
    assert id_of(answer.next) == f"{events.epoch}.2"


def test_damage_is_a_gap_behind_what_came_before_it(store, events, clock, open_store):
    cursor = now(events)
    for number in range(6):
        events.push("k", f"value {number}")
    store.close()
    (data,) = (Path(store.path) / "topics" / "events" / "parts" / "000000").glob("*.data")
    content = bytearray(data.read_bytes())
    content[content.index(b"value 3")] ^= 1
    data.write_bytes(content)
    events = open_store(clock=clock).events()
    answer = events.subscribe(["k"], cursor)
    assert (ids(answer), answer.gap) == ([1, 2, 3], None)
    answer = events.subscribe(["k"], answer.next)
    assert (answer.events, answer.gap.reason, answer.gap.first, answer.gap.stop) == ([], "damage", 4, 5)
    assert ids(events.subscribe(["k"], answer.next)) == [5, 6]
    assert ids(events.subscribe(["k"], rewind=2)) == [5, 6]
    answer = events.subscribe(["k"], rewind=3)
    assert (answer.events, answer.gap.reason, answer.gap.first, answer.gap.stop) == ([], "damage", 4, 5)


def test_what_others_write_to_the_topic_is_heard(store, events):
    """Spark, the command line, and whoever knows nothing of events."""
    cursor = now(events)
    topic = store.topic("events")
    topic.write(b"not JSON", key="k")
    topic.write(None, key="k")
    topic.write(b'{"n":1}', key=b'["chat",345]')
    topic.write(b"1", key=b"\xff")
    topic.write(b"no key: nobody hears it")
    answer = events.subscribe(cursor=cursor, prefixes=[b""])
    assert [(event.key, event.data) for event in answer.events] == [
        ("k", "not JSON"), ("k", None), (["chat", 345], {"n": 1}), ("\\xff", 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [
        {"keys": []},
        {"keys": 5},
        {"keys": [None]},
        {"keys": ["chat", 345]},
        {"keys": ["k"], "cursor": "nonsense"},
        {"keys": ["k"], "cursor": "12.0"},
        {"keys": ["k"], "cursor": "12.99999999999999999999"},
        {"keys": ["k"], "cursor": ""},
        {"keys": ["k"], "cursor": 12},
        {"keys": ["k"], "rewind": 0},
        {"keys": ["k"], "rewind": 1, "since": "1m"},
        {"keys": ["k"], "since": "5"},
        {"keys": ["k"], "since": "soon"},
        {"keys": ["k"], "limit": 0},
        {"keys": ["k"], "timeout": -1},
    ],
)
def test_a_question_that_makes_no_sense_is_refused(events, options):
    with pytest.raises(penstock.UsageError):
        events.subscribe(**options)


def test_a_topic_that_cannot_hold_events_is_refused(store):
    store.create_topic("several", partitions=2, index="key")
    store.create_topic("unindexed")
    for name in ("several", "unindexed"):
        with pytest.raises(penstock.InvalidOption, match="one partition and an index"):
            store.events(name)
    with pytest.raises(penstock.InvalidOption):
        store.events("no/name")


@pytest.mark.parametrize("end", ["close", "drop", "drop elsewhere"])
def test_whoever_waits_hears_that_the_store_is_closed_or_the_topic_dropped(store, open_store, clock, end):
    events = store.events()
    elsewhere = open_store(clock=clock)
    cursor = now(events)
    raised = []

    def wait():
        try:
            events.subscribe(["k"], cursor, timeout=30)
        except penstock.PenstockError as error:
            raised.append(error)

    waiting = in_thread(wait)
    wait_for_waiters(events, 1)
    if end == "close":
        store.close()
    else:
        (store if end == "drop" else elsewhere).drop_topic("events")
    waiting()
    assert isinstance(raised[0], penstock.Closed if end == "close" else penstock.TopicReplaced)
