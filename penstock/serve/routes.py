"""The routes of live events: what each URL does.

POST /v1/events                push
GET  /v1/events                long poll; with `Accept: text/event-stream` SSE; with an upgrade WebSocket
GET  /v1/events/presence       how many listen
GET  /health
GET  /penstock.js              the client for browsers; and the pages of a folder, if one is served
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol
from urllib.parse import urlencode

import msgspec

from penstock.errors import InvalidOption, PenstockError, TopicReplaced
from penstock.events.event import Pushed
from penstock.events.event_query import EventQuery
from penstock.keys import Match, match, shown_key, spoken_key, spoken_prefix
from penstock.parse import seconds, whole
from penstock.serve import limits, static_files
from penstock.serve.access import Access, Grant, Origins
from penstock.serve.feed import Feed, Feeds, Start
from penstock.serve.http_connection import Connection
from penstock.serve.http_messages import PendingReply, Refusal, Request
from penstock.serve.idempotency import push_once
from penstock.serve.long_poll import LongPoll
from penstock.serve.push import Groups, Push, PushStore, read_push
from penstock.serve.sse import HEAD as SSE_HEAD
from penstock.serve.sse import SseStream
from penstock.serve.websocket import WebSocketStream, handshake

PATH = "/v1/events/presence"
_PATIENCE_S = 1.0


def counted(feed: Feed, keys: Sequence[bytes]) -> list[int]:
    """How many of this process hear each key."""
    return [len(feed.listeners(key)) for key in keys]


async def everywhere(feed: Feed, spoken: Sequence[str], own: str, folder: str | None) -> dict[str, Any]:
    """How many hear each key, over all workers whose sockets lie in `folder`."""
    keys = [spoken_key(text) for text in spoken]
    counts = counted(feed, keys)
    others = [os.path.join(folder, name) for name in os.listdir(folder) if name != own] if folder else []
    answers = await asyncio.gather(*(_ask(path, feed.topic, spoken) for path in others))
    for answer in answers:
        if answer is not None and len(answer) == len(counts):
            counts = [mine + theirs for mine, theirs in zip(counts, answer, strict=True)]
    return {
        "keys": [{"key": shown_key(key), "count": count} for key, count in zip(keys, counts, strict=True)],
        "complete": None not in answers,
    }


async def _ask(path: str, topic: str, spoken: Sequence[str]) -> list[int] | None:
    query = urlencode([("topic", topic), *(("key", text) for text in spoken)])
    try:
        async with asyncio.timeout(_PATIENCE_S):
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                writer.write(
                    f"GET {PATH}?{query} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
                )
                answer = await reader.read()
            finally:
                writer.close()
        body = msgspec.json.decode(answer.partition(b"\r\n\r\n")[2])
        return [each["count"] for each in body["keys"]]
    except (OSError, TimeoutError, msgspec.DecodeError, KeyError, TypeError):
        return None


logger = logging.getLogger("penstock.serve")

_WAIT_S = 25.0
_ASKED = ("key", "prefix", "cursor", "timeout", "rewind", "since", "limit", "topic", "token")


class RoutedTopics(PushStore, Protocol):
    """What routes need to know of the store."""

    feeds: Feeds
    default: str

    def require(self, topic: str) -> None: ...
    async def in_thread(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any: ...
    @property
    def store(self) -> Any: ...


class Routes:
    """Answers requests."""

    def __init__(
        self, topics: RoutedTopics, access: Access, origins: Origins, *, own: str = "",
        folder: str | None = None, pages: str | None = None,
    ) -> None:  # fmt: skip
        self._topics = topics
        self._access = access
        self._origins = origins
        #: Where the workers' sockets lie, and which one is ours.
        self._own, self._folder = own, folder
        self._pages = pages
        self._tasks: set[asyncio.Task[None]] = set()
        self._groups = Groups(topics, self._refuse)

    @property
    def is_busy(self) -> bool:
        """Whether requests are being answered or pushes being stored."""
        return bool(self._tasks) or self._groups.is_busy

    def answer(self, connection: Connection, request: Request, *, is_inside: bool = False) -> None:
        """Answer now, or later; `is_inside` for requests of other workers, which were checked there."""
        try:
            if logger.isEnabledFor(logging.DEBUG):
                logger.debug("%s", request.shown())
            connection.extra_headers = b"" if is_inside else self._origins.check(request)
            self._route(connection, request, is_inside)
        except PenstockError as error:
            self._refuse(connection, error)
        except Exception as error:  # noqa: BLE001 - the server's boundary: one request must not end the others
            self._refuse(connection, error)

    def _route(self, connection: Connection, request: Request, is_inside: bool) -> None:
        is_read = request.method in ("GET", "HEAD")
        if request.method == "OPTIONS":
            connection.reply(200, b"", self._origins.preflight())
        elif request.path == "/v1/events":
            if request.method == "POST":
                self._push(connection, request)
            elif request.method == "GET":
                self._subscribe(connection, request)
            else:
                raise Refusal(405, f"{request.method} makes no sense here", "GET or POST")
        elif request.path == PATH and request.method == "GET":
            self._presence(connection, request, is_inside)
        elif request.path == "/health" and is_read:
            connection.reply(200, b'{"status":"ok"}')
        elif is_read and request.path in static_files.names():
            self._show(connection, static_files.own_asset(request))
        elif is_read and self._pages is not None and not request.path.startswith("/v1/"):
            self._page(connection, request, self._pages)
        else:
            raise Refusal(404, f"there is nothing at {request.path[:60]!r}", "/v1/events")

    def _page(self, connection: Connection, request: Request, folder: str) -> None:
        async def read() -> None:
            self._show(connection, await self._topics.in_thread(static_files.page, request, folder))

        self._start(connection, read())

    def _show(self, connection: Connection, asset: static_files.Asset) -> None:
        connection.reply(asset.status, asset.body, asset.headers)

    # Pushing.

    def _push(self, connection: Connection, request: Request) -> None:
        request.refuse_unknown("topic", "token")
        topic = self._topic(request)
        push = read_push(request, self._required(request), topic)
        self._groups.require_room()
        if "idempotency-key" in request.headers:
            self._start(connection, self._store_once(connection, request, topic, push))
        else:
            self._groups.add(topic, push, connection.reply_later())

    async def _store_once(self, connection: Connection, request: Request, topic: str, push: Push) -> None:
        who = self._who(request)

        def store(*, anew: bool = False) -> Pushed:
            return push_once(
                self._topics.store, self._topics.find(topic, anew=anew), push,
                key=request.headers["idempotency-key"], who=who, body=request.body,
            )  # fmt: skip

        try:
            pushed = await self._topics.in_thread(store)
        except TopicReplaced:
            pushed = await self._topics.in_thread(store, anew=True)
        self._topics.stored(topic)
        connection.reply(200, msgspec.json.encode(pushed))

    def _who(self, request: Request) -> str:
        """Whose idempotency keys these are: those of different users never meet."""
        return "\0".join(sorted(self._required(request).names))

    # Subscribing.

    def _subscribe(self, connection: Connection, request: Request) -> None:
        request.refuse_unknown(*_ASKED)
        topic = self._topic(request)
        asked, start = _asked(request), _start(request)
        if request.upgrade and request.headers.get("upgrade", "").lower() == "websocket":
            self._by_websocket(connection, request, topic, asked, start)
            return
        grant = self._required(request)
        grant.require_subscribe(topic, asked)
        if not asked.keys and not asked.prefixes:
            raise InvalidOption("nothing to subscribe to", hint='?key=news&key=["chat",345]&prefix=["user"]')
        feed = self._feed(topic)
        if "text/event-stream" in request.headers.get("accept", "").lower():
            last = request.headers.get("last-event-id")
            sse, head = SseStream(connection, feed, grant), SSE_HEAD % connection.extra_headers
            self._begin(
                connection, feed, asked, start if not last else Start(last), limits.CATCH_UP_EVENTS,
                lambda question: sse.begin(head, asked, question, connection.now),
            )  # fmt: skip
            return
        timeout = min(seconds("timeout", _duration(request.one("timeout"))), limits.WAIT_S_MOST)
        limit = _number("limit", request.one("limit"))
        limit = limits.ANSWER_EVENTS if limit is None else whole("limit", limit, 1, limits.ANSWER_EVENTS)
        poll = LongPoll(connection, feed, grant, asked, limit)
        wait_s = timeout if start.cursor is not None else 0.0
        self._begin(connection, feed, asked, start, limit, lambda question: poll.ask(question, wait_s))

    def _by_websocket(
        self, connection: Connection, request: Request, topic: str, asked: Match, start: Start
    ) -> None:
        grant = self._access.grant(request)
        if grant is not None:
            grant.require_subscribe(topic, asked)
        head, feed = handshake(request), self._feed(topic)
        stream = WebSocketStream(connection, feed, grant, self._access, asked, start)
        # What makes no sense is refused while HTTP can say so.
        self._begin(
            connection, feed, asked, start, limits.CATCH_UP_EVENTS,
            lambda question: stream.open(head, question, connection.now),
        )  # fmt: skip

    def _begin(
        self, connection: Connection, feed: Feed, asked: Match, start: Start, limit: int,
        answer: Callable[[EventQuery], None],
    ) -> None:  # fmt: skip
        """Find where a subscriber begins, in a thread if old segments may have to be read for it."""
        if start.rewind is None and start.since is None:
            answer(feed.begin(asked, start, limit))
            return

        async def begin() -> None:
            question = await self._topics.in_thread(feed.question, asked, start, limit)
            feed.reach(question.next)
            if connection.is_open:
                answer(question)

        self._start(connection, begin())

    def _presence(self, connection: Connection, request: Request, is_inside: bool) -> None:
        request.refuse_unknown("key", "topic", "token")
        topic = self._topic(request)
        spoken = request.query.get("key", [])
        asked = match([spoken_key(text) for text in spoken])
        if not spoken or len(spoken) > limits.KEYS_MOST:
            raise InvalidOption("presence of which keys?", hint="?key=news")
        if not is_inside:
            self._required(request).require_subscribe(topic, asked)
        feed = self._feed(topic)
        others = None if is_inside else self._folder

        async def tell() -> None:
            told = await everywhere(feed, spoken, self._own, others)
            connection.reply(200, msgspec.json.encode(told))

        self._start(connection, tell())

    # Inside.

    def _topic(self, request: Request) -> str:
        topic = request.one("topic") or self._topics.default
        self._topics.require(topic)
        return topic

    def _feed(self, topic: str) -> Feed:
        return self._topics.feeds.feed(topic)

    def _required(self, request: Request) -> Grant:
        grant = self._access.grant(request)
        if grant is None:
            raise Refusal(401, "this server wants a token", "Authorization: Bearer TOKEN")
        return grant

    def _start(self, connection: Connection, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._done(connection, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _done(self, connection: Connection, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - as in `answer`
            self._refuse(connection, error)

    def _refuse(self, connection: Connection | PendingReply, error: Exception) -> None:
        if not isinstance(error, PenstockError):
            logger.error("a request failed", exc_info=error)
            error = Refusal(500, "something went wrong here")
        connection.refuse(error)


def _asked(request: Request) -> Match:
    keys, prefixes = request.query.get("key", []), request.query.get("prefix", [])
    if len(keys) + len(prefixes) > limits.KEYS_MOST:
        raise InvalidOption(f"more than {limits.KEYS_MOST} keys and prefixes")
    return match([spoken_key(text) for text in keys], [spoken_prefix(text) for text in prefixes])


def _start(request: Request) -> Start:
    cursor, rewind, since = request.one("cursor"), request.one("rewind"), request.one("since")
    if sum(given is not None for given in (cursor, rewind, since)) > 1:
        raise InvalidOption("cursor, rewind and since each say where to begin", hint="give one of them")
    return Start(cursor or None, _number("rewind", rewind), since)


def _number(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise InvalidOption(f"{name}={text[:30]!r} is not a whole number")
    return int(text)


def _duration(text: str | None) -> str | float:
    """A time-out as it stands in a URL: seconds, or with a unit."""
    if text is None:
        return _WAIT_S
    try:
        return float(text)
    except ValueError:
        return text
