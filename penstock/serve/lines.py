"""A connection without a socket: what an ASGI server hands over becomes HTTP/1.1 for `Connection`, and back.

    scope, receive() ──request_head──▶ Connection ──Line──▶ next() ──split_head──▶ send()

So a mounted app parses, limits and answers as the public port does, because it is the same code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from penstock.serve.replies import Refusal

#: They are about the connection that the ASGI server has; ours has its own.
_HOP_BY_HOP = frozenset(
    (b"connection", b"expect", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade")
)
_UPGRADE = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)


class Line(asyncio.Transport):
    """Bytes on their way out: written by a `Connection`, taken by whoever calls `next`.

    As with a socket, who writes is told when too much waits, and when there is room again.
    """

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._protocol = protocol
        self._parts: list[bytes] = []
        self._size = 0
        self._high = 0
        self._is_full = self._is_closing = False
        self._woken = asyncio.Event()

    async def next(self) -> bytes:
        """What was written since; nothing when the line is closed. Counts as sent with the call after it."""
        if not self._parts:
            self._size = 0
            if self._is_full:
                self._is_full = False
                self._protocol.resume_writing()
        while not self._parts and not self._is_closing:
            self._woken.clear()
            await self._woken.wait()
        taken, self._parts = b"".join(self._parts), []
        self._size = len(taken)
        return taken

    # What a `Connection` calls.

    def write(self, data: Any) -> None:
        if self._is_closing or not data:
            return
        self._parts.append(bytes(data))
        self._size += len(data)
        self._woken.set()
        if self._size > self._high and not self._is_full:
            self._is_full = True
            self._protocol.pause_writing()

    def close(self) -> None:
        self._is_closing = True
        self._woken.set()

    def abort(self) -> None:
        self._parts = []
        self.close()

    def is_closing(self) -> bool:
        return self._is_closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high or 0

    def pause_reading(self) -> None:
        """There is one request on a line: nothing comes behind it."""

    def resume_reading(self) -> None:
        """As above."""


def request_head(scope: Mapping[str, Any], *, is_websocket: bool) -> tuple[bytes, bool]:
    """A request as it would come by a socket; and whether its body, if any, has to be sent in chunks."""
    path, root = scope["path"], scope.get("root_path", "")
    if root and path.startswith(root):
        path = path[len(root) :]
    target = quote(path or "/", safe="/%:@!$&'()*+,;=~-._").encode()
    if scope.get("query_string"):
        target += b"?" + scope["query_string"]
    method = "GET" if is_websocket else scope["method"]
    lines = [b"%s %s HTTP/1.1\r\n" % (method.encode("ascii"), target)]
    has_length = False
    for name, value in scope["headers"]:
        lowered = name.lower()
        if lowered in _HOP_BY_HOP or lowered.startswith(b"sec-websocket-"):
            continue
        has_length |= lowered == b"content-length"
        lines.append(_line(name, value))
    in_chunks = not has_length and method in ("POST", "PUT", "PATCH")
    if is_websocket:
        lines.append(_UPGRADE)
    else:
        lines.append(b"Connection: close\r\n")
    if in_chunks:
        lines.append(b"Transfer-Encoding: chunked\r\n")
    return b"".join([*lines, b"\r\n"]), in_chunks


def chunk(data: bytes, *, is_last: bool) -> bytes:
    """A piece of a body whose length was not said."""
    return (b"%x\r\n%s\r\n" % (len(data), data) if data else b"") + (b"0\r\n\r\n" if is_last else b"")


def split_head(data: bytes) -> tuple[int, list[tuple[bytes, bytes]], bytes] | None:
    """An answer's status, its headers, and what follows; None while its head is not whole."""
    head, found, rest = data.partition(b"\r\n\r\n")
    if not found:
        return None
    first, *lines = head.split(b"\r\n")
    return int(first.split(b" ", 2)[1]), list(_headers(lines)), rest


def _headers(lines: Iterable[bytes]) -> Iterable[tuple[bytes, bytes]]:
    for line in lines:
        name, _, value = line.partition(b": ")
        if name.lower() not in _HOP_BY_HOP:
            yield name.lower(), value


def _line(name: bytes, value: bytes) -> bytes:
    if any(mark in text for text in (name, value) for mark in (b"\r", b"\n", b"\0")):
        raise Refusal(400, "a header holds what ends a line")
    return b"%s: %s\r\n" % (name, value)
