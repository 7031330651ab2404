"""A real server as a subprocess, and clients that speak to it by plain sockets."""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.kit.patience import PATIENCE_S
from tests.kit.server import CLOSE, TEXT, Frames, frame

ROOT = Path(__file__).parents[2]
SECRET = "a secret that is long enough for a hash of 256 bits"


class Served:
    """`penstock serve` on a port of its own."""

    def __init__(self, folder: Path, *options: str, port: int = 0) -> None:
        self.folder = folder
        self.errors = (folder.parent / f"{folder.name}.stderr").open("ab+")
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", *self.command(port, options)], cwd=ROOT, stdout=subprocess.PIPE,
            stderr=self.errors, text=True, start_new_session=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"at https?://127\.0\.0\.1:(\d+)", line)
        assert found, f"{line!r}: {self.said()}"
        self.port = int(found[1])

    def command(self, port: int, options: tuple[str, ...]) -> list[str]:
        return ["-m", "penstock", "-s", str(self.folder), "serve", "--port", str(port), *options]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def said(self) -> str:
        self.errors.seek(0)
        return self.errors.read().decode()

    def workers(self) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in children.split()]

    def kill(self) -> None:
        """kill -9 of all of it."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)

    def end(self) -> int:
        """SIGTERM, as an operator does."""
        self.process.terminate()
        return self.process.wait(30)

    def close(self) -> None:
        self.kill()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.errors.close()

    def connect(self, receive_bytes: int | None = None) -> socket.socket:
        made = socket.socket()
        if receive_bytes is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        made.settimeout(30)
        made.connect(("127.0.0.1", self.port))
        return made

    def ask(
        self, method: str, path: str, body: bytes | str | None = None, **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        """One request: its status, its JSON, its headers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            content = answer.read()
            return (
                answer.status,
                json.loads(content or b"null"),
                {k.lower(): v for k, v in answer.headers.items()},
            )
        finally:
            connection.close()

    def push(self, key: Any, data: Any = None, **more: Any) -> dict[str, Any]:
        status, answer, _ = self.ask("POST", "/v1/events", json.dumps({"key": key, "data": data, **more}))
        assert status == 200, answer
        return answer

    def push_many(self, *events: tuple[Any, Any]) -> dict[str, Any]:
        body = json.dumps([{"key": key, "data": data} for key, data in events])
        status, answer, _ = self.ask("POST", "/v1/events", body)
        assert status == 200, answer
        return answer

    def now(self, **query: Any) -> str:
        """The cursor of this moment."""
        return self.ask("GET", f"/v1/events?key=x&{urlencode(query)}")[1]["next"]


class Mounted(Served):
    """`penstock.asgi` within an app of one's own, on uvicorn; its option is JSON."""

    def command(self, port: int, options: tuple[str, ...]) -> list[str]:
        return [str(Path(__file__).with_name("mounted.py")), str(self.folder), str(port), *options]


@contextmanager
def served(folder: Path, *options: str, port: int = 0, kind: type[Served] = Served) -> Iterator[Served]:
    server = kind(folder, *options, port=port)
    try:
        yield server
        assert "Traceback" not in server.said(), server.said()
    finally:
        server.close()


def query(keys: list[Any], cursor: str | None = None, *, prefixes: list[Any] = (), **more: Any) -> str:
    pairs = [("key", spoken(key)) for key in keys] + [("prefix", spoken(prefix)) for prefix in prefixes]
    pairs += [("cursor", cursor)] if cursor is not None else []
    return urlencode([*pairs, *((name, str(value)) for name, value in more.items())])


def spoken(key: Any) -> str:
    return key if isinstance(key, str) else json.dumps(key, separators=(",", ":"))


