"""Clients that come back after long: what they missed lies in old segments, and is read aside."""

import threading
from contextlib import contextmanager

import pytest

import penstock
from tests.serve.kit import Ws, served

SEGMENT_BYTES = 32 * 1024
EVENTS = 2000


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """A server whose topic has many segments, and the cursor of its beginning."""
    folder = tmp_path_factory.mktemp("old") / "data"
    with penstock.open(folder) as store:
        topic = store.create_topic("events", index="key", segment_bytes=SEGMENT_BYTES)
        beginning = store.events().subscribe(["even"]).next
        for first in range(0, EVENTS, 100):
            store.events().push_many(
                ("odd" if n % 2 else "even", "x" * 100) for n in range(first, first + 100)
            )
        assert topic.stats().partitions[0].segments > 5
    with served(folder, "--workers", "1") as server:
        yield server, beginning


@contextmanager
def pushing(server, key):
    """Events are pushed meanwhile."""
    ends = threading.Event()

    def push():
        while not ends.is_set():
            server.push(key, "new")

    thread = threading.Thread(target=push)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join(60)


def stored_ids(server, *keys):
    with penstock.open(server.folder) as store:
        messages = store.topic("events").read(limit=100_000)
        return [message.offset + 1 for message in messages if message.key.decode() in keys]


def test_everything_that_was_missed_comes_once_while_more_is_pushed(old, listening):
    server, beginning = old
    with pushing(server, "even"):
        heard = listening(server, ["even"], beginning)
        heard.until(EVENTS // 2 + 5, timeout=60)
    expected = stored_ids(server, "even")
    heard.until(len(expected), timeout=60)
    assert heard.ids == expected
    assert not heard.gaps


def test_the_last_events_are_found_in_old_segments(old, listening):
    server, _ = old
    expected = stored_ids(server, "odd")[-300:]
    heard = listening(server, ["odd"], rewind=300)
    heard.until(300, timeout=60)
    assert heard.ids == expected


def test_a_long_poll_that_does_not_wait_is_told_what_it_missed(old):
    server, beginning = old
    status, answer, _ = server.ask("GET", f"/v1/events?key=odd&cursor={beginning}&timeout=0&limit=10")
    assert (status, [event["id"] for event in answer["events"]]) == (200, stored_ids(server, "odd")[:10])
    nothing = server.ask("GET", f"/v1/events?key=nobody&cursor={beginning}&timeout=0")[1]
    assert (nothing["events"], "gap" in nothing) == ([], False)
    assert int(nothing["next"].rpartition(".")[2]) > EVENTS


def test_keys_changed_while_old_segments_are_read(old):
    server, beginning = old
    heard = Ws(server, ["even"], beginning)
    heard.say(subscribe=["odd"], cursor=beginning)
    expected = stored_ids(server, "even", "odd")
    heard.until(len(expected), timeout=60)
    assert sorted(heard.ids) == expected
    heard.say(unsubscribe=["even"], cursor=beginning)
    odd = stored_ids(server, "odd")
    heard.until(len(expected) + len(odd), timeout=60)
    assert heard.ids[len(expected) :] == odd
    heard.close()
