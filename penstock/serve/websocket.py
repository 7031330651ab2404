"""A subscriber by WebSocket, which may change what it listens to at any time.

    server  {"events": [], "next": "3f.8", "min": 1}             first: where the client stands
            {"events": [{"id": 8, …}], "next": "3f.9"}           what is new, joined
            {"events": [], "next": "3f.12", "ping": true}        each 25 s
            {"events": [], "next": "3f.40", "min": 39, "gap": {…}}
            {"error": {"status": 403, "message": "…"}}           the message before did nothing
            {"events": [], "next": "3f.40", "ref": 7}            the message with that `ref` is done
    client  {"subscribe": ["news", ["chat", 345], {"prefix": ["user"]}], "unsubscribe": […], "cursor": "3f.2"}
            {"token": "…"}                                       first, when nothing else brought one

`cursor` says from where the keys of the same message are read; without any, all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.errors import InvalidOption, PenstockError
from penstock.events.event import EventGap
from penstock.events.event_query import EventQuery, EventQueryStep
from penstock.keys import Match, match
from penstock.serve import limits
from penstock.serve.access import OPEN, Access, Grant
from penstock.serve.catch_up import CatchUpRange
from penstock.serve.encoded_event import EncodedEvent, answer_json
from penstock.serve.event_stream import EventStream
from penstock.serve.feed import Feed, Start
from penstock.serve.http_connection import Connection
from penstock.serve.http_messages import Refusal, Request, error_body
from penstock.websocket_frames import (
    CLOSE,
    INTERNAL,
    PING,
    POLICY,
    PONG,
    RESTART,
    TEXT,
    UNSUPPORTED,
    BadFrame,
    Frames,
    WebSocketFrame,
    accept_token,
    close_code,
    close_frame,
    frame,
    is_key,
)

_HEAD = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: %s\r\n\r\n"
)


class _Prefix(msgspec.Struct, forbid_unknown_fields=True):
    prefix: str | list[Any]


_Wanted = list[str | list[Any] | _Prefix]


class _Command(msgspec.Struct, forbid_unknown_fields=True):
    subscribe: _Wanted = []
    unsubscribe: _Wanted = []
    cursor: str | None = None
    token: str | None = None
    ref: int | None = None


_decode = msgspec.json.Decoder(_Command).decode


def handshake(request: Request) -> bytes:
    """The answer that opens a WebSocket; raises `Refusal` for a request that cannot have one."""
    key = request.headers.get("sec-websocket-key", "")
    if (
        request.method != "GET"
        or request.headers.get("upgrade", "").lower() != "websocket"
        or not is_key(key)
    ):
        raise Refusal(400, "that is no WebSocket handshake")
    if request.headers.get("sec-websocket-version") != "13":
        raise Refusal(426, "this server speaks version 13 of the WebSocket protocol")
    return _HEAD % accept_token(key).encode()


class WebSocketStream(EventStream):
    """A subscriber by WebSocket."""

    __slots__ = ("_access", "_asked", "_frames", "_refs", "_start")

    def __init__(
        self, connection: Connection, feed: Feed, grant: Grant | None, access: Access, asked: Match,
        start: Start,
    ) -> None:  # fmt: skip
        super().__init__(connection, feed, grant or OPEN)
        self._frames = Frames(from_client=True, limit=limits.WEBSOCKET_BYTES_MOST)
        #: Set while a token is awaited.
        self._access = access if grant is None else None
        self._asked = asked
        self._start = start
        #: Of messages that are done when old events of their keys are sent.
        self._refs: tuple[int, ...] = ()

    def open(self, head: bytes, question: EventQuery, now: int) -> None:
        """Begin, or wait for a token first."""
        if self._access is None:
            self.begin(head, self._asked, question, now)
        else:
            self.connection.become(self, head, now + math.ceil(limits.TOKEN_S))

    # How it is written.

    def frame(self, pieces: Sequence[EncodedEvent], behind: int) -> bytes:
        joined = b",".join([piece.json for piece in pieces])
        return frame(TEXT, b'{"events":[%s],"next":"%s"}' % (joined, self.feed.cursor_at(behind).encode()))

    def hello_frame(self, offset: int) -> bytes:
        return frame(TEXT, answer_json([], self.feed.cursor_at(offset), self.feed.least))

    def ping_frame(self) -> bytes:
        cursor = self.feed.cursor_at(self.place).encode()
        return frame(TEXT, b'{"events":[],"next":"%s","ping":true}' % cursor)

    def gap_frame(self, gap: EventGap, offset: int) -> bytes:
        return frame(TEXT, answer_json([], self.feed.cursor_at(offset), self.feed.least, gap))

    def say_goodbye(self, error: PenstockError | None, *, expired: bool = False) -> None:
        if expired:
            self._end(POLICY, "the token has expired")
        else:
            self._end(RESTART, "connect again" if error is None else str(error.args[0]))

    # What the feed calls.

    def read_on(self, wanted: CatchUpRange, found: EventQueryStep | None) -> None:
        super().read_on(wanted, found)
        self._tell_done()

    # What the connection calls.

    def received(self, data: bytes) -> None:
        try:
            for each in self._frames.feed(data):
                self._take(each)
        except BadFrame as bad:
            self._end(bad.code, str(bad.args[0]))

    def on_time(self, now: int) -> int:
        if self._access is not None:
            self._end(POLICY, "no token came in time")
            return now + limits.PING_S
        return super().on_time(now)

    # Inside.

    def _take(self, taken: WebSocketFrame) -> None:
        if not self.connection.is_open:
            return
        if taken.opcode == TEXT:
            self._obey(taken.payload)
        elif taken.opcode == PING:
            if not self.connection.is_full:
                self.connection.write(frame(PONG, taken.payload))
        elif taken.opcode == CLOSE:
            close_code(taken.payload)
            self.connection.write(frame(CLOSE, taken.payload[:2]))
            self.connection.close()
        elif taken.opcode != PONG:
            self._end(UNSUPPORTED, "messages are text in JSON")

    def _obey(self, payload: bytes) -> None:
        command = _Command()
        try:
            try:
                command = _decode(payload)
            except (msgspec.DecodeError, RecursionError) as error:
                raise InvalidOption(
                    f"that is no message for this server: {error}", hint='{"subscribe": ["key"]}'
                ) from None
            if self._access is not None:
                self._let_in(command)
            self._change(command)
            if command.ref is not None:
                self._refs = (*self._refs, command.ref)
                self._tell_done()
        except PenstockError as error:
            self.connection.write(frame(TEXT, error_body(error, ref=command.ref)))
            if isinstance(error, Refusal) and error.status == 401:
                self._end(POLICY, str(error.args[0]))
        except OSError:
            self._end(INTERNAL, "something went wrong here")
            raise

    def _let_in(self, command: _Command) -> None:
        """Take the token from the first message."""
        assert self._access is not None
        if command.token is None:
            raise Refusal(401, "the first message must bring a token", '{"token": "…"}')
        grant = self._access.check(command.token)
        grant.require_subscribe(self.feed.topic, self._asked)
        self.grant, self._access = grant, None
        question = self.feed.begin(self._asked, self._start)
        self.begin(b"", self._asked, question, self.connection.now)

    def _change(self, command: _Command) -> None:
        """Listen to other keys from now on, or from a cursor on. Nothing changes when it is refused."""
        wanted, unwanted = _matched(command.subscribe), _matched(command.unsubscribe)
        self.grant.require_subscribe(self.feed.topic, wanted)
        kept = Match(
            tuple(key for key in self.match.keys if key not in unwanted.keys),
            tuple(prefix for prefix in self.match.prefixes if prefix not in unwanted.prefixes),
        )
        changed = match((*kept.keys, *wanted.keys), (*kept.prefixes, *wanted.prefixes))
        if len(changed.keys) + len(changed.prefixes) > limits.KEYS_MOST:
            raise Refusal(400, f"more than {limits.KEYS_MOST} keys and prefixes for one connection")
        is_new = bool(wanted.keys or wanted.prefixes)
        question = None
        if command.cursor is not None:
            question = self.feed.begin(wanted if is_new else changed, Start(command.cursor))
        if changed != self.match:
            self.feed.unregister(self, self.match)
            self.feed.register(self, changed)
            self.match = changed
        if question is None:
            return
        if is_new:
            self._replay(wanted, question)
        else:
            self._extras = ()
            self.next = question.next
            self.take_first_step(question)

    def _replay(self, wanted: Match, question: EventQuery) -> None:
        """Read keys that came later from where they begin up to where the others stand."""
        if self.next < 0:
            self.next = self.feed.position
        if question.next < self.next:
            offset = question.next
            if self.feed.is_near(question):
                found = question.search(self.next)
                offset = question.next if found is None else self.write_found(found)
            if offset < self.next:
                self._extras = (*self._extras, (wanted, offset))
        self.feed.wake(self)

    def _tell_done(self) -> None:
        """Answer messages that asked for it, once nothing old is left to send for them."""
        if not self._refs or self._extras:
            return
        cursor = self.feed.cursor_at(self.place).encode()
        for ref in self._refs:
            self.connection.write(frame(TEXT, b'{"events":[],"next":"%s","ref":%d}' % (cursor, ref)))
        self._refs = ()

    def _end(self, code: int, reason: str) -> None:
        self.connection.write(close_frame(code, reason))
        self.connection.close()


def _matched(wanted: _Wanted) -> Match:
    keys = [each for each in wanted if not isinstance(each, _Prefix)]
    prefixes = [each.prefix for each in wanted if isinstance(each, _Prefix)]
    return match(keys, prefixes)
