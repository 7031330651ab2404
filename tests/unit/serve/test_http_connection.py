"""One connection without a socket: time-outs moved by hand, and bytes that nobody should send."""

import re
import socket

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.require import require

# ruff: noqa: E402 - what follows cannot be imported without the extra.
require("server")

from penstock.serve import limits
from penstock.serve.http_connection import Connection
from penstock.serve.http_messages import Refusal, Request
from penstock.serve.timer_wheel import Wheel


class Transport:
    def __init__(self):
        self.sent = b""
        self.closed = self.paused = False

    def write(self, data):
        assert not self.closed
        self.sent += data

    def close(self):
        self.closed = True

    def is_closing(self):
        return self.closed

    def set_write_buffer_limits(self, high):
        pass

    def get_extra_info(self, name):
        return None

    def pause_reading(self):
        self.paused = True

    def resume_reading(self):
        self.paused = False


class Host:
    """Answers each request with its path, at once or when told."""

    def __init__(self, *, later=False, room=True):
        self.now = 1000
        self.wheel = Wheel(self.now)
        self.is_ending = False
        self.asked = []
        self._later, self._room = later, room

    def answer(self, connection, request):
        self.asked.append(request)
        if not self._later:
            connection.reply(200, request.path.encode())

    def opened(self, connection):
        return self._room

    def closed(self, connection):
        pass

    def pass_time(self, seconds):
        self.now += seconds
        self.wheel.turn(self.now)


def connected(host):
    connection, transport = Connection(host), Transport()
    connection.connection_made(transport)
    return connection, transport


def statuses(transport):
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+)", transport.sent)]


def test_a_client_that_says_nothing_is_let_go_silently():
    host = Host()
    _, transport = connected(host)
    host.pass_time(int(limits.IDLE_S) - 1)
    assert not transport.closed
    host.pass_time(3)
    assert (transport.closed, transport.sent) == (True, b"")


def test_a_request_that_never_ends_is_cut_off():
    """Slowloris: a byte now and then does not keep a connection open."""
    host = Host()
    connection, transport = connected(host)
    connection.data_received(b"GET / HTTP/1.1\r\n")
    for _ in range(20):
        host.pass_time(1)
        if not transport.closed:
            connection.data_received(b"X: y\r\n")
    assert transport.closed
    assert statuses(transport) == [408]


def test_a_body_that_trickles_is_cut_off_and_a_large_one_has_time():
    host = Host()
    connection, transport = connected(host)
    connection.data_received(b"POST / HTTP/1.1\r\nContent-Length: 8000000\r\n\r\n")
    for _ in range(100):
        host.pass_time(1)
        connection.data_received(bytes(79_000))
    assert not transport.closed
    connection.data_received(bytes(100_000))
    assert statuses(transport) == [200]
    connection.data_received(b"POST / HTTP/1.1\r\nContent-Length: 8000000\r\n\r\n")
    for _ in range(20):
        host.pass_time(1)
        if not transport.closed:
            connection.data_received(b"x")
    assert statuses(transport) == [200, 408]


def test_an_answer_may_take_its_time():
    host = Host(later=True)
    connection, transport = connected(host)
    connection.data_received(b"GET / HTTP/1.1\r\n\r\n")
    host.pass_time(1000)
    assert not transport.closed
    connection.reply(200, b"")
    host.pass_time(int(limits.IDLE_S) + 2)
    assert transport.closed


class Owing(Host):
    """Owes the answers to all requests."""

    def __init__(self):
        super().__init__()
        self.pending = []

    def answer(self, connection, request):
        self.asked.append(request)
        self.pending.append(connection.reply_later())


