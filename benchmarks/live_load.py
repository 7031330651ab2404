"""The load on a server of live events, made by a process of its own with plain sockets and epoll.

What it measures is sent back through a pipe. It parses as little as it can: see `live_dialects`.
"""

from __future__ import annotations

import os
import random
import resource
import selectors
import socket
import time
from contextlib import ExitStack
from multiprocessing.connection import Connection

from benchmarks.live_dialects import DIALECTS, MARK

KEYS_EACH = 10
#: So many push at the same time, as the processes of a web server do.
_PUSHERS = 16
#: Requests that a connection has under way, when each is one event.
_DEPTH = 8
#: Clients that connect together: one at a time would wait for a change of processes each.
_AT_ONCE = 500
_SERVER = "127.0.0.1"
#: Of Linux; Python does not name it before 3.12.
_IP_BIND_ADDRESS_NO_PORT = 24
_PUSHED = b"HTTP/1.1 2"
_WAIT_S = 120


def serve_load(pipe: Connection, dialect: str, port: int, own_address: str) -> None:
    """Do what comes through the pipe until it is told to end: (function's name, arguments) → result."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with ExitStack() as sockets:
        load = Load(dialect, port, own_address, sockets)
        while (asked := pipe.recv()) is not None:
            name, arguments = asked
            pipe.send(getattr(load, name)(*arguments))


class Load:
    """Clients of one server; they come from an address of their own, since ports are few."""

    def __init__(self, dialect: str, port: int, own_address: str, sockets: ExitStack) -> None:
        self._speech = DIALECTS[dialect]
        self._port = port
        self._own_address = own_address
        self._sockets = sockets
        self._listeners = selectors.EpollSelector()
        sockets.callback(self._listeners.close)
        self._count = 0
        #: Listeners whose last byte may be the first half of a mark.
        self._halved: set[int] = set()

    def listen(self, clients: int, keys: int, receive_bytes: int = 0) -> None:
        """Open WebSockets, each with ten keys chosen by chance from as many as there are."""
        chance = random.Random(1)
        for first in range(0, clients, _AT_ONCE):
            made = [self._connect(receive_bytes) for _ in range(min(_AT_ONCE, clients - first))]
            for each in made:
                chosen = [f"k{number}" for number in chance.sample(range(keys), KEYS_EACH)]
                each.sendall(self._speech.open(chosen))
            for each in made:
                said = b""
                while not said.endswith(self._speech.opened):
                    said += each.recv(4096)
                self._listeners.register(each, selectors.EVENT_READ)
        self._count = clients

    def push_to_listeners(self, events: int, keys: int, each: int) -> int:
        """Push events, `each` to a request, and hear them; how many were delivered."""
        chosen = self._chosen(events, keys)
        waiting = iter([self._speech.push(chosen[first : first + each]) for first in range(0, events, each)])
        pushers = [self._connect() for _ in range(_PUSHERS)]
        for pusher in pushers:
            self._listeners.register(pusher, selectors.EVENT_READ, "pusher")
            pusher.sendall(next(waiting, b""))
        expected, heard, deadline = self._expected(chosen, keys), 0, time.monotonic() + _WAIT_S
        while heard < expected:
            assert time.monotonic() < deadline, f"{heard} of {expected}"
            for ready, _ in self._listeners.select(1):
                data = os.read(ready.fd, 262144)
                if ready.data is None:
                    heard += self._counted(ready.fd, data)
                else:
                    assert data.startswith(_PUSHED), data
                    ready.fileobj.sendall(next(waiting, b""))  # type: ignore[union-attr]
        for pusher in pushers:
            self._listeners.unregister(pusher)
        return heard

    def push_unheard(self, events: int, keys: int, each: int) -> int:
        """Push events while nobody reads; how many are to be heard."""
        chosen = self._chosen(events, keys)
        pusher = self._connect()
        for first in range(0, events, each):
            pusher.sendall(self._speech.push(chosen[first : first + each]))
            assert pusher.recv(65536).startswith(_PUSHED)
        return self._expected(chosen, keys)

    def hear(self, expected: int) -> int:
        """Read until so many events were heard."""
        heard, deadline = 0, time.monotonic() + _WAIT_S
        while heard < expected and time.monotonic() < deadline:
            for ready, _ in self._listeners.select(1):
                heard += self._counted(ready.fd, os.read(ready.fd, 262144))
        return heard

    def idle(self, for_s: float) -> int:
        """Read what comes in that time; how many bytes."""
        deadline, read = time.monotonic() + for_s, 0
        while (left := deadline - time.monotonic()) > 0:
            for ready, _ in self._listeners.select(left):
                read += len(os.read(ready.fd, 65536))
        return read

    def wait_by_poll(self, waiting: int) -> None:
        """Have so many long polls wait for keys of their own."""
        place = self._place("idle")
        for number in range(waiting):
            self._connect().sendall(self._speech.poll(f"idle{number}", place))

    def poll(self, rounds: int) -> list[float]:
        """How long a push takes to the long poll it is for, in milliseconds."""
        pusher, listener, times = self._connect(), self._connect(), []
        place = self._place("wanted")
        for _ in range(rounds):
            listener.sendall(self._speech.poll("wanted", place))
            time.sleep(0.002)
            began = time.monotonic()
            pusher.sendall(self._speech.push(["wanted"]))
            answer = listener.recv(65536)
            times.append((time.monotonic() - began) * 1000)
            place = self._speech.place(answer)
            pusher.recv(65536)
        return times

    def push(self, requests: int, each: int, connections: int) -> float:
        """Push over several connections at once; events that became durable in a second."""
        request = self._speech.push(["nobody"] * each)
        depth = _DEPTH if each == 1 else 1
        with selectors.EpollSelector() as poll:
            for made in [self._connect() for _ in range(connections)]:
                poll.register(made, selectors.EVENT_READ)
                made.sendall(request * depth)
            began, sent, answered = time.monotonic(), depth * connections, 0
            while answered < sent:
                for ready, _ in poll.select(1):
                    found = os.read(ready.fd, 65536).count(_PUSHED)
                    answered += found
                    more = min(found, max(requests - sent, 0))
                    ready.fileobj.sendall(request * more)  # type: ignore[union-attr]
                    sent += more
        return answered * each / (time.monotonic() - began)

    def _place(self, key: str) -> str:
        """Where a long poll begins, taken from the answer to one that was told of an event."""
        with self._connect() as listener, self._connect() as pusher:
            pusher.sendall(self._speech.push([key]))
            pusher.recv(65536)
            listener.sendall(self._speech.poll(key, ""))
            return self._speech.place(listener.recv(65536))

    def _counted(self, fd: int, data: bytes) -> int:
        """How many events, also when one was cut in the middle of its mark."""
        assert data, "the server closed a connection"
        count = data.count(MARK) + (fd in self._halved and data[:1] == MARK[:1])
        if data[-1:] == MARK[:1] and data[-2:] != MARK:
            self._halved.add(fd)
        else:
            self._halved.discard(fd)
        return count

    def _chosen(self, events: int, keys: int) -> list[str]:
        chance = random.Random(2)
        return [f"k{chance.randrange(keys)}" for _ in range(events)]

    def _expected(self, chosen: list[str], keys: int) -> int:
        chance = random.Random(1)
        listeners = dict.fromkeys((f"k{number}" for number in range(keys)), 0)
        for _ in range(self._count):
            for number in chance.sample(range(keys), KEYS_EACH):
                listeners[f"k{number}"] += 1
        return sum(listeners[key] for key in chosen)

    def _connect(self, receive_bytes: int = 0) -> socket.socket:
        made = self._sockets.enter_context(socket.socket())
        if receive_bytes:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        made.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)  # or each would look for a free port
        made.bind((self._own_address, 0))
        made.connect((_SERVER, self._port))
        return made
