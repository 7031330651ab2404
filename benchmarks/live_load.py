"""The load on a server of live events, made by a process of its own with plain sockets and epoll.

What it measures is sent back through a pipe. It parses as little as it can: an event is counted by the bytes
that begin one.
"""

from __future__ import annotations

import json
import random
import selectors
import socket
import time
from contextlib import ExitStack
from multiprocessing.connection import Connection
from urllib.parse import quote

KEYS_EACH = 10
#: So many push at the same time, as the processes of a web server do.
_PUSHERS = 16
_EVENT = b'{"id":'
_DATA = {"text": "x" * 60, "n": 1}


def serve_load(pipe: Connection, port: int) -> None:
    """Do what comes through the pipe until it is told to end: (function's name, arguments) → result."""
    with ExitStack() as sockets:
        load = Load(port, sockets)
        while (asked := pipe.recv()) is not None:
            name, arguments = asked
            pipe.send(getattr(load, name)(*arguments))


class Load:
    """Clients of one server."""

    def __init__(self, port: int, sockets: ExitStack) -> None:
        self._port = port
        self._sockets = sockets
        self._listeners = selectors.EpollSelector()
        self._count = 0

    def listen(self, clients: int, keys: int) -> None:
        """Open WebSockets, each with ten keys chosen by chance from as many as there are clients."""
        chance = random.Random(1)
        for _ in range(clients):
            asked = "&".join(f"key=k{number}" for number in chance.sample(range(keys), KEYS_EACH))
            made = self._connect()
            made.sendall(
                f"GET /v1/events?{asked} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
                "Connection: Upgrade\r\n"
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
            )
            while b'"min"' not in made.recv(4096):
                pass
            made.setblocking(False)
            self._listeners.register(made, selectors.EVENT_READ)
        self._count = clients

    def push_to_listeners(self, events: int, keys: int, each: int) -> int:
        """Push events, `each` to a request, and hear them; how many were delivered."""
        chance = random.Random(2)
        chosen = [chance.randrange(keys) for _ in range(events)]
        expected = self._expected(chosen, keys)
        requests = [
            _post([{"key": f"k{number}", "data": _DATA} for number in chosen[first : first + each]])
            for first in range(0, events, each)
        ]
        pushers = [self._connect() for _ in range(_PUSHERS)]
        for pusher in pushers:
            self._listeners.register(pusher, selectors.EVENT_READ, "pusher")
        waiting = iter(requests)
        for pusher in pushers:
            pusher.sendall(next(waiting, b""))
        heard, deadline = 0, time.monotonic() + 120
        while heard < expected:
            assert time.monotonic() < deadline, f"{heard} of {expected}"
            for ready, _ in self._listeners.select(1):
                data = ready.fileobj.recv(262144)  # type: ignore[union-attr]
                if ready.data == "pusher":
                    ready.fileobj.sendall(next(waiting, b""))  # type: ignore[union-attr]
                else:
                    heard += data.count(_EVENT)
        for pusher in pushers:
            self._listeners.unregister(pusher)
        return heard

    def _expected(self, chosen: list[int], keys: int) -> int:
        chance = random.Random(1)
        listeners = [0] * keys
        for _ in range(self._count):
            for number in chance.sample(range(keys), KEYS_EACH):
                listeners[number] += 1
        return sum(listeners[number] for number in chosen)

    def poll(self, waiting: int, rounds: int) -> list[float]:
        """Long polls: with so many waiting, how long a push takes to the one it is for, in milliseconds."""
        cursor = self._cursor()
        for number in range(waiting):
            self._connect().sendall(_get(f"key=idle{number}&cursor={cursor}&timeout=300"))
        pusher, listener, times = self._connect(), self._connect(), []
        for _ in range(rounds):
            listener.sendall(_get(f"key=wanted&cursor={self._cursor()}&timeout=60"))
            time.sleep(0.002)
            began = time.monotonic()
            pusher.sendall(_post([{"key": "wanted", "data": _DATA}]))
            listener.recv(65536)
            times.append((time.monotonic() - began) * 1000)
            pusher.recv(65536)
        return times

    def push(self, requests: int, each: int, connections: int) -> float:
        """Push over several connections at once; events that became durable in a second."""
        body = _post([{"key": "nobody", "data": _DATA}] * each)
        made = [self._connect() for _ in range(connections)]
        poll = selectors.EpollSelector()
        depth = 8 if each == 1 else 1
        for connection in made:
            poll.register(connection, selectors.EVENT_READ)
        began, sent, answered = time.monotonic(), 0, 0
        for connection in made:
            connection.sendall(body * depth)
            sent += depth
        while answered < sent:
            for ready, _ in poll.select(1):
                found = ready.fileobj.recv(65536).count(b"HTTP/1.1 200")  # type: ignore[union-attr]
                answered += found
                more = min(found, max(requests - sent, 0))
                if more:
                    ready.fileobj.sendall(body * more)  # type: ignore[union-attr]
                    sent += more
        return answered * each / (time.monotonic() - began)

    def _cursor(self) -> str:
        with socket.create_connection(("127.0.0.1", self._port)) as made:
            made.sendall(_get("key=x"))
            return json.loads(made.recv(65536).partition(b"\r\n\r\n")[2])["next"]  # type: ignore[no-any-return]

    def _connect(self) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self._port))
        self._sockets.callback(made.close)
        return made


def _post(events: list[dict[str, object]]) -> bytes:
    body = json.dumps(events if len(events) > 1 else events[0])
    return (
        f"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
    )


def _get(query: str) -> bytes:
    return f"GET /v1/events?{quote(query, safe='=&')} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