def test_answers_that_are_owed_go_out_in_the_order_of_the_requests():
    host = Owing()
    connection, transport = connected(host)
    connection.data_received(b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n" * 3 + b"GET / HTTP/1.1\r\n\r\n")
    assert len(host.pending) == 3  # the one behind them waits
    for number in (2, 1):
        host.pending[number].reply(201 + number, b"")
        connection.settle()
    assert transport.sent == b""
    host.pending[0].reply(201, b"")
    connection.settle()
    assert (statuses(transport), len(host.pending)) == ([201, 202, 203], 4)


def test_no_more_pushes_are_begun_than_may_wait():
    host = Owing()
    connection, transport = connected(host)
    for _ in range(3 * limits.PIPELINE_MOST):
        connection.data_received(b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
    assert (len(host.pending), transport.paused) == (limits.PIPELINE_MOST, True)
    host.pass_time(1000)
    assert not transport.closed
    for _ in range(3):
        for pending in host.pending:
            pending.reply(200, b"")
        connection.settle()
    assert (len(statuses(transport)), transport.paused) == (3 * limits.PIPELINE_MOST, False)


def test_what_the_kernel_does_not_take_is_left_to_the_transport():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        connection, transport = Connection(Host()), Transport()
        transport.get_extra_info = {"socket": ours}.get
        connection.connection_made(transport)
        connection.write(b"small")
        assert (theirs.recv(100), transport.sent) == (b"small", b"")
        large = bytes(range(256)) * 20_000
        connection.write(large)
        taken = len(large) - len(transport.sent)
        assert 0 < taken < len(large)
        connection.pause_writing()
        connection.write(b"behind it")
        received = b""
        while len(received) < taken:
            received += theirs.recv(65536)
        assert received + transport.sent == large + b"behind it"
        theirs.close()
        connection.resume_writing()
        connection.write(b"nobody")  # the transport finds out
        assert transport.sent.endswith(b"nobody")


def test_many_pipelined_requests_are_not_read_all_at_once():
    host = Host(later=True)
    connection, transport = connected(host)
    for _ in range(limits.PIPELINE_MOST + 1):
        connection.data_received(b"GET /a HTTP/1.1\r\n\r\n")
    assert (len(host.asked), transport.paused) == (1, True)
    for _ in range(limits.PIPELINE_MOST + 1):
        connection.reply(200, b"")
    assert (len(host.asked), transport.paused) == (limits.PIPELINE_MOST + 1, False)


def test_who_does_not_read_answers_gets_no_more_of_them():
    host = Host()
    connection, transport = connected(host)
    connection.pause_writing()
    connection.data_received(b"GET /a HTTP/1.1\r\n\r\n" * 5)
    assert (host.asked, transport.paused) == ([], True)
    connection.resume_writing()
    assert (statuses(transport), transport.paused) == ([200] * 5, False)


class Streaming:
    def __init__(self):
        self.errors = []

    def ended(self, error):
        self.errors.append(error)


def test_what_fails_when_a_stream_has_begun_is_not_told_by_http():
    connection, transport = connected(Host(later=True))
    connection.data_received(b"GET /a HTTP/1.1\r\n\r\n")
    stream, error = Streaming(), Refusal(503, "the topic was dropped")
    connection.become(stream, b"101", 2000)
    connection.refuse(error)
    assert (stream.errors, transport.sent) == ([error], b"101")


def test_too_many_connections_are_told_so():
    _, transport = connected(Host(room=False))
    assert (statuses(transport), transport.closed) == ([503], True)


def test_the_old_protocol_gets_one_answer():
    connection, transport = connected(Host())
    connection.data_received(b"GET /a HTTP/1.0\r\n\r\n")
    assert (statuses(transport), transport.closed) == ([200], True)


def test_an_upgrade_that_is_no_websocket_is_passed_over():
    host = Host()
    connection, _ = connected(host)
    connection.data_received(
        b"GET /a HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\nGET /b HTTP/1.1\r\n\r\n"
    )
    assert [request.path for request in host.asked] == ["/a", "/b"]


def test_a_wrong_request_behind_a_good_one_is_answered_in_its_turn():
    host = Host(later=True)
    connection, transport = connected(host)
    connection.data_received(b"GET /a HTTP/1.1\r\n\r\nnonsense\r\n\r\n")
    assert transport.sent == b""
    connection.reply(200, b"")
    assert (statuses(transport), transport.closed) == ([200, 400], True)


PARTS = st.sampled_from(
    [
        b"GET /a HTTP/1.1\r\n", b"POST /b HTTP/1.1\r\n", b"Host: x\r\n", b"Content-Length: 5\r\n", b"\r\n",
        b"Transfer-Encoding: chunked\r\n", b"5\r\nabcde\r\n", b"0\r\n\r\n", b"hello",
        b"Connection: close\r\n",
        b"Upgrade: websocket\r\nConnection: Upgrade\r\n", b"Expect: 100-continue\r\n", b"\x00", b"\xff\xfe",
        b"GET /a?%ff HTTP/1.1\r\n\r\n", b"Content-Length: -1\r\n", b"Content-Length: 99999999999999\r\n",
    ]
)  # fmt: skip


@settings(max_examples=300)
@given(st.lists(PARTS | st.binary(max_size=30), max_size=12), st.integers(1, 40))
def test_any_bytes_are_answered_or_cut_off(parts, step):
    host = Host()
    connection, transport = connected(host)
    data = b"".join(parts)
    for at in range(0, len(data), step):
        if not transport.closed:
            connection.data_received(data[at : at + step])
    assert set(statuses(transport)) <= {100, 200, 400, 408, 413, 414, 431}
    for _ in range(200):
        host.pass_time(1)
    assert transport.closed  # nobody stays for ever
    connection.connection_lost(None)
    assert connection.wheel_at == -1


def test_tokens_do_not_stand_in_logs():
    request = Request("GET", b"/v1/events?key=a&token=abc.def&key=b", {}, keep_alive=True)
    assert request.shown() == "GET /v1/events?key=a&key=b&token=hidden"
