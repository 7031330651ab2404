"""`penstock.asgi`: live events within an app of one's own, in Starlette, FastAPI or any other ASGI server.

    app = FastAPI()
    app.mount("/live", penstock.asgi(penstock.open("data")))      # then /live/v1/events, /live/penstock.js

It is the public port without the port: the same wire, limits and access.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from penstock import aio
from penstock.aio.twin import Threads
from penstock.errors import InvalidOption, MissingExtra
from penstock.serve import limits
from penstock.serve.access import Origins, is_local
from penstock.serve.http_messages import Refusal, error_body, error_headers, reply
from penstock.store import Store
from penstock.websocket_frames import (
    BINARY,
    CLOSE,
    NO_STATUS,
    TEXT,
    Frames,
    WebSocketFrame,
    close_code,
    frame,
)

#: They are about the connection that the ASGI server has; ours has its own.
_HOP_BY_HOP = frozenset(
    (b"connection", b"expect", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade")
)
_UPGRADE = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)


class AsgiTransport(asyncio.Transport):
    """Bytes on their way out: written by a `Connection`, taken by the caller of `next`.

    As with a socket, the writer is told when too much waits, and when there is room again.
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
        """Do nothing: there is one request on a transport, and nothing comes behind it."""

    def resume_reading(self) -> None:
        """Do nothing: reading is never paused."""


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
    """Encode a piece of a body whose length is not known in advance."""
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


try:
    from penstock.serve.http_connection import Connection
    from penstock.serve.routes import Routes
    from penstock.serve.server import ServedTopics, ServeOptions, Server
except ImportError as missing:
    if missing.name != "httptools":
        raise
    raise MissingExtra("httptools", "server") from None


Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

#: A mask that changes nothing: clients must mask, and ours is in the same process.
_MASK = b"\0\0\0\0"
_FRAME_BYTES_MOST = 2**31
#: How long a client that is sent away may take to read the rest.
_GOODBYE_S = 1.0


def asgi(
    store: Store | aio.Store, *, topics: Sequence[str] = (), token_secret: str | None = None,
    jwt_key: str | None = None, allow_origin: Sequence[str] = (), allow_host: Sequence[str] = (),
    trusted: bool = False,
) -> Asgi:  # fmt: skip
    """An ASGI app that serves the live events of a store; mount it where you like.

    The options are those of `penstock serve`. Without a key for tokens it answers this machine alone, unless
    `trusted=True` says that the app around it lets through only clients that may do everything.
    """
    options = ServeOptions(
        store=store.path, topics=tuple(topics), secret=token_secret, public_key=jwt_key,
        origins=tuple(allow_origin), hosts=tuple(allow_host),
    )  # fmt: skip
    return Asgi(store, options, trusted=trusted)


class Asgi:
    """The app. It starts with its first request, or with its lifespan if it is not mounted."""

    def __init__(self, store: Store | aio.Store, options: ServeOptions, *, trusted: bool) -> None:
        self._store = store
        self._options = options
        self._is_for_all = trusted or not options.access().is_open
        self._starting: asyncio.Task[_Running] | None = None

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "lifespan":
            await self._live(receive, send)
        elif kind in ("http", "websocket"):
            running = await self._running()
            await _Call(scope, receive, send, running.server).answer(self._refusal(scope))
        else:
            raise InvalidOption(f"there is no answer to {kind!r}", hint="http, websocket or lifespan")

    async def aclose(self) -> None:
        """Release all clients, and end; the store stays open. The next request would start it again."""
        starting, self._starting = self._starting, None
        if starting is not None:
            await (await starting).end()

    # Inside.

    async def _running(self) -> _Running:
        loop = asyncio.get_running_loop()
        if self._starting is None or self._starting.get_loop() is not loop:
            self._starting = loop.create_task(_start(self._store, self._options, is_for_all=self._is_for_all))
        try:
            return await asyncio.shield(self._starting)
        except Exception:
            self._starting = None  # the next request tries again
            raise

    def _refusal(self, scope: MutableMapping[str, Any]) -> Refusal | None:
        """Refuse a client of another machine without a token, unless the app has checked it already."""
        client = scope.get("client")
        if self._is_for_all or client is None or is_local(client[0]):
            return None
        return Refusal(403, "without tokens this server answers its own machine alone", "token_secret=…")

    async def _live(self, receive: Receive, send: Send) -> None:
        """Handle the lifespan of a server whose only app this is."""
        await receive()
        try:
            await self._running()
        except Exception as error:  # noqa: BLE001 - the server is told, and says it
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.aclose()
        await send({"type": "lifespan.shutdown.complete"})


class _Running:
    """What runs in one event loop."""

    def __init__(self, server: Server, topics: ServedTopics, threads: Threads | None) -> None:
        self.server = server
        self._topics = topics
        self._threads = threads
        self._stop = asyncio.Event()
        self._ticking = asyncio.get_running_loop().create_task(server.run(self._stop))

    async def end(self) -> None:
        self._stop.set()
        await self._ticking
        await self.server.drain()
        self._topics.feeds.close()
        if self._threads is not None:
            await self._threads.end(limits.DRAIN_S)


