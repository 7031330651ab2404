"""Heads of requests that came before: the same bytes need not be parsed again.

A client that pushes sends the same head with every push, but for the length of its body. What the parser made
of such a head is kept, for all connections of the process: some hundred heads, each short.

Only what can be read in one way is kept: a POST whose lines all end in CRLF and whose body is as long as its
head says; and it is taken only between two requests, when all of the body is there. Anything else goes to
the parser.
"""

from __future__ import annotations

from functools import lru_cache

from penstock.serve.replies import Request

_END = b"\r\n\r\n"
_HEADS_MOST = 256
_HEAD_BYTES_MOST = 2048

#: Head → the first request that had it, and how long a body it announces.
_known: dict[bytes, tuple[Request, int]] = {}


def recalled(data: bytes) -> tuple[list[Request], int]:
    """The requests at the beginning of `data` whose heads are known, and where the rest begins."""
    requests: list[Request] = []
    at = 0
    while (end := data.find(_END, at, at + _HEAD_BYTES_MOST)) >= 0:
        body = end + len(_END)
        found = _known.get(data[at:body])
        if found is None:
            break
        before, length = found
        stop = body + length
        if stop > len(data):
            break
        requests.append(before.with_body(data[body:stop]))
        at = stop
    return requests, at


def remember(data: bytes, request: Request) -> None:
    """Keep the head of a request that the parser found at the beginning of `data`, if it is fit for that."""
    end = data.find(_END, 0, _HEAD_BYTES_MOST)
    body, length = end + len(_END), len(request.body)
    head = data[:body]
    is_plain = (
        end >= 0
        and head.startswith(b"POST /")
        and head.count(b"\n") == head.count(b"\r\n")
        and request.method == "POST"
        and request.keep_alive
        and not request.upgrade
        and request.headers.get("content-length") == str(length)
        and request.headers.keys().isdisjoint(("expect", "transfer-encoding", "upgrade"))
        and data[body : body + length] == request.body
    )
    if is_plain:
        if len(_known) >= _HEADS_MOST:
            _known.clear()
        _known[head] = request.with_body(b""), length


@lru_cache(maxsize=256)
def lowered(name: bytes) -> str:
    """The name of a header, as we ask for it."""
    return name.decode("latin-1").lower()
