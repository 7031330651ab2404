"""A WebSocket to a server, blocking: text comes in, pings are answered."""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import ssl
import time
from collections import deque
from urllib.parse import SplitResult

from penstock.errors import Unavailable
from penstock.websocket_frames import (
    CLOSE,
    NORMAL,
    PING,
    PONG,
    TEXT,
    BadFrame,
    Frames,
    accept_token,
    close_frame,
    frame,
)

_CONNECT_S = 10.0
_HEAD_BYTES_MOST = 65536
#: More than a server sends at once.
_MESSAGE_BYTES_MOST = 16 * 2**20


class WebSocket:
    """One connection."""

    class HandshakeRefused(Exception):
        """The server answered otherwise."""

        def __init__(self, status: int, body: bytes) -> None:
            super().__init__(status)
            self.status = status
            self.body = body

    def __init__(self, parts: SplitResult, path: str, headers: dict[str, str]) -> None:
        is_safe = parts.scheme in ("https", "wss")
        address = (parts.hostname or "", parts.port or (443 if is_safe else 80))
        self._frames = Frames(from_client=False, limit=_MESSAGE_BYTES_MOST)
        self._came: deque[bytes] = deque()
        try:
            self._socket = socket.create_connection(address, _CONNECT_S)
            try:
                if is_safe:
                    self._socket = ssl.create_default_context().wrap_socket(
                        self._socket, server_hostname=address[0]
                    )
                self._shake_hands(parts.netloc.rpartition("@")[2], path, headers)
            except BaseException:
                self._socket.close()
                raise
        except OSError as error:
            raise Unavailable(f"{parts.hostname} cannot be reached: {error}") from error

    def receive(self, timeout: float) -> bytes | None:
        """The next text; None when none came in time. Raises `Unavailable` when the connection has ended."""
        deadline = time.monotonic() + timeout
        while not self._came:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            try:
                self._socket.settimeout(left)
                data = self._socket.recv(65536)
            except TimeoutError:
                return None
            except OSError as error:
                raise Unavailable(f"the connection broke: {error}") from error
            if not data:
                raise Unavailable("the server closed the connection")
            self._take(data)
        return self._came.popleft()

    def send(self, opcode: int, payload: bytes) -> None:
        """Send one frame."""
        self._send(frame(opcode, payload, os.urandom(4)))

    def close(self) -> None:
        """Say goodbye and close the connection."""
        with contextlib.suppress(OSError):
            self._socket.settimeout(1.0)
            self._socket.sendall(close_frame(NORMAL, mask=os.urandom(4)))
        self._socket.close()

    def _send(self, data: bytes) -> None:
        try:
            self._socket.settimeout(_CONNECT_S)
            self._socket.sendall(data)
        except OSError as error:
            raise Unavailable(f"the connection broke: {error}") from error

    def _take(self, data: bytes) -> None:
        try:
            for opcode, payload in self._frames.feed(data):
                if opcode == TEXT:
                    self._came.append(payload)
                elif opcode == PING:
                    self.send(PONG, payload)
                elif opcode == CLOSE and not self._came:
                    raise Unavailable("the server closed the connection")
        except BadFrame as bad:
            raise Unavailable(f"the server sent what is no WebSocket: {bad}") from bad

    def _shake_hands(self, host: str, path: str, headers: dict[str, str]) -> None:
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            f"GET {path} HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]  # fmt: skip
        self._send("\r\n".join([*lines, "", ""]).encode())
        head, rest = self._head()
        status = int(head.split(b" ", 2)[1])
        if status != 101:
            raise self.HandshakeRefused(status, self._rest_of(rest))
        if accept_token(key).encode() not in head:
            raise Unavailable("what answered is no WebSocket server")
        if rest:
            self._take(rest)

    def _head(self) -> tuple[bytes, bytes]:
        data = b""
        while b"\r\n\r\n" not in data:
            more = self._socket.recv(4096)
            if not more or len(data) > _HEAD_BYTES_MOST:
                raise Unavailable("the server closed the connection")
            data += more
        head, _, rest = data.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 "):
            raise Unavailable("what answered is no HTTP server")
        return head, rest

    def _rest_of(self, body: bytes) -> bytes:
        """The body of a refusal; the server keeps the connection, so there is no end to wait for."""
        with contextlib.suppress(TimeoutError):
            self._socket.settimeout(0.2)
            while len(body) < _HEAD_BYTES_MOST and (more := self._socket.recv(4096)):
                body += more
        return body
