"""How servers of live events are spoken to: the same clients, keys and data for each of them.

Each event has a mark that stands nowhere else in what a server says, so that clients count events without
parsing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Protocol

#: Not a single byte: the length of a WebSocket frame may be any.
MARK = b"~~"
_DATA = {"text": MARK.decode() + "x" * 60, "n": 1}


class Dialect(Protocol):
    """Requests as bytes."""

    #: Ends what a server says first on a WebSocket.
    opened: bytes

    def open(self, keys: Sequence[str]) -> bytes:
        """A WebSocket that hears these keys from now on."""

    def push(self, keys: Sequence[str]) -> bytes:
        """An event under each of these keys, in one request."""

    def poll(self, key: str, place: str) -> bytes:
        """A long poll, from a place that an answer gave."""

    def place(self, answer: bytes) -> str:
        """Where a long poll's answer says that the next one begins."""


class Penstock:
    """Our own wire."""

    opened = b"}"

    def open(self, keys: Sequence[str]) -> bytes:
        return _get(f"/v1/events?{'&'.join(f'key={key}' for key in keys)}", *_UPGRADE)

    def push(self, keys: Sequence[str]) -> bytes:
        events = [{"key": key, "data": _DATA} for key in keys]
        return _post("/v1/events", json.dumps(events if len(events) > 1 else events[0]))

    def poll(self, key: str, place: str) -> bytes:
        return _get(f"/v1/events?key={key}&timeout=300{place}")

    def place(self, answer: bytes) -> str:
        return "&cursor=" + _found(rb'"next":"([^"]+)', answer)


class Nchan:
    """nchan's, as its peer is set up; it pushes one event at a time."""

    opened = b"\r\n\r\n"

    def open(self, keys: Sequence[str]) -> bytes:
        return _get(f"/sub?ids={','.join(keys)}", *_UPGRADE)

    def push(self, keys: Sequence[str]) -> bytes:
        (key,) = keys
        return _post(f"/pub?id={key}", json.dumps(_DATA))

    def poll(self, key: str, place: str) -> bytes:
        return _get(f"/poll?id={key}", *filter(None, place.split("\n")))

    def place(self, answer: bytes) -> str:
        since, tag = _found(rb"Last-Modified: (.+)\r\n", answer), _found(rb"Etag: (.+)\r\n", answer)
        return f"If-Modified-Since: {since}\nIf-None-Match: {tag}"


DIALECTS: dict[str, Dialect] = {"penstock": Penstock(), "nchan": Nchan()}

_UPGRADE = (
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version: 13",
)


def _get(target: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {target} HTTP/1.1", "Host: localhost", *headers, "\r\n"]).encode()


def _post(target: str, body: str) -> bytes:
    head = f"POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    return f"{head}\r\n{body}".encode()


def _found(pattern: bytes, answer: bytes) -> str:
    found = re.search(pattern, answer)
    assert found is not None, answer
    return found[1].decode()
