"""Live events of a server: push, and subscribe with one cursor over WebSocket or long poll.

    events = Events("http://127.0.0.1:7367")
    events.push(["chat", 345], {"text": "hello"})
    with events.subscribe([["chat", 345]]) as heard:
        for event in heard:
            print(event.id, event.data)

A subscription outlives its connections: it connects again with its cursor, waits longer each time that fails,
and drops what it has had before. Nothing is missed; where the server no longer has something, it says so.
"""

from __future__ import annotations

import http.client
import random
import ssl
import time
import uuid
from collections import deque
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Literal, Protocol
from urllib.parse import SplitResult, urlencode, urlsplit

import msgspec

from penstock.client.websocket import WebSocket
from penstock.errors import Closed, InvalidOption, OutOfRange, PenstockError, Unavailable, UsageError
from penstock.events.event import Event, EventGap, Pushed, stored_pairs
from penstock.keys import Key, Prefix, checked_key

#: Waits between attempts: from the first to the most, doubled each time, with up to half of it by chance.
_REST_FIRST_S, _REST_MOST_S = 0.1, 10.0
_TRIES = 8
#: A connection on which nothing came for so long is dead: pings come each 25 s.
_SILENCE_S = 60.0
_POLL_S = 25.0


class _Heard(msgspec.Struct):
    """An `Event` as it comes: msgspec cannot decode the type of its key."""

    id: int
    time: float
    key: str | list[Any]
    data: Any


class _Answer(msgspec.Struct):
    next: str = ""
    events: list[_Heard] = []
    min: int = 0
    gap: EventGap | None = None
    error: dict[str, Any] | None = None


