"""A feed and its streams, without sockets: who is told what, when there is room and when there is none."""

import asyncio
import json

import pytest

import penstock
from penstock.keys import match
from tests.require import require

# ruff: noqa: E402 - what follows cannot be imported without the extra.
require("server")

from penstock.serve import limits
from penstock.serve.access import OPEN
from penstock.serve.feed import Feed, Start
from penstock.serve.sse import SseStream
from penstock.serve.timer_wheel import Wheel
from penstock.serve.websocket import WebSocketStream
from penstock.websocket_frames import TEXT, Frames


class Connection:
    """Takes what is written; is full when told so."""

    def __init__(self):
        self.data, self.is_full, self.is_open, self.room = b"", False, True, 2**30
        self.now = 0

    def become(self, stream, head, first_time):
        self.write(head)

    def write(self, data):
        self.data += data
        self.room -= len(data)
        self.is_full = self.room < 0

    def close(self):
        self.is_open = False

    def events(self):
        frames = Frames(from_client=False, limit=2**30).feed(self.data)
        told = [json.loads(payload) for opcode, payload in frames if opcode == TEXT]
        return [event["data"] for each in told for event in each["events"]]


@pytest.fixture
def events(tmp_path):
    with penstock.open(tmp_path / "data") as store:
        yield store.events()


def in_thread(call, *args):
    return asyncio.get_running_loop().run_in_executor(None, call, *args)


def websocket(feed, key, cursor=None):
    asked = match([key])
    stream = WebSocketStream(Connection(), feed, OPEN, None, asked, Start(cursor))
    stream.open(b"", feed.begin(asked, Start(cursor)), 0)
    return stream


async def settle(feed):
    """Let the feed read everything, and everybody who has room catch up."""
    feed.look()
    for _ in range(50):
        await asyncio.sleep(0)


async def until(holds):
    for _ in range(30_000):
        if holds():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never came to that")


def test_a_full_connection_is_sent_nothing_and_gets_the_rest_when_it_has_room(events):
    async def go():
        feed = Feed(events, lambda _: None, in_thread)
        stream, other = websocket(feed, "k"), websocket(feed, "k")
        stream.connection.room = 20_000
        for first in range(0, 2000, 100):
            events.push_many([("k", first + n) for n in range(100)])
            await settle(feed)
        sent = len(stream.connection.data)
        assert sent < 20_000 + limits.WRITE_BYTES + 1000
        assert (stream.next >= 0, other.next) == (True, -1)
        assert other.connection.events() == list(range(2000))
        while stream.next >= 0:  # a little room at a time
            stream.connection.room, stream.connection.is_full = 5000, False
            stream.drained()
            await settle(feed)
        stream.connection.room, stream.connection.is_full = 2**30, False
        events.push("k", 2000)
        await settle(feed)
        assert stream.connection.events() == list(range(2001))
        feed.close()

    asyncio.run(go())


def test_a_replay_and_what_comes_meanwhile_meet_without_gap_or_repeat(events):
    async def go():
        feed = Feed(events, lambda _: None, in_thread)
        cursor = feed.cursor
        for n in range(250):
            events.push("k", n)
        stream = websocket(feed, "k", cursor)
        for n in range(250, 260):
            events.push("k", n)
            await asyncio.sleep(0)
        await settle(feed)
        assert stream.connection.events() == list(range(260))
        assert stream.next == -1
        feed.close()

    asyncio.run(go())


def test_old_segments_are_read_in_threads_and_a_change_of_mind_meanwhile_counts(tmp_path):
    async def go(store):
        events, started = store.events(), []

        def counted(call, *args):
            started.append(args)
            return in_thread(call, *args)

        feed = Feed(events, lambda _: None, counted)
        cursor = feed.cursor
        for first in range(0, 1000, 50):
            events.push_many([("a" if n % 2 else "b", [n, "x" * 100]) for n in range(first, first + 50)])
        feed.look()
        stream = websocket(feed, "a", cursor)
        await asyncio.sleep(0)
        assert len(started) == 1  # under way: what it finds is not wanted any more
        stream._obey(b'{"unsubscribe": ["a"], "subscribe": ["b"], "cursor": "%s"}' % cursor.encode())
        await until(lambda: stream.next < 0)
        assert [n for n, _ in stream.connection.events()] == list(range(0, 1000, 2))
        assert len(started) > 3
        feed.close()

    with penstock.open(tmp_path / "data") as store:
        store.create_topic("events", index="key", segment_bytes=16 * 1024)
        asyncio.run(go(store))


def test_what_others_write_is_heard_while_we_store_all_the_time_and_afterwards(tmp_path):
    async def go(events):
        feed = Feed(events, lambda _: None, in_thread)
        stream, count = websocket(feed, "k"), 0
        while feed._hears:
            events.push("k", count)
            count += 1
            feed.stored()
        await until(lambda: feed._hears)  # by itself, soon after the last store
        events.push("k", count)
        await until(lambda: len(stream.connection.events()) > count)
        assert stream.connection.events() == list(range(count + 1))
        feed.close()

    with penstock.open(tmp_path / "data") as store:
        store.create_topic("events", index="key", sync="os")  # quick enough on any disk
        asyncio.run(go(store.events()))


def test_pings_come_each_25_seconds(events):
    """S002-35."""

    async def go():
        feed = Feed(events, lambda _: None, in_thread)
        socket = websocket(feed, "k")
        stream = SseStream(Connection(), feed, OPEN)
        stream.begin(b"", match(["k"]), feed.begin(match(["k"]), Start()), 0)
        for each in (socket, stream):
            at = 0
            for _ in range(3):
                at = each.on_time(at or limits.PING_S)
            assert at == 4 * limits.PING_S
        assert socket.connection.data.count(b'"ping":true') == 3
        assert stream.connection.data.count(b"event: ping\ndata: ") == 3
        feed.close()

    asyncio.run(go())


def test_who_leaves_is_forgotten(events):
    async def go():
        feed = Feed(events, lambda _: None, in_thread)
        asked = match(["a", "b"], [["p"]])
        streams = [WebSocketStream(Connection(), feed, OPEN, None, asked, Start()) for _ in range(40)]
        for each in streams:
            each.open(b"", feed.begin(asked, Start()), 0)
        assert len(feed.listeners(b"a")) == len(feed.listeners(b'["p",1]')) == 40
        for each in streams:
            each.lost()
        assert not feed._interest
        feed.close()

    asyncio.run(go())


def test_a_dropped_topic_ends_its_streams(tmp_path):
    async def go():
        with penstock.open(tmp_path / "data") as store:
            ended = []
            feed = Feed(store.events(), ended.append, in_thread)
            stream = websocket(feed, "k")
            store.drop_topic("events")
            feed.look()
            assert (ended, stream.connection.is_open) == ([feed], False)

    asyncio.run(go())


class Timed:
    def __init__(self):
        self.wheel_at, self.seen = -1, []

    def on_time(self, now):
        self.seen.append(now)


def test_the_wheel_looks_once_at_the_earliest_second():
    wheel, timed = Wheel(100), Timed()
    wheel.put(timed, 130)
    wheel.put(timed, 110)
    wheel.put(timed, 120)
    wheel.turn(109)
    assert timed.seen == []
    wheel.turn(140)
    assert timed.seen == [140]
    wheel.put(timed, 141)
    wheel.remove(timed)
    wheel.turn(200)
    assert timed.seen == [140]
