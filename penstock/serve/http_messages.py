"""HTTP messages: requests as routes see them, answers as bytes, and what a connection asks of its server."""

from __future__ import annotations

from functools import cache, lru_cache
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import parse_qs, urlencode

import msgspec

from penstock.errors import (
    AlreadyCommitted,
    ConflictError,
    InvalidOption,
    MessageTooLarge,
    PenstockError,
    Unavailable,
    UnknownTopic,
    UsageError,
)

#: What an answer says of its body, unless its headers do.
_JSON = b"Content-Type: application/json\r\nCache-Control: no-store\r\n"


class Refusal(PenstockError):
    """A request that is answered with an error."""

    def __init__(self, status: int, message: str, hint: str = "", *, retry_s: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.retry_s = retry_s


#: The first that fits holds; what is none of these is a fault of ours.
_STATUS: tuple[tuple[type[PenstockError], int], ...] = (
    (MessageTooLarge, 413),
    (UnknownTopic, 404),
    (UsageError, 400),
    (AlreadyCommitted, 409),
    (ConflictError, 503),  # the topic was dropped or made anew: the next request finds the new one
    (Unavailable, 503),
)


def status_of(error: PenstockError) -> int:
    """The HTTP status that says what an error says."""
    if isinstance(error, Refusal):
        return error.status
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


class Request:
    """One request, complete."""

    __slots__ = ("body", "headers", "keep_alive", "method", "path", "query", "upgrade")

    def __init__(self, method: str, target: bytes, headers: dict[str, str], *, keep_alive: bool) -> None:
        self.method = method
        self.headers = headers
        self.keep_alive = keep_alive
        self.upgrade = False
        self.body = b""
        path, _, query = target.partition(b"?")
        self.path = path.decode("latin-1")
        self.query = _parsed_query(query)

    def with_body(self, body: bytes) -> Request:
        """A copy of this request with another body."""
        other = Request.__new__(Request)
        other.method, other.path, other.query = self.method, self.path, self.query
        other.headers, other.keep_alive, other.upgrade = self.headers, self.keep_alive, self.upgrade
        other.body = body
        return other

    @property
    def may_overlap(self) -> bool:
        """Whether it may begin before those ahead of it are answered: pushes, which keep their order."""
        return self.method == "POST" and "idempotency-key" not in self.headers

    def shown(self) -> str:
        """The request as it may stand in a log: without its token."""
        told = {name: ["hidden"] if name == "token" else values for name, values in self.query.items()}
        return f"{self.method} {self.path}{'?' if told else ''}{urlencode(told, doseq=True)}"

    def one(self, name: str) -> str | None:
        """The value of a parameter that may be given once."""
        values = self.query.get(name)
        if values is None:
            return None
        if len(values) > 1:
            raise InvalidOption(f"{name} is given {len(values)} times", hint="give it once")
        return values[0]

    def refuse_unknown(self, *known: str) -> None:
        """Refuse unknown parameters: one that is misspelled would be ignored in silence."""
        if not self.query:
            return
        unknown = self.query.keys() - set(known)
        if unknown:
            raise InvalidOption(
                f"unknown parameter {min(unknown)[:60]!r}", hint=f"known here: {', '.join(known)}"
            )


def _parsed_query(query: bytes) -> dict[str, list[str]]:
    if not query:
        return {}
    try:
        return parse_qs(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=20_000)
    except ValueError:
        raise Refusal(400, "the query is not UTF-8 in percent-encoding") from None


def reply(
    status: int, body: bytes, *, headers: bytes = b"", keep_alive: bool = True, is_head: bool = False
) -> bytes:
    """A whole answer, JSON unless its headers say otherwise; to HEAD, what GET gets but for the body."""
    return b"HTTP/1.1 %d %s\r\n%sContent-Length: %d\r\n%s%s\r\n%s" % (
        status, _phrase(status), b"" if b"Content-Type:" in headers else _JSON, len(body), headers,
        b"" if keep_alive else b"Connection: close\r\n", b"" if is_head else body,
    )  # fmt: skip


def error_body(error: PenstockError, *, ref: int | None = None) -> bytes:
    """An error as clients are told; `ref` names the message that caused it."""
    named = {} if ref is None else {"ref": ref}
    return msgspec.json.encode({"error": error_facts(error), **named})


def error_facts(error: PenstockError) -> dict[str, Any]:
    """Return what a client is told of an error; nothing of errors that are ours."""
    status = status_of(error)
    if status == 500:
        return {"status": 500, "message": "something went wrong here", "hint": "see the server's log"}
    return {"status": status, "message": str(error.args[0]), "hint": error.hint}


def error_headers(error: PenstockError) -> bytes:
    """Return the headers that go with an error: how to log in, when to come back."""
    status = status_of(error)
    found = b""
    if status == 401:
        found += b"WWW-Authenticate: Bearer\r\n"
    retry_s = getattr(error, "retry_s", None) or (1 if status in (429, 503) else None)
    if retry_s:
        found += b"Retry-After: %d\r\n" % retry_s
    return found


@cache
def _phrase(status: int) -> bytes:
    return HTTPStatus(status).phrase.encode()


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


class ConnectionOwner(Protocol):
    """The owner of a connection while it streams, or while its answer is awaited."""

    def received(self, data: bytes) -> None:
        """Take what the client sent."""

    def drained(self) -> None:
        """Go on: what was written has gone out."""

    def on_time(self, now: int) -> int:
        """Called in the second that was asked for; returns the next one."""

    def lost(self) -> None:
        """Clean up: the connection has ended."""

    def ended(self, error: PenstockError) -> None:
        """Tell the client what went wrong, and end."""

    def let_go(self) -> None:
        """Say goodbye: the server ends."""


class Settling(Protocol):
    """A connection that sends answers when their turn comes."""

    def settle(self) -> None:
        """Send the answers whose turn has come."""


class PendingReply:
    """The answer to a request that others may overtake; it goes out when all before it have."""

    __slots__ = ("answer", "connection", "extra_headers", "is_head", "keep_alive")

    def __init__(
        self, connection: Settling, extra_headers: bytes, keep_alive: bool, is_head: bool = False
    ) -> None:
        self.connection = connection
        self.extra_headers = extra_headers
        self.keep_alive = keep_alive
        self.is_head = is_head
        #: Status, body and headers, once they are known.
        self.answer: tuple[int, bytes, bytes] | None = None

    def reply(self, status: int, body: bytes, headers: bytes = b"") -> None:
        """Set the answer; `Connection.settle` sends it."""
        self.answer = status, body, self.extra_headers + headers

    def refuse(self, error: PenstockError) -> None:
        """Answer with an error."""
        self.reply(status_of(error), error_body(error), error_headers(error))