class Refused(UsageError):
    """The server refused the request; `status` is its HTTP status."""

    def __init__(self, message: str, *, status: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status


class Events:
    """The live events of a server; safe to share between threads."""

    def __init__(self, url: str, *, token: str | None = None, topic: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https", "ws", "wss") or not parts.hostname:
            raise InvalidOption(f"{url!r} is not the address of a server", hint="http://127.0.0.1:7367")
        self._parts = parts
        self._token = token
        self._topic = topic

    def push(self, key: Key, data: Any, *, audience: str | Sequence[str] | None = None) -> Pushed:
        """Store an event; it is on the server's disk when this returns, once, however often it was sent."""
        return self._push([(key, data)], audience)

    def push_many(
        self, events: Iterable[tuple[Key, Any]], *, audience: str | Sequence[str] | None = None
    ) -> Pushed:
        """Store several events, all or none, with ids one after the other."""
        return self._push(events, audience)

    def subscribe(
        self, keys: str | Sequence[Key] = (), cursor: str | None = None, *, prefixes: Sequence[Prefix] = (),
        rewind: int | None = None, since: str | None = None, on_gap: Literal["raise", "skip"] = "raise",
        transport: Literal["websocket", "longpoll"] = "websocket",
    ) -> Subscription:  # fmt: skip
        """Events of these keys as they come, for as long as they are asked for.

        Where events are missing `OutOfRange` is raised, and the next one goes on behind the gap; with
        `on_gap="skip"` it goes on at once, and `gaps` keeps what was missed.
        """
        asked = [("key", _spoken(key)) for key in ([keys] if isinstance(keys, str) else keys)]
        asked += [("prefix", _spoken(prefix)) for prefix in prefixes]
        if not asked:
            raise InvalidOption("nothing to subscribe to", hint="name a key or a prefix")
        start = [(name, str(given)) for name, given in (("rewind", rewind), ("since", since)) if given]
        line: _Line = _WebSocketLine(self) if transport == "websocket" else _PollLine(self)
        return Subscription(line, asked, cursor, start, skips=on_gap == "skip")

    # Inside.

    def _push(self, events: Iterable[tuple[Key, Any]], audience: str | Sequence[str] | None) -> Pushed:
        pairs = stored_pairs(events)
        for_whom = {} if audience is None else {"audience": audience}
        body = msgspec.json.encode(
            [{"key": key.decode(), "data": msgspec.Raw(data), **for_whom} for key, data in pairs]
        )
        headers = {"Content-Type": "application/json", "Idempotency-Key": uuid.uuid4().hex}
        rest = _Rest()
        while True:
            try:
                answer = self._ask("POST", [], body, headers)
                return msgspec.json.decode(answer, type=Pushed)
            except Unavailable:
                if rest.count >= _TRIES:
                    raise
                rest()

    def _ask(
        self, method: str, query: list[tuple[str, str]], body: bytes | None, headers: dict[str, str],
        *, line: http.client.HTTPConnection | None = None, timeout: float = 30.0,
    ) -> bytes:  # fmt: skip
        """One request and its answer. Raises `Refused`, or `Unavailable` when it may be sent again."""
        connection = line or self._connection(timeout)
        try:
            connection.request(method, self._path(query), body, headers | self._headers())
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Unavailable(f"{self._parts.hostname} cannot be reached: {error}") from error
        finally:
            if line is None:
                connection.close()
        if answer.status != 200:
            raise _refused(answer.status, content)
        return content

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme in ("https", "wss"):
            return http.client.HTTPSConnection(
                host, port, timeout=timeout, context=ssl.create_default_context()
            )
        return http.client.HTTPConnection(host, port, timeout=timeout)

    def _path(self, query: list[tuple[str, str]]) -> str:
        topic = [] if self._topic is None else [("topic", self._topic)]
        spoken = urlencode([*query, *topic])
        return f"{self._parts.path.rstrip('/')}/v1/events{'?' if spoken else ''}{spoken}"

    def _headers(self) -> dict[str, str]:
        return {} if self._token is None else {"Authorization": f"Bearer {self._token}"}

    @property
    def parts(self) -> SplitResult:
        """The parts of the server's URL."""
        return self._parts


class Subscription:
    """Events as they come: iterate over it. Leaving `with` ends it."""

    def __init__(
        self, line: _Line, asked: list[tuple[str, str]], cursor: str | None, start: list[tuple[str, str]],
        *, skips: bool,
    ) -> None:  # fmt: skip
        self._line = line
        self._asked = asked
        self._start = start
        self._skips = skips
        self._came: deque[Event] = deque()
        self._last_id = 0
        self._epoch = ""
        #: What stands before the id in the newest cursor.
        self._before_id = ""
        self._closed = False
        self._rest = _Rest()
        self._told = cursor
        #: What was missed and skipped.
        self.gaps: list[EventGap] = []

    @property
    def cursor(self) -> str | None:
        """Where to go on later, or elsewhere: everything before it was given out."""
        if self._came and self._epoch:
            return f"{self._before_id}.{self._came[0].id}"
        return self._told

    def receive(self, timeout: float | None = None) -> Event | None:
        """The next event; None when none came in time."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._came:
            if self._closed:
                raise Closed("the subscription is closed", hint="subscribe again")
            left = _POLL_S if deadline is None else deadline - time.monotonic()
            if left < 0:
                return None
            self._hear(min(left, _POLL_S))
        return self._came.popleft()

    def __iter__(self) -> Subscription:
        return self

    def __next__(self) -> Event:
        event = self.receive()
        assert event is not None
        return event

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the subscription; an iteration over it ends too."""
        self._closed = True
        self._line.close()

    # Inside.

    def _hear(self, timeout: float) -> None:
        start = self._start if self._told is None else [("cursor", self._told)]
        try:
            answer = self._line.hear([*self._asked, *start], timeout)
        except Unavailable:
            self._line.close()
            self._rest()
            return
        except PenstockError:
            self._line.close()
            raise
        if answer is None:
            return
        self._rest.reset()
        self._take(answer)

    def _take(self, answer: _Answer) -> None:
        if answer.error is not None:
            raise Refused(answer.error.get("message", ""), status=answer.error.get("status", 0))
        self._before_id = answer.next.rpartition(".")[0]
        epoch = answer.next.partition(".")[0]
        was_put_back = answer.gap is not None and answer.gap.reason == "ahead"
        if epoch != self._epoch or was_put_back:  # ids that were had are of other events now
            self._epoch, self._last_id = epoch, 0
        for event in answer.events:
            if event.id > self._last_id:  # else it was had before the connection broke
                self._came.append(Event(event.id, event.time, event.key, event.data))
                self._last_id = event.id
        self._told = answer.next or self._told
        if answer.gap is not None:
            self.gaps.append(answer.gap)
            if not self._skips:
                raise OutOfRange(
                    f"events are missing ({answer.gap.reason})", hint='on_gap="skip" goes on behind them'
                )


class _Line(Protocol):
    """A way to hear of events."""

    def hear(self, asked: list[tuple[str, str]], timeout: float) -> _Answer | None:
        """The next that the server says; None when nothing came in time. Raises `Unavailable`."""

    def close(self) -> None: ...


class _PollLine:
    def __init__(self, events: Events) -> None:
        self._events = events
        self._connection: http.client.HTTPConnection | None = None

    def hear(self, asked: list[tuple[str, str]], timeout: float) -> _Answer | None:
        if self._connection is None:
            self._connection = self._events._connection(_SILENCE_S)
        query = [*asked, ("timeout", f"{timeout:.3f}")]
        answer = self._events._ask("GET", query, None, {}, line=self._connection)
        return msgspec.json.decode(answer, type=_Answer)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _WebSocketLine:
    def __init__(self, events: Events) -> None:
        self._events = events
        self._socket: WebSocket | None = None
        self._heard_at = 0.0

    def hear(self, asked: list[tuple[str, str]], timeout: float) -> _Answer | None:
        if self._socket is None:
            self._socket = self._connect(asked)
            self._heard_at = time.monotonic()
        text = self._socket.receive(timeout)
        if text is None:
            if time.monotonic() - self._heard_at > _SILENCE_S:
                raise Unavailable("the server has fallen silent")
            return None
        self._heard_at = time.monotonic()
        return msgspec.json.decode(text, type=_Answer)

    def _connect(self, asked: list[tuple[str, str]]) -> WebSocket:
        try:
            return WebSocket(self._events.parts, self._events._path(asked), self._events._headers())
        except WebSocket.HandshakeRefused as refused:
            raise _refused(refused.status, refused.body) from None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class _Rest:
    """Waits longer each time, by chance, so that not all clients come back at once."""

    def __init__(self) -> None:
        self.count = 0

    def reset(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        longest = min(_REST_FIRST_S * 2**self.count, _REST_MOST_S)
        self.count += 1
        time.sleep(longest * random.uniform(0.5, 1.0))


def _refused(status: int, content: bytes) -> PenstockError:
    """The error that an answer means; those that pass are worth another try."""
    try:
        told = msgspec.json.decode(content)["error"]
        message, hint = str(told["message"]), str(told.get("hint", ""))
    except (msgspec.DecodeError, KeyError, TypeError):
        message, hint = f"the server answered {status}", ""
    if status in (408, 429) or status >= 500:
        return Unavailable(message, hint=hint)
    return Refused(message, status=status, hint=hint)


def _spoken(key: Key | Prefix) -> str:
    stored = checked_key(key)
    try:
        return (stored or b"").decode()
    except UnicodeDecodeError:
        raise InvalidOption("a key that is no text cannot be named in a URL") from None