class Listener:
    """What all ways to listen have in common: `hear` waits for something said, `until` for events."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.gaps: list[dict[str, Any]] = []
        self.cursor: str | None = None

    def hear(self, timeout: float = PATIENCE_S) -> bool:
        """Wait for the next thing said; False when there was none."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def until(self, count: int, timeout: float = PATIENCE_S) -> list[dict[str, Any]]:
        """So many events, at least."""
        deadline = time.monotonic() + timeout
        while len(self.events) < count:
            assert time.monotonic() < deadline, f"{len(self.events)} of {count} events"
            self.hear(max(deadline - time.monotonic(), 0.01))
        return self.events

    def until_gap(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_S
        while not self.gaps:
            assert time.monotonic() < deadline
            self.hear()
        return self.gaps[0]

    def _take(self, told: dict[str, Any]) -> None:
        self.events += told.get("events", [])
        self.cursor = told.get("next", self.cursor)
        if told.get("gap"):
            self.gaps.append(told["gap"])

    @property
    def ids(self) -> list[int]:
        return [event["id"] for event in self.events]

    @property
    def data(self) -> list[Any]:
        return [event["data"] for event in self.events]


class Polling(Listener):
    """Long poll after long poll, on one connection."""

    def __init__(self, server: Served, keys: list[Any], cursor: str | None = None, **more: Any) -> None:
        super().__init__()
        self._keys, self._more = keys, more
        self.cursor = cursor
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
        if cursor is None:
            self.hear()
            self._more = {name: value for name, value in more.items() if name == "prefixes"}

    def ask(self, timeout: float) -> None:
        """Send the question; `hear` also takes the answer."""
        asked = query(self._keys, self.cursor, timeout=timeout, **self._more)
        self._connection.request("GET", f"/v1/events?{asked}")

    def hear(self, timeout: float = PATIENCE_S) -> bool:
        try:
            self.ask(timeout)
            answer = self._connection.getresponse()
        except (
            ConnectionError
        ):  # it was idle for so long that the server let it go: ask again, as browsers do
            self._connection.close()
            self.ask(timeout)
            answer = self._connection.getresponse()
        told = json.loads(answer.read())
        assert answer.status == 200, told
        self._take(told)
        return bool(told["events"] or told.get("gap"))

    def close(self) -> None:
        self._connection.close()


class Sse(Listener):
    """Server-sent events, parsed as browsers do."""

    def __init__(self, server: Served, keys: list[Any], cursor: str | None = None, **more: Any) -> None:
        super().__init__()
        self._socket = server.connect()
        last = more.pop("last_event_id", None)
        asked = query(keys, cursor, **more)
        extra = f"Last-Event-ID: {last}\r\n" if last else ""
        self._socket.sendall(
            f"GET /v1/events?{asked} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n"
            f"{extra}\r\n".encode()
        )
        self._data = self._chunks = b""
        self._is_chunked = False
        self.pings = 0
        while b"\r\n\r\n" not in self._data:
            self._receive()
        self.head, _, self._data = self._data.partition(b"\r\n\r\n")
        assert self.head.startswith(b"HTTP/1.1 200"), self.head + self._data
        if b"transfer-encoding: chunked" in self.head.lower():
            self._is_chunked, self._chunks, self._data = True, self._data, b""
            self._join_chunks()
        while self.cursor is None:
            self.hear()

    def hear(self, timeout: float = PATIENCE_S) -> bool:
        self._socket.settimeout(max(timeout, 0.001))
        try:
            while b"\n\n" not in self._data:
                self._receive()
        except TimeoutError:
            return False
        block, _, self._data = self._data.partition(b"\n\n")
        fields = dict(line.split(": ", 1) for line in block.decode().splitlines())
        told = json.loads(fields.get("data", "{}"))
        kind = fields.get("event", "message")
        if kind == "ping":
            assert "id" not in fields
            self.pings += 1
        elif kind == "message" and told:
            self._take({"events": [told]})
        elif kind == "gap":
            self._take(told)
        self.cursor = fields.get("id", self.cursor)
        return bool(told)

    def _receive(self) -> None:
        data = self._socket.recv(65536)
        if not data:
            raise ConnectionResetError("the server closed the stream")
        if self._is_chunked:
            self._chunks += data
            self._join_chunks()
        else:
            self._data += data

    def _join_chunks(self) -> None:
        """As uvicorn sends a body whose end it does not know."""
        while True:
            size, found, rest = self._chunks.partition(b"\r\n")
            if not found or len(rest) < int(size, 16) + 2:
                return
            if not int(size, 16):
                raise ConnectionResetError("the server ended the stream")
            self._data += rest[: int(size, 16)]
            self._chunks = rest[int(size, 16) + 2 :]

    def close(self) -> None:
        self._socket.close()


class Ws(Listener):
    """A WebSocket."""

    def __init__(
        self, server: Served, keys: list[Any], cursor: str | None = None, *, receive_bytes: int | None = None,
        headers: str = "", waits: bool = True, **more: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        self._socket = server.connect(receive_bytes)
        self._frames = Frames(from_client=False, limit=2**24)
        self.errors: list[dict[str, Any]] = []
        self.closed: bytes | None = None
        self.pings = 0
        self.refs: list[int] = []
        key = base64.b64encode(os.urandom(16)).decode()
        self._socket.sendall(
            f"GET /v1/events?{query(keys, cursor, **more)} HTTP/1.1\r\nHost: localhost\r\n"
            f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
            f"Sec-WebSocket-Version: 13\r\n{headers}\r\n".encode()
        )
        data = b""
        while b"\r\n\r\n" not in data:
            more_data = self._socket.recv(1)  # so that what follows stays where it is
            assert more_data, data
            data += more_data
        self.head = data
        if not data.startswith(b"HTTP/1.1 101"):
            self.close()
            raise AssertionError(data)
        if waits:
            while self.cursor is None:
                self.hear()

    def hear(self, timeout: float = PATIENCE_S) -> bool:
        self._socket.settimeout(max(timeout, 0.001))
        try:
            data = self._socket.recv(65536)
        except TimeoutError:
            return False
        if not data and self.closed is None:
            raise ConnectionResetError("the server closed the connection")
        for opcode, payload in self._frames.feed(data):
            if opcode == CLOSE:
                self.closed = payload
            if opcode == TEXT:
                told = json.loads(payload)
                self.pings += bool(told.get("ping"))
                self.refs += [told["ref"]] if "ref" in told else []
                if "error" in told:
                    self.errors.append(told["error"])
                else:
                    self._take(told)
        return True

    def say(self, **message: Any) -> None:
        self._socket.sendall(frame(TEXT, json.dumps(message).encode(), b"mask"))

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def until_closed(self) -> int:
        deadline = time.monotonic() + PATIENCE_S
        while self.closed is None:
            assert time.monotonic() < deadline
            self.hear()
        return int.from_bytes(self.closed[:2], "big")

    def close(self) -> None:
        self._socket.close()


def read_all(connection: socket.socket, timeout: float = PATIENCE_S) -> bytes:
    """All that comes until the server closes."""
    connection.settimeout(timeout)
    data = b""
    with suppress(ConnectionResetError):
        while more := connection.recv(65536):
            data += more
    return data


def own_bytes(pid: int) -> int:
    """Memory that is the process's own; the log's mapped pages are the system's cache, and go when needed."""
    found = re.search(r"Anonymous: +(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text())
    assert found is not None
    return int(found[1]) * 1024


def is_readable(connection: socket.socket, timeout: float) -> bool:
    return bool(select.select([connection], [], [], timeout)[0])


def token(**claims: Any) -> str:
    import jwt

    return jwt.encode({"exp": time.time() + 600, **claims}, SECRET, algorithm="HS256")
