"""Conversations are spoilt at random and sent to a real server: it answers or hangs up, and stays itself."""

import base64
import json
import os
import random
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.kit.patience import PATIENCE_S
from tests.kit.server import CLOSE, PING, TEXT, BadFrame, Frames, frame
from tests.serve.kit import Served, own_bytes, served

MASK = b"mask"
HOST = b"Host: localhost\r\n"
UPGRADE = (
    b"GET /v1/events?key=a HTTP/1.1\r\n" + HOST + b"Upgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: " + base64.b64encode(b"0123456789abcdef") + b"\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
MESSAGES = [
    {"subscribe": ["a", ["chat", 1], {"prefix": ["chat"]}], "cursor": "1.1"},
    {"unsubscribe": ["a"]},
    {"token": "a.b.c"},
    {"ping": 1},
]
BODIES = [
    b'{"key": ["chat", 345], "data": {"a": [1, 2.5, null, "x"]}, "audience": ["me"]}',
    b'[{"key": "a"}, {"key": "b", "data": 1}]',
    b'{"key": "a"}\n{"key": "b"}\n',
]
QUERIES = [
    b"key=a&key=%5B%22chat%22%2C345%5D&prefix=b&cursor=1.5&timeout=0.01",
    b"key=a&rewind=3&limit=5&topic=events",
    b"key=a&since=10m",
]
TOKENS = [
    b"\r\n", b"\r\n\r\n", b"\x00", b"\xff", b"%00", b"%", b"[", b'"', b"{", b"\\u0000", b"\\ud800", b"-1",
    b"99999999999999999999", b"Content-Length: 7\r\n", b"Transfer-Encoding: chunked\r\n",
    b"Expect: 100-continue\r\n", b"HTTP/1.1", b"\x81\xfe\xff\xff", b"\x88\x80mask", b"\x00" * 200,
    b"&key=" * 50, b"e999", b"\xf0\x9f\x98\x80",
]  # fmt: skip
#: What may be answered: nothing that says that it was our fault.
STATUSES = {
    100,
    101,
    200,
    204,
    400,
    401,
    403,
    404,
    405,
    408,
    411,
    413,
    414,
    415,
    417,
    422,
    426,
    429,
    431,
    501,
    505,
}


def post(body: bytes, more: bytes = b"") -> bytes:
    return b"POST /v1/events HTTP/1.1\r\n%s%sContent-Length: %d\r\n\r\n%s" % (HOST, more, len(body), body)


def get(path: bytes, more: bytes = b"") -> bytes:
    return b"GET %s HTTP/1.1\r\n%s%s\r\n" % (path, HOST, more)


def spoilt(data: bytes, chance: random.Random) -> bytes:
    """Some bytes of it changed, gone, doubled, or others between them."""
    made = bytearray(data)
    for _ in range(chance.choice((0, 1, 1, 2, 3, 8))):
        at, size = chance.randrange(len(made) + 1), chance.randrange(1, 12)
        kind = chance.randrange(5)
        if kind == 0 and at < len(made):
            made[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del made[at : at + size]
        elif kind == 2:
            made[at:at] = made[at : at + size]
        elif kind == 3:
            made[at:at] = chance.choice(TOKENS)
        else:
            del made[at:]
    return bytes(made)


def conversation(chance: random.Random) -> bytes:
    """Requests and frames of which one layer or the other is spoilt; the outer ones are often right."""
    body, query = chance.choice(BODIES), chance.choice(QUERIES)
    said = json.dumps(chance.choice(MESSAGES)).encode()
    framed = b"".join(
        frame(chance.choice((TEXT, TEXT, PING, CLOSE)), spoilt(said, chance)[:125], MASK) for _ in range(3)
    )
    choices = (
        lambda: spoilt(post(body), chance),
        lambda: post(spoilt(body, chance)),
        lambda: post(body, spoilt(b"Idempotency-Key: abc\r\nOrigin: http://localhost\r\n", chance)),
        lambda: get(b"/v1/events?" + spoilt(query, chance).replace(b" ", b"+").replace(b"\r\n", b"")),
        lambda: spoilt(get(b"/v1/events?" + query, b"Accept: text/event-stream\r\n"), chance),
        lambda: spoilt(get(b"/v1/events/presence?key=a"), chance),
        lambda: spoilt(UPGRADE, chance) + framed,
        lambda: UPGRADE + framed,
        lambda: UPGRADE + spoilt(framed, chance),
        lambda: UPGRADE + chance.randbytes(chance.randrange(1, 60)),
        lambda: spoilt(post(body) + get(b"/v1/events?" + query) + post(body), chance),
        lambda: chance.randbytes(chance.randrange(1, 200)),
    )
    return chance.choice(choices)()


def send(server: Served, data: bytes, chance: random.Random) -> socket.socket:
    connection = server.connect()
    cut = chance.randrange(len(data) + 1) if chance.random() < 0.3 else 0
    with suppress(OSError):  # it may have hung up already
        for part in (data[:cut], data[cut:]):
            connection.sendall(part)
        if chance.random() < 0.5:
            connection.shutdown(socket.SHUT_WR)
    return connection


def check_answer(data: bytes) -> None:
    """What came back is HTTP, without a failure of ours, or frames behind an upgrade."""
    if not data:
        return
    assert data.startswith(b"HTTP/1.1 "), data[:100]
    status = int(data[9:12])
    assert status in STATUSES, data[:300]
    if status == 101:
        frames = Frames(from_client=False, limit=2**24)
        for opcode, payload in frames.feed(data.partition(b"\r\n\r\n")[2]):
            if opcode == TEXT:
                json.loads(payload)


def answered(connection: socket.socket, chance: random.Random) -> None:
    """Look at what has come, then go, politely or not."""
    connection.settimeout(0.02)
    data = b""
    with suppress(TimeoutError, ConnectionError):
        while more := connection.recv(65536):
            data += more
    check_answer(data)
    if chance.random() < 0.3:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    connection.close()


def descriptors(pid: int) -> list[str]:
    """What a process has open."""
    found = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/{pid}/fd/{name}"))
    return found


def sockets(pid: int) -> int:
    return sum(each.startswith("socket:") for each in descriptors(pid))


def storm(server: Served, seed: int, cases: int) -> None:
    chance = random.Random(seed)
    for _ in range(0, cases, 20):
        opened = [send(server, conversation(chance), chance) for _ in range(20)]
        for connection in opened:
            answered(connection, chance)


def settle(server: Served, pid: int, most: int) -> None:
    """Wait until the server has let go of everybody."""
    deadline = time.monotonic() + PATIENCE_S
    while sockets(pid) > most:
        assert time.monotonic() < deadline, f"{sockets(pid)} sockets, {most} before"
        time.sleep(0.05)
    assert server.ask("GET", "/health")[0] == 200


def fuzz(server: Served, cases: int, leak_bytes: int) -> None:
    """As many again after a first round cost no descriptor and hardly any memory; the worker is the same."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    server.push("a", 1)
    (worker,) = server.workers()
    before = sockets(worker)
    storm(server, seed, cases)
    settle(server, worker, before)
    cost, files = own_bytes(worker), descriptors(worker)
    storm(server, seed + 1, cases)
    settle(server, worker, before)
    assert own_bytes(worker) - cost < leak_bytes
    assert len(descriptors(worker)) <= len(files) + 4, (files, descriptors(worker))  # a thread may come late
    assert server.workers() == [worker], server.said()
    assert server.push("a", 2)["first"] > 1


@pytest.fixture
def own_server(tmp_path) -> Iterator[Served]:
    with served(tmp_path / "data", "--workers", "1") as server:
        yield server


def test_spoilt_conversations_are_answered_or_cut_off_and_cost_nothing(own_server):
    fuzz(own_server, 400, 8_000_000)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_very_many_spoilt_conversations(own_server):
    fuzz(own_server, 20_000, 8_000_000)


@pytest.mark.slow
def test_who_sends_a_request_drop_by_drop_is_cut_off(own_server):
    """Slowloris, with the real clock: 10 s for a request, whatever comes meanwhile."""
    slow = [own_server.connect() for _ in range(50)]
    (worker,) = own_server.workers()
    began = time.monotonic()
    for connection in slow:
        connection.sendall(b"GET /v1/events?key=a HTTP/1.1\r\n")
    left = list(slow)
    while left:
        assert time.monotonic() < began + 60
        time.sleep(0.5)
        for connection in list(left):
            try:
                connection.sendall(b"X: y\r\n")
            except ConnectionError:
                left.remove(connection)
                connection.close()
    assert own_server.workers() == [worker]
    assert own_server.ask("GET", "/health")[0] == 200


def test_canary_a_failure_of_ours_would_be_seen():
    check_answer(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    for wrong in (b"HTTP/1.1 500 Internal Server Error\r\n\r\n", b"nonsense"):
        with pytest.raises(AssertionError):
            check_answer(wrong)
    with pytest.raises(BadFrame):
        check_answer(b"HTTP/1.1 101 Switching Protocols\r\n\r\n\xff\xff\xff\xff")