async def _start(store: Store | aio.Store, options: ServeOptions, *, is_for_all: bool) -> _Running:
    threads = None
    if isinstance(store, Store):
        threads = Threads()
        store = aio.Store(store, threads)
    topics = ServedTopics(store, options)
    await topics.warm_up()
    origins = Origins(origins=options.origins, hosts=options.hosts, local_only=not is_for_all)
    routes = Routes(topics, options.access(), origins)
    server = Server(topics, routes, connections_most=sys.maxsize)
    return _Running(server, topics, threads)


class _Call:
    """One request, from its scope to its end."""

    def __init__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send, server: Server) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._is_websocket = scope["type"] == "websocket"
        self._connection = Connection(server)
        self._line = AsgiTransport(self._connection)

    async def answer(self, refusal: Refusal | None) -> None:
        listening = None
        self._connection.connection_made(self._line)
        try:
            if refusal is not None:
                raise refusal
            head, in_chunks = request_head(self._scope, is_websocket=self._is_websocket)
            listening = asyncio.get_running_loop().create_task(self._listen(head, in_chunks))
        except Refusal as refused:
            self._line.write(reply(refused.status, error_body(refused), headers=error_headers(refused)))
            self._line.close()
        telling = asyncio.get_running_loop().create_task(self._tell())
        try:
            await self._told(telling)
        finally:
            telling.cancel()
            if listening is not None:
                listening.cancel()
            self._line.abort()
            self._connection.connection_lost(None)

    async def _told(self, telling: asyncio.Task[None]) -> None:
        try:
            with suppress(OSError):  # nobody is there any more
                await asyncio.shield(telling)
        except asyncio.CancelledError:
            # The ASGI server ends. As on our own port the client is sent away in order, with its cursor.
            self._connection.drain()
            await asyncio.wait((telling,), timeout=_GOODBYE_S)
            if not telling.done() or telling.cancelled():
                raise
            telling.exception()

    # What comes in.

    async def _listen(self, head: bytes, in_chunks: bool) -> None:
        try:
            self._connection.data_received(head)
            if self._is_websocket:
                await self._hear_messages()
            else:
                await self._hear_body(in_chunks)
        finally:
            self._line.close()

    async def _hear_body(self, in_chunks: bool) -> None:
        """The body in pieces; then nothing comes but the client's leaving."""
        while (message := await self._receive())["type"] == "http.request":
            data, is_last = message.get("body", b""), not message.get("more_body", False)
            if in_chunks:
                data = chunk(data, is_last=is_last)
            if data:
                self._connection.data_received(data)

    async def _hear_messages(self) -> None:
        while (message := await self._receive())["type"] != "websocket.disconnect":
            if message["type"] == "websocket.receive":
                text = message.get("text")
                heard = (
                    WebSocketFrame(BINARY, message.get("bytes") or b"")
                    if text is None
                    else WebSocketFrame(TEXT, text.encode())
                )
                self._connection.data_received(frame(*heard, _MASK))

    # What goes out.

    async def _tell(self) -> None:
        data = b""
        while (answer := split_head(data)) is None:
            more = await self._line.next()
            if not more:
                return  # the client has gone, or we end
            data += more
        status, headers, rest = answer
        if status == 101:
            await self._tell_messages(rest)
        elif self._is_websocket and "websocket.http.response" not in self._scope.get("extensions", {}):
            await self._send({"type": "websocket.close", "code": 1008})
        else:
            await self._tell_body(status, headers, rest)

    async def _tell_body(self, status: int, headers: list[tuple[bytes, bytes]], data: bytes) -> None:
        kind = "websocket.http.response" if self._is_websocket else "http.response"
        await self._send({"type": f"{kind}.start", "status": status, "headers": headers})
        while data:
            await self._send({"type": f"{kind}.body", "body": data, "more_body": True})
            data = await self._line.next()
        await self._send({"type": f"{kind}.body", "body": b"", "more_body": False})

    async def _tell_messages(self, data: bytes) -> None:
        await self._send({"type": "websocket.accept"})
        frames = Frames(from_client=False, limit=_FRAME_BYTES_MOST)
        while True:
            for opcode, payload in frames.feed(data):
                if opcode == TEXT:
                    await self._send({"type": "websocket.send", "text": payload.decode()})
                elif opcode == CLOSE:
                    await self._close(payload)
                    return
            data = await self._line.next()
            if not data:
                return

    async def _close(self, payload: bytes) -> None:
        code = close_code(payload)
        reason = payload[2:].decode()
        await self._send(
            {"type": "websocket.close", "code": 1000 if code == NO_STATUS else code, "reason": reason}
        )
