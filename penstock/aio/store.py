"""The async store: a folder of topics, opened in an event loop."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Literal, TypeVar, overload

from penstock import store as sync
from penstock.aio.events import Events
from penstock.aio.group_commit import Group
from penstock.aio.reader import DeadLetters
from penstock.aio.scan import SqlResult
from penstock.aio.sessions import Sessions
from penstock.aio.streams import Stream
from penstock.aio.topic import OpeningReader, Topic, opening_reader
from penstock.aio.transaction import Transaction
from penstock.aio.twin import Opening, Threads, awaited, forwarded, in_own_thread, mirrored
from penstock.aio.writer import Writer
from penstock.clock import Clock
from penstock.consume.options import Kind, Moment, Retry
from penstock.errors import PenstockError
from penstock.files import Files
from penstock.parse import Duration
from penstock.place import Place
from penstock.streams.open import StreamEngineOpener

#: How long `close` waits for calls that are under way in threads.
_CLOSE_WAIT_S = 10.0

T = TypeVar("T")


def open(
    path: str | os.PathLike[str],
    *,
    create: bool = True,
    read_only: bool = False,
    exclusive: bool = False,
    files: Files | None = None,
    clock: Clock | None = None,
) -> Opening[Store]:
    """Open the store in a folder, making it if need be: `async with penstock.aio.open("data") as store`.

    Everything is as with `penstock.open`, whose stores may be open at the same time, here or elsewhere.
    """

    async def opened() -> Store:
        threads = Threads()
        opening = threads.start(
            sync.open_store, path, create=create, read_only=read_only, exclusive=exclusive, files=files,
            clock=clock,
        )  # fmt: skip
        try:
            return Store(await asyncio.shield(opening), threads)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_unwanted)
            raise

    return Opening(opened)


class Store:
    """An open store. Use it with `async with`, or await `close`."""

    def __init__(self, store: sync.Store, threads: Threads) -> None:
        self.blocking = store
        self.threads = threads
        self._groups: dict[int, Group] = {}
        self._writers: weakref.WeakSet[Writer[Any]] = weakref.WeakSet()

    @property
    def path(self) -> str:
        """The store's folder."""
        return self.blocking.path

    @property
    def read_only(self) -> bool:
        """Whether the store may only be read."""
        return self.blocking.read_only

    id = forwarded[str](sync.Store.id)

    # Topics.

    @overload
    async def create_topic(
        self, name: str, *, exists_ok: bool = False, type: type[T], **options: Any
    ) -> Topic[T]: ...
    @overload
    async def create_topic(
        self, name: str, *, exists_ok: bool = False, type: Any, **options: Any
    ) -> Topic[Any]: ...
    @overload
    async def create_topic(self, name: str, *, exists_ok: bool = False, **options: Any) -> Topic: ...
    @mirrored(sync.Store.create_topic)
    async def create_topic(
        self, name: str, *, exists_ok: bool = False, type: Any = None, **options: Any
    ) -> Any:
        create: Any = self.blocking.create_topic
        return self._topic(await self.threads.run(create, name, exists_ok=exists_ok, type=type, **options))

    @overload
    async def topic(self, name: str) -> Topic: ...
    @overload
    async def topic(self, name: str, *, type: type[T]) -> Topic[T]: ...
    @overload
    async def topic(self, name: str, *, type: Any) -> Topic[Any]: ...
    @mirrored(sync.Store.topic)
    async def topic(self, name: str, *, type: Any = None) -> Any:
        find: Any = self.blocking.topic
        return self._topic(await self.threads.run(find, name, type=type))

    @mirrored(sync.Store.topics)
    async def topics(self) -> list[Topic]:
        return [self._topic(each) for each in await self.threads.run(self.blocking.topics)]

    drop_topic = awaited(sync.Store.drop_topic)

    @mirrored(sync.Store.transaction)
    def transaction(self, *, name: str | None = None) -> Transaction:
        return Transaction(self.blocking.transaction(name=name), self.threads)

    @mirrored(sync.Store.events)
    async def events(self, topic: str = "events") -> Events:
        blocking = await self.threads.run(self.blocking.events, topic)
        return Events(blocking, await self.topic(topic), self.threads)

    @mirrored(sync.Store.stream)
    async def stream(
        self, name: str, *,
        engine: StreamEngineOpener | None = None, bodies: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> Stream:  # fmt: skip
        open_stream: Any = self.blocking.stream
        blocking = await self.threads.run(open_stream, name, engine=engine, bodies=bodies, **options)
        return Stream(blocking, await self.topic(name) if engine is None else None, self.threads)

    @mirrored(sync.Store.import_diskq)
    async def import_diskq(
        self, path: str | os.PathLike[str], topic: str, *, owned_ok: bool = False, **options: Any
    ) -> Topic:
        bring_in: Any = self.blocking.import_diskq
        return self._topic(await self.threads.run(bring_in, path, topic, owned_ok=owned_ok, **options))

    @property
    def sessions(self) -> Sessions:
        """Changeable work that is delivered again later when it was not finished (docs/retries.md)."""
        return Sessions(self.blocking.sessions, self.threads)

    @mirrored(sync.Store.dead_letters)
    async def dead_letters(self, topic: str) -> DeadLetters:
        return DeadLetters(await self.threads.run(self.blocking.dead_letters, topic), self.threads)

    @mirrored(sync.Store.sql)
    async def sql(self, text: str) -> SqlResult:
        return SqlResult(await self.threads.run(self.blocking.sql, text), self.threads)

    # Consumers.

    @mirrored(sync.Store.reader)
    def reader(
        self, topics: str | Topic | Sequence[str | Topic], *, consumer: str | None = None,
        start: Place = "earliest", partitions: Sequence[int] | None = None, follow: bool = True,
        on_gap: Literal["raise", "skip"] = "raise", create: bool = True, read_from: Moment | None = None,
        max_lag: Duration | None = None, handover: Duration = "30s", retry: Retry | None = None,
        kind: Kind = "stream", lease: Duration = "30s",
    ) -> OpeningReader[Any]:  # fmt: skip
        wanted: Any = topics  # what it is not is told by the blocking twin
        if isinstance(topics, Topic):
            wanted = topics.blocking
        elif isinstance(topics, Sequence) and not isinstance(topics, str):
            wanted = [each.blocking if isinstance(each, Topic) else each for each in topics]
        return opening_reader(
            self.threads, self.blocking.reader, wanted, consumer=consumer, start=start, partitions=partitions,
            follow=follow, on_gap=on_gap, create=create, read_from=read_from, max_lag=max_lag,
            handover=handover, retry=retry, kind=kind, lease=lease,
        )  # fmt: skip

    consumers = awaited(sync.Store.consumers)
    # Pipelines.

    pipelines = awaited(sync.Store.pipelines)
    pipeline = awaited(sync.Store.pipeline)
    stop_pipeline = awaited(sync.Store.stop_pipeline)
    drop_pipeline = awaited(sync.Store.drop_pipeline)
    # The store itself.

    flush_housekeeping = awaited(sync.Store.flush_housekeeping)
    check_state = awaited(sync.Store.check_state)

    @mirrored(sync.Store.close)
    async def close(self) -> None:
        async with AsyncExitStack() as steps:
            steps.push_async_callback(in_own_thread, self.blocking.close)
            steps.push_async_callback(self.threads.end, _CLOSE_WAIT_S)
            for writer in list(self._writers):
                steps.push_async_callback(writer.close)

    async def __aenter__(self) -> Store:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
            return
        try:
            await self.close()
        except PenstockError as second:  # must not hide the error that is on its way
            error.add_note(f"closing the store failed too: {second}")

    def __repr__(self) -> str:
        return repr(self.blocking)

    # Inside.

    def _topic(self, topic: sync.Topic[T]) -> Topic[T]:
        group = self._groups.get(topic.id)
        if group is None:
            group = self._groups[topic.id] = Group(topic.open_topic, self.threads)
        return Topic(topic, group, self._writers, self.threads)


def _close_unwanted(opening: asyncio.Future[sync.Store]) -> None:
    """Close a store whose opening was cancelled meanwhile, or its locks would stay."""
    if opening.exception() is None:
        opening.get_loop().run_in_executor(None, opening.result().close)
