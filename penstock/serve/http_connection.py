"""One connection: requests come in, answers go out in the same order.

    reading ──whole request──▶ busy ──reply()──▶ reading …        keep-alive, pipelining
                                ├──reply_later()──▶ reading …     a push: the next one begins meanwhile
                                └──become(stream)──▶ streaming    SSE and WebSocket, until the end

There is no task and no queue for a connection. What is sent goes to the kernel at once; what it does not take
stands in the transport's buffer, `is_full` is set, and its owner stops writing.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Protocol, cast

from penstock.errors import MissingExtra, PenstockError
from penstock.serve import limits
from penstock.serve.http_messages import (
    ConnectionOwner,
    PendingReply,
    Refusal,
    Request,
    error_body,
    error_headers,
    lowered,
    recalled,
    remember,
    reply,
    status_of,
)
from penstock.serve.timer_wheel import Wheel

try:
    import httptools
except ImportError:
    raise MissingExtra("httptools", "server") from None

logger = logging.getLogger("penstock.serve")

#: Headers that mean something else when they come twice.
_ONCE = frozenset(("authorization", "content-length", "host", "origin", "sec-websocket-key"))


_NO_HEADERS: dict[str, str] = {}
_NO_BODY: list[bytes] = []


class ConnectionHost(Protocol):
    """What a connection needs of its server."""

    wheel: Wheel
    #: In whole seconds that never step back.
    now: int
    is_ending: bool

    def answer(self, connection: Connection, request: Request) -> None:
        """Answer a request, now or later."""

    def opened(self, connection: Connection) -> bool:
        """Whether there is room for one more connection."""

    def closed(self, connection: Connection) -> None:
        """A connection has ended."""


class Connection(asyncio.Protocol):
    """One client's connection."""

    __slots__ = (
        "_began", "_body", "_busy", "_deadline", "_fd", "_head_bytes", "_headers", "_host", "_is_head",
        "_keep_alive", "_parser", "_pending", "_queue", "_reads", "_refusal", "_request", "_size", "_target",
        "_turning",
        "extra_headers", "is_full", "stream", "transport", "wheel_at",
    )  # fmt: skip

    def __init__(self, host: ConnectionHost) -> None:
        self._host = host
        self._parser: httptools.HttpRequestParser | None = None
        #: Requests that have come in whole. A list: they are few, and an empty deque takes ten times as much.
        self._queue: list[Request] | None = None
        #: Answers that are still to be sent, in the order of their requests.
        self._pending: list[PendingReply] | None = None
        #: A route has the present request; we are in `_turn`; the client does not take what is written.
        self._busy = self._turning = self.is_full = False
        self._reads = True
        self._keep_alive = True
        self._is_head = False
        self._deadline = self._began = 0
        #: The socket, to write to it directly; -1 when that is not possible (TLS), or no more.
        self._fd = -1
        # The request that is coming in.
        self._request: Request | None = None
        self._refusal: Refusal | None = None
        self._headers: dict[str, str]
        self._body: list[bytes]
        self._forget_request()
        #: Sent with the present answer: what lets a page see it.
        self.extra_headers = b""
        self.stream: ConnectionOwner | None = None
        self.transport: asyncio.Transport | None = None
        self.wheel_at = -1

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = opened = cast(asyncio.Transport, transport)  # uvloop's is not derived from it
        self._fd = _plain_fd(opened)
        # Where we write directly, the transport gets only what the kernel does not take.
        opened.set_write_buffer_limits(high=0 if self._fd >= 0 else limits.HIGH_WATER_BYTES)
        if not self._host.opened(self):
            self._fail(Refusal(503, "there are too many connections", "try again", retry_s=5))
            return
        self._parser = httptools.HttpRequestParser(self)
        self._wait(limits.IDLE_S)

    def data_received(self, data: bytes) -> None:
        if self._parser is None:
            if self.stream is not None:
                self.stream.received(data)
            return
        if not self._head_bytes and self._refusal is None:
            data = self._recall(data)
            if not data or self._parser is None:
                return
            self._began = self._host.now
            self._wait(limits.REQUEST_S)
        self._parse(data)

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False
        if self.stream is not None:
            self.stream.drained()
        else:
            self._turn()

    def eof_received(self) -> bool:
        return False  # who sends no more does not listen either

    def connection_lost(self, error: Exception | None) -> None:
        self._host.wheel.remove(self)
        self._host.closed(self)
        self._fd = -1
        self._parser = self.transport = None
        self._queue = self._pending = None
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.lost()

    def on_time(self, now: int) -> None:
        """Called by the timer wheel in the second that was asked for."""
        if self.stream is not None:
            self._host.wheel.put(self, self.stream.on_time(now))
        elif self._busy or self._pending:
            self._host.wheel.put(self, now + int(limits.IDLE_S))
        elif now < self._deadline:
            self._host.wheel.put(self, self._deadline)
        elif self._head_bytes or self._request is not None:
            self._fail(Refusal(408, "the request did not come in time"))
        else:
            self.close()

    # What routes call.

    @property
    def is_open(self) -> bool:
        return self.transport is not None and not self.transport.is_closing()

    @property
    def now(self) -> int:
        return self._host.now

    def reply(self, status: int, body: bytes, headers: bytes = b"") -> None:
        """Answer the present request and go on to the next one."""
        self.stream = None
        self.reply_later().reply(status, body, headers)
        self.settle()

    def reply_later(self) -> PendingReply:
        """Answer the present request later; pushes that follow it begin meanwhile."""
        self._busy = False
        pending = PendingReply(self, self.extra_headers, self._keep_alive, self._is_head)
        if self._pending is None:
            self._pending = [pending]
        else:
            self._pending.append(pending)
        return pending

    def settle(self) -> None:
        """Send the answers whose turn has come, and go on."""
        if self.transport is None or self._pending is None:
            return
        ready: list[bytes] = []
        keep_alive = True
        for pending in self._pending:
            if pending.answer is None:
                break
            is_last = len(ready) + 1 == len(self._pending)
            keep_alive = pending.keep_alive and not (is_last and self._host.is_ending)
            status, body, headers = pending.answer
            ready.append(reply(status, body, headers=headers, keep_alive=keep_alive, is_head=pending.is_head))
        if not ready:
            return
        self._pending = self._pending[len(ready) :] or None
        self.write(ready[0] if len(ready) == 1 else b"".join(ready))
        if not keep_alive:
            self.close()
        elif not self._turning:
            self._turn()

    def refuse(self, error: PenstockError) -> None:
        """Answer the present request with an error; a stream that has begun is told in its own way."""
        if self._parser is None and self.stream is not None:
            self.stream.ended(error)
            return
        self.reply(status_of(error), error_body(error), error_headers(error))

    def become(self, stream: ConnectionOwner, head: bytes, first_time: int) -> None:
        """Hand the connection over to a stream; `head` is the HTTP answer that comes before it."""
        self._parser = None
        self._queue = None
        self._headers, self._body = _NO_HEADERS, _NO_BODY  # there are no more requests, and memory counts
        self.stream = stream
        self.write(head)
        self._host.wheel.remove(self)
        self._host.wheel.put(self, first_time)

    def await_answer(self, stream: ConnectionOwner) -> None:
        """Note who answers later, to be told if the client leaves meanwhile."""
        self.stream = stream

    def write(self, data: bytes) -> None:
        """Send: what the kernel does not take waits in the transport, and the connection is full."""
        if self._fd >= 0 and not self.is_full:
            try:
                sent = os.write(self._fd, data)
            except OSError:  # there is no room at all; or nobody at the other end, as the transport will find
                sent = 0
            if sent == len(data):
                return
            data = data[sent:]
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def close(self) -> None:
        """End when everything written has gone out."""
        self._fd = -1
        if self.transport is not None:
            self.transport.close()

    def drain(self) -> None:
        """Finish what is under way, then close: the server ends."""
        if self.stream is not None:
            self.stream.let_go()
        elif not self._busy and not self._pending:
            self.close()

    # What the parser calls. It must not be raised through: `_refusal` says what is wrong.

    def on_message_begin(self) -> None:
        if self._refusal is None:
            self._forget_request()
            self._head_bytes = 1  # something of it is there

    def on_url(self, url: bytes) -> None:
        self._target += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(len(name) + len(value) + 4)
        if self._refusal is not None:
            return
        called, text = lowered(name), value.decode("latin-1")
        before = self._headers.get(called)
        if before is not None:
            if called in _ONCE:
                self._refusal = Refusal(400, f"the header {called} comes twice")
            text = f"{before}{'; ' if called == 'cookie' else ', '}{text}"
        self._headers[called] = text

    def on_headers_complete(self) -> None:
        if self._refusal is not None:
            return
        parser = self._parser
        assert parser is not None
        length = self._headers.get("content-length", "0")
        if length.isdecimal() and int(length) > limits.BODY_BYTES_MOST:
            self._refusal = _too_large()
            return
        try:
            self._request = Request(
                parser.get_method().decode("latin-1"), self._target, self._headers,
                keep_alive=parser.should_keep_alive(),
            )  # fmt: skip
        except Refusal as refusal:
            self._refusal = refusal
            return
        if self._headers.get("expect", "").lower() == "100-continue" and not self._busy:
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        if self._size > limits.BODY_BYTES_MOST and self._refusal is None:
            self._refusal = _too_large()
        if self._refusal is None:
            self._body.append(body)

    def on_message_complete(self) -> None:
        request, self._request = self._request, None
        if self._refusal is not None or request is None:
            return
        assert self._parser is not None
        request.body = b"".join(self._body)
        request.upgrade = bool(self._parser.should_upgrade())
        self._forget_request()
        if self._queue is None:
            self._queue = []
        self._queue.append(request)

    # Inside.

    def _recall(self, data: bytes) -> bytes:
        """Take requests whose heads came before; the rest has to be parsed."""
        requests, stop = recalled(data)
        if not requests:
            return data
        self._queue = [*self._queue, *requests] if self._queue else requests
        self._turn()
        return data[stop:]

    def _parse(self, data: bytes) -> None:
        assert self._parser is not None
        is_new, waiting = not self._head_bytes, len(self._queue or ())
        rest = b""
        try:
            self._parser.feed_data(data)
            if is_new and self._queue is not None and len(self._queue) > waiting:
                remember(data, self._queue[waiting])
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
            self._parser = httptools.HttpRequestParser(self)
        except httptools.HttpParserError as error:
            if self._refusal is None:
                self._refusal = Refusal(400, f"that is not HTTP: {error}")
        self._turn()
        if self._size and self._refusal is None:
            since_then = self._host.now - self._began
            self._wait(limits.REQUEST_S + self._size / limits.BODY_BYTES_A_SECOND - since_then)
        if rest:
            self.data_received(rest)

    def _turn(self) -> None:
        """Answer requests that have come in, one after the other."""
        if self._turning:
            return
        self._turning = True
        try:
            while self._queue and self._may_begin(self._queue[0]):
                request = self._queue.pop(0)
                self._busy = True
                self._keep_alive = request.keep_alive
                self._is_head = request.method == "HEAD"
                self._host.answer(self, request)
        finally:
            self._turning = False
        self._regulate()
        if self._busy or self._queue:
            return
        if self._refusal is not None:
            self._fail(self._refusal)
        elif self.stream is None and self._request is None and not self._head_bytes:
            self._wait(limits.IDLE_S)

    def _may_begin(self, request: Request) -> bool:
        """Whether it is a request's turn."""
        if self._busy or self.is_full or not self._keep_alive or not self.is_open:
            return False  # who does not read its answers gets no more of them
        return not self._pending or (request.may_overlap and len(self._pending) < limits.PIPELINE_MOST)

    def _regulate(self) -> None:
        """Read no further while many requests wait, or answers that the client does not read."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        reads = not self.is_full and len(self._queue or ()) < limits.PIPELINE_MOST
        if reads is not self._reads:
            self._reads = reads
            if reads:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def _wait(self, seconds: float) -> None:
        self._deadline = self._host.now + int(seconds) + 1
        self._host.wheel.put(self, self._deadline)

    def _fail(self, refusal: Refusal) -> None:
        """Answer what cannot be understood, and end: where the next request begins is not known."""
        self._parser = self._refusal = None
        self._keep_alive = False
        self.refuse(refusal)

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > limits.HEAD_BYTES_MOST and self._refusal is None:
            is_url = len(self._target) > limits.HEAD_BYTES_MOST // 2
            self._refusal = Refusal(
                414 if is_url else 431,
                f"the request line and headers are over {limits.HEAD_BYTES_MOST} bytes",
                'many keys are subscribed to over a WebSocket: {"subscribe": […]}' if is_url else "",
            )

    def _forget_request(self) -> None:
        self._request = None
        self._refusal = None
        self._target = b""
        self._headers = {}
        self._body = []
        self._size = 0
        self._head_bytes = 0


def _plain_fd(transport: asyncio.Transport) -> int:
    """The descriptor of a connection without TLS; -1 for one with it."""
    opened = transport.get_extra_info("socket")
    return -1 if opened is None or transport.get_extra_info("sslcontext") is not None else opened.fileno()


def _too_large() -> Refusal:
    return Refusal(413, f"the body is over {limits.BODY_BYTES_MOST} bytes", "push less at once")
