"""One serving process: a store, a loop, a socket; from the first byte to the last answer.

SIGTERM and SIGINT drain it: no more connections, waiting clients are answered and sent away with their
cursor, pushes under way are finished; then it ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Any

from penstock import aio
from penstock.errors import InvalidOption, MissingExtra, UnknownTopic
from penstock.events.events import Events
from penstock.keys import Match
from penstock.serve import limits
from penstock.serve.access import Access, Origins, is_local
from penstock.serve.feed import Feeds
from penstock.serve.http_connection import Connection
from penstock.serve.http_messages import Request
from penstock.serve.routes import Routes
from penstock.serve.timer_wheel import Wheel
from penstock.store import Store


def tls_context(certificate: str | None, key: str | None) -> ssl.SSLContext | None:
    """How connections are encrypted; None when they are not. Raises `InvalidOption` for unusable files.

    `certificate` may hold the chain behind it, and the key if `key` is not given.
    """
    if certificate is None:
        if key is not None:
            raise InvalidOption("a key for TLS and no certificate", hint="--tls-cert FILE")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        # A key with a passphrase would ask for it, in each worker.
        context.load_cert_chain(certificate, key, password=_no_passphrase)
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror if not isinstance(error, ssl.SSLError) else _reason(error)
        shown = certificate if key is None else f"{certificate} and {key}"
        raise InvalidOption(
            f"{shown}: {reason}", hint="--tls-cert and --tls-key take PEM files that belong together"
        ) from None
    return context


def _no_passphrase() -> str:
    raise InvalidOption("the key for TLS has a passphrase", hint="give one without")


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or "not a certificate and its key in PEM").replace("_", " ").lower()


logger = logging.getLogger("penstock.serve")

#: Files that a process needs besides its connections.
_OTHER_FILES = 200
_LOOK_S = 0.05
#: The socket of the first worker.
FIRST = "0.sock"


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """What is served, where, and to whom."""

    store: str
    host: str = "127.0.0.1"
    #: 0 takes a free one.
    port: int = 7367
    workers: int = 1
    #: Those served, the first by default; none means all topics that can hold events, `events` by default.
    topics: tuple[str, ...] = ()
    #: For tokens with HS256.
    secret: str | None = None
    #: PEM, for tokens with RS256.
    public_key: str | None = None
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    #: A folder of pages that are served besides, to everybody who may connect.
    pages: str | None = None
    #: PEM files; with a certificate clients speak https and wss.
    tls_certificate: str | None = None
    tls_key: str | None = None

    def __post_init__(self) -> None:
        if self.secret is None and self.public_key is None and not is_local(self.host):
            raise InvalidOption(
                f"{self.host} can be reached from elsewhere, and there is no key for tokens",
                hint="--token-secret or --jwt-key; or --host 127.0.0.1",
            )
        if self.pages is not None:
            _check_pages(self.pages, self.store)
        self.access()
        self.tls()

    @property
    def default_topic(self) -> str:
        """The topic of requests that name none."""
        return self.topics[0] if self.topics else "events"

    def access(self) -> Access:
        """Who may do what, by these options."""
        return Access(secret=self.secret, public_key=self.public_key, topic=self.default_topic)

    def tls(self) -> ssl.SSLContext | None:
        """The context for https; None without a certificate."""
        return tls_context(self.tls_certificate, self.tls_key)


def _check_pages(pages: str, store: str) -> None:
    if not os.path.isdir(pages):
        raise InvalidOption(f"{pages} is not a folder of pages", hint="--pages FOLDER")
    shown, kept = os.path.realpath(pages), os.path.realpath(store)
    if os.path.commonpath((shown, kept)) in (shown, kept):
        raise InvalidOption(
            f"the store in {store} would be among the pages of {pages}, for everybody to read",
            hint="keep them in folders beside each other",
        )


class ServedTopics:
    """The topics of the store, as routes see them."""

    def __init__(self, store: aio.Store, options: ServeOptions) -> None:
        self._async = store
        self._served = options.topics
        self.default = options.default_topic
        self.feeds = Feeds(self._find, self.start)
        self._events: dict[str, Events] = {}

    @property
    def store(self) -> Store:
        """The store that is served."""
        return self._async.blocking

    def find(self, topic: str, *, anew: bool = False) -> Events:
        """The events of a topic; `anew` when it turned out that it was dropped. Called in a thread."""
        known = self._events.get(topic)
        if known is None or anew:
            known = self._events[topic] = self._find(topic)
        return known

    def start(self, call: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Start a call in a thread; return its future."""
        return self._async.threads.start(call, *args)

    async def in_thread(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a call that may wait for the disk in a thread."""
        return await self._async.threads.run(call, *args, **kwargs)

    def stored(self, topic: str) -> None:
        """Deliver what this process stored itself: quicker than by the hint that the file gives."""
        self.feeds.stored(topic)

    def require(self, topic: str) -> None:
        """Raise unless the topic may be asked for here; whether it is there is another question."""
        if self._served and topic not in self._served:
            raise UnknownTopic(topic, self._served)

    async def warm_up(self) -> None:
        """Open what is served and read the keys of what is there, so that the first client need not wait."""
        for topic in self._served or (self.default,):
            events = await self.in_thread(self.find, topic)
            log = events.open_topic.log(0)
            bounds = log.bounds()
            await self.in_thread(log.keys.oldest, Match(), bounds.start, bounds.end, 1)
            self.feeds.feed(topic)

    def _find(self, topic: str) -> Events:
        """A topic of the default names is made at first use; others must be there."""
        if topic != self.default and topic not in self._served:
            self.store.topic(topic)
        return self.store.events(topic)


class Server:
    """What all connections of a process share."""

    def __init__(self, topics: ServedTopics, routes: Routes, *, connections_most: int) -> None:
        self._topics = topics
        self._routes = routes
        self.answer = routes.answer
        self._connections: set[Connection] = set()
        self._most = connections_most
        self.now = int(time.monotonic())
        self.wheel = Wheel(self.now)
        self.is_ending = False

    def opened(self, connection: Connection) -> bool:
        """Note a new connection; return whether there is room for it."""
        self._connections.add(connection)
        return len(self._connections) <= self._most

    def closed(self, connection: Connection) -> None:
        """Forget a connection that has ended."""
        self._connections.discard(connection)

    async def run(self, stop: asyncio.Event) -> None:
        """Turn the wheel until asked to stop; once a second look for what no hint told of."""
        while not stop.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), 1.0 - time.monotonic() % 1.0 + 0.001)
            self.now = int(time.monotonic())
            self.wheel.turn(self.now)
            for feed in self._topics.feeds.feeds():
                help_out = feed.tick()
                if help_out is not None:
                    await self._topics.in_thread(help_out)

    async def drain(self) -> None:
        """Send everybody away, and wait for what is under way."""
        self.is_ending = True
        deadline = time.monotonic() + limits.DRAIN_S
        for connection in list(self._connections):
            connection.drain()
        while (self._connections or self._routes.is_busy) and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)
        for connection in list(self._connections):
            if connection.transport is not None:
                connection.transport.abort()


class _Sibling:
    """Requests of other workers, which come by a socket of our own and need no further check."""

    def __init__(self, server: Server, routes: Routes) -> None:
        self._server = server
        self._routes = routes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    def answer(self, connection: Connection, request: Request) -> None:
        self._routes.answer(connection, request, is_inside=True)


async def serve(
    options: ServeOptions, listener: socket.socket, *, ready: Callable[[], None], stop: asyncio.Event,
    own: str = "", folder: str | None = None, parent: int | None = None,
) -> None:  # fmt: skip
    """Serve until asked to stop, or `parent` (a descriptor) says that it is gone; then drain."""
    loop = asyncio.get_running_loop()
    if parent is not None:
        loop.add_reader(parent, stop.set)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as steps:
        store = await steps.enter_async_context(aio.open(options.store))
        topics = ServedTopics(store, options)
        await topics.warm_up()
        steps.callback(topics.feeds.close)
        origins = Origins(origins=options.origins, hosts=options.hosts, local_only=options.access().is_open)
        routes = Routes(topics, options.access(), origins, own=own, folder=folder, pages=options.pages)
        server = Server(topics, routes, connections_most=_connections_most())
        tls = options.tls()
        listeners: Sequence[asyncio.Server] = [
            await loop.create_server(
                lambda: Connection(server),
                sock=listener,
                backlog=4096,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else limits.REQUEST_S,
            )
        ]
        if folder is not None:
            sibling: Any = _Sibling(server, routes)
            path = os.path.join(folder, own)
            with suppress(FileNotFoundError):
                os.unlink(path)
            listeners = [*listeners, await loop.create_unix_server(lambda: Connection(sibling), path)]
        ready()
        await server.run(stop)
        if parent is not None:
            loop.remove_reader(parent)  # it stays readable: the loop would turn without end
        for each in listeners:
            each.close()
        await server.drain()


def run(options: ServeOptions, listener: socket.socket, **more: Any) -> None:
    """Run a serving process from start to end."""
    try:
        import uvloop
    except ImportError:
        raise MissingExtra("uvloop", "server") from None
    stop = asyncio.Event()
    uvloop.run(serve(options, listener, stop=stop, **more))


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that shares its port with other workers."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Connections inherit these. A fixed buffer bounds what the kernel keeps for a client that does not read.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.SEND_BUFFER_BYTES)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limits.UNACKNOWLEDGED_S * 1000)
    listener.setblocking(False)
    listener.bind(address)
    return listener


def _connections_most() -> int:
    """Raise the limit of open files as far as possible and return how many connections fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return max(soft - _OTHER_FILES, 16)
