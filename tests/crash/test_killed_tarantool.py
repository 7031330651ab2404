"""A Tarantool that is killed with -9, stands still, or comes back while streams use it."""

import threading
import time

import pytest

import penstock
from penstock.errors import PenstockError, Unavailable
from tests.tarantool import tarantool_server

PUBLISHERS = 6


@pytest.fixture
def server():
    with tarantool_server() as server:
        yield server


@pytest.fixture
def open_stream(server, tmp_path):
    """Opens the stream, each time by a link of its own."""
    opened = []

    def open_stream(timeout="20s"):
        place = penstock.Tarantool(
            server.host, server.port, user=server.user, password=server.password, timeout=timeout
        )
        place.install()
        store = penstock.open(tmp_path / "store")
        opened.append((place, store))
        return store.stream("s", engine=place)

    yield open_stream
    for place, store in opened:
        store.close()
        place.close()


class Publishers:
    """Threads that publish until they are told to stop, and note what was acknowledged."""

    def __init__(self, stream):
        self.acknowledged = {}
        self.doubtful = 0
        self._stream = stream
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._publish, args=(n,)) for n in range(PUBLISHERS)]
        for thread in self._threads:
            thread.start()

    def _publish(self, number):
        i = 0
        while not self._stop.is_set():
            i += 1
            name = f"{number}/{i}"
            try:
                sequence = self._stream.publish_message(f"s{number}", name)
            except Unavailable:
                self.doubtful += 1
            else:
                assert sequence not in self.acknowledged
                self.acknowledged[sequence] = name

    def wait_for(self, more):
        wanted = len(self.acknowledged) + more
        while len(self.acknowledged) < wanted:
            assert any(thread.is_alive() for thread in self._threads)
            time.sleep(0.005)

    def stop(self):
        self._stop.set()
        for thread in self._threads:
            thread.join()


def _all_rows(stream):
    rows, start = {}, 1
    while found := stream.get_all_messages(start, 1000):
        rows.update({row[0]: row[2] for row in found})
        start = found[-1][0] + 1
    return rows


def _run_with_kills(server, open_stream, kills, between):
    stream, reading = open_stream(), open_stream()
    publishers = Publishers(stream)
    seen, is_over = {}, threading.Event()

    def watch():
        """Reads what is new, as a consumer that keeps its position in memory: it never looks back."""
        last = 0
        while not is_over.is_set():
            try:
                rows = reading.get_all_messages(last + 1, 1000)
            except PenstockError:
                continue
            for row in rows:
                seen[row[0]] = row[2]
                last = row[0]

    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in range(kills):
        publishers.wait_for(between)
        server.kill()
        server.start()
    publishers.wait_for(between)
    publishers.stop()
    stored = _all_rows(stream)
    while len(seen) < len(stored) and watcher.is_alive():
        time.sleep(0.01)
    is_over.set()
    watcher.join()
    return publishers, stored, seen


def _check(publishers, stored, seen):
    lost = {s: n for s, n in publishers.acknowledged.items() if stored.get(s) != n}
    assert not lost
    assert len(set(stored.values())) == len(stored)
    # Nobody was shown a message that a crash then took back, nor was anything slipped in behind a reader.
    assert seen == stored
    # What is there and was not acknowledged was in doubt, and its publisher was told so.
    assert len(stored) - len(publishers.acknowledged) <= publishers.doubtful


def test_what_was_acknowledged_or_seen_survives_kill_9(server, open_stream):
    _check(*_run_with_kills(server, open_stream, kills=2, between=300))


@pytest.mark.slow
def test_what_was_acknowledged_or_seen_survives_kill_9_again_and_again(server, open_stream):
    _check(*_run_with_kills(server, open_stream, kills=25, between=1000))


def test_a_stream_waits_for_an_instance_that_comes_back(server, open_stream):
    stream = open_stream()
    assert stream.publish("a", b"1") == 1
    server.kill()
    answers = []
    thread = threading.Thread(target=lambda: answers.append(stream.get_message_by_sequence(1)))
    thread.start()
    server.start()
    thread.join(30)
    assert answers[0][0] == 1
    assert stream.publish("a", b"2") == 2


def test_a_publish_that_was_not_answered_is_in_doubt_and_says_so(server, open_stream):
    stream, hasty = open_stream(), open_stream(timeout="2s")
    stream.publish("a", b"1")
    assert hasty.get_latest_sequence() == 1
    server.stop()
    try:
        with pytest.raises(Unavailable, match="may have been done"):
            hasty.publish("a", b"2")
    finally:
        server.go_on()
    # It may be done at any moment from now on, or never; if it was it has its body, nothing is half there.
    assert [message.data for message in stream.messages()] in ([b"1"], [b"1", b"2"])


def test_publishing_fails_while_it_is_down_and_works_when_it_is_up(server, open_stream):
    stream, hasty = open_stream(), open_stream(timeout="2s")
    stream.publish("a", b"1")
    server.kill()
    with pytest.raises(Unavailable):
        hasty.publish("a", b"2")
    server.start()
    stream.publish("a", b"3")
    assert [message.data for message in stream.messages()][-1] == b"3"


def test_subscribers_go_on_after_a_restart(server, open_stream):
    stream, other = open_stream(), open_stream()
    heard = []

    def follow():
        for message in stream.subscribe("d", "a", timeout=60):
            heard.append(message.sequence)
            if len(heard) == 2:
                return

    thread = threading.Thread(target=follow)
    thread.start()
    other.publish("a", b"1")
    while not heard:
        time.sleep(0.01)
    server.kill()
    server.start()
    other.publish("a", b"2")
    thread.join(60)
    assert heard == [1, 2]
