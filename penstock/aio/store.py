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
from penstock.aio.sessions import Sessions
from penstock.aio.streams import Stream
from penstock.aio.topic import OpeningReader, Topic, opening_reader
from penstock.aio.transaction import Transaction
from penstock.aio.twin import Opening, Threads, in_own_thread
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
        self._store = store
        self._threads = threads
        self._groups: dict[int, Group] = {}
        self._writers: weakref.WeakSet[Writer[Any]] = weakref.WeakSet()

    @property
    def path(self) -> str:
        return self._store.path

    @property
    def read_only(self) -> bool:
        return self._store.read_only

    @property
    def id(self) -> str:
        """Tells this store from any other, wherever its folder is moved."""
        return self._store.id

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
    async def create_topic(
        self, name: str, *, exists_ok: bool = False, type: Any = None, **options: Any
    ) -> Any:
        """Make a topic; its options are those of `TopicOptions`, such as `partitions=3, retention="7d"`.

        With `exists_ok=True` one of that name is taken as it is, unless an option given here differs:
        then `InvalidOption` names it. `type` is as for `topic`.
        """
        create: Any = self._store.create_topic
        return self._topic(await self._threads.run(create, name, exists_ok=exists_ok, type=type, **options))

    @overload
    async def topic(self, name: str) -> Topic: ...
    @overload
    async def topic(self, name: str, *, type: type[T]) -> Topic[T]: ...
    @overload
    async def topic(self, name: str, *, type: Any) -> Topic[Any]: ...
    async def topic(self, name: str, *, type: Any = None) -> Any:
        """The topic of that name; raises `UnknownTopic`.

        With `type` its values are of that type, and JSON in the log: a msgspec Struct, a dataclass, a
        TypedDict, dict, list or number; `str` is stored as plain text.
        """
        find: Any = self._store.topic
        return self._topic(await self._threads.run(find, name, type=type))

    async def topics(self) -> list[Topic]:
        """All topics, by name."""
        return [self._topic(each) for each in await self._threads.run(self._store.topics)]

    async def drop_topic(self, name: str) -> None:
        """Remove a topic with all its messages and positions, for good.

        Readers and writers that have it open get `TopicReplaced`.
        """
        await self._threads.run(self._store.drop_topic, name)

    def transaction(self, *, name: str | None = None) -> Transaction:
        """Begin a transaction: what is written and committed in it becomes true together, or not at all.

        A `name` is never committed twice: the second one raises `AlreadyCommitted`.
        """
        return Transaction(self._store.transaction(name=name), self._threads)

    async def events(self, topic: str = "events") -> Events:
        """Live events: `push` under a key, `subscribe` to keys; the topic is made at first use.

        A topic that is there must have one partition and `index="key"`; a new one keeps events for an hour.
        """
        blocking = await self._threads.run(self._store.events, topic)
        return Events(blocking, await self.topic(topic), self._threads)

    async def stream(
        self, name: str, *,
        engine: StreamEngineOpener | None = None, bodies: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> Stream:  # fmt: skip
        """A subject stream: messages under subjects in one global sequence, read by durable consumers.

        Its topic is made at first use, with one partition and `index="key"`, and keeps messages for a week
        unless `options` (those of `create_topic`, such as `sync="os"` or `retention=None`) say otherwise.
        `bodies` is where bodies lie that others stored and `publish_message` only named: a folder, or
        s3://bucket/prefix. With an `engine` the stream is kept there instead (docs/streams.md).
        """
        open_stream: Any = self._store.stream
        blocking = await self._threads.run(open_stream, name, engine=engine, bodies=bodies, **options)
        return Stream(blocking, await self.topic(name) if engine is None else None, self._threads)

    async def import_diskq(
        self, path: str | os.PathLike[str], topic: str, *, owned_ok: bool = False, **options: Any
    ) -> Topic:
        """Bring a go-diskq folder into a new topic: partitions, offsets, keys, times, data, and its groups.

        Started again after a crash it goes on where it was; no message comes twice. Raises `AlreadyExists`
        for a topic that is there, `ConflictError` while a producer has the folder (`owned_ok=True` when it
        is known to be dead), `DataError` naming file and byte where an index disagrees with the data.
        `options` are those of `create_topic`, but for partitions and partitioner (docs/exchange.md).
        """
        bring_in: Any = self._store.import_diskq
        return self._topic(await self._threads.run(bring_in, path, topic, owned_ok=owned_ok, **options))

    @property
    def sessions(self) -> Sessions:
        """Changeable work that comes again later when it was not finished (docs/retries.md)."""
        return Sessions(self._store.sessions, self._threads)

    async def dead_letters(self, topic: str) -> DeadLetters:
        """Messages of a topic that consumers could not handle: list, show, replay and drop them."""
        return DeadLetters(await self._threads.run(self._store.dead_letters, topic), self._threads)

    # Consumers.

    def reader(
        self, topics: str | Topic | Sequence[str | Topic], *, consumer: str | None = None,
        start: Place = "earliest", partitions: Sequence[int] | None = None, follow: bool = True,
        on_gap: Literal["raise", "skip"] = "raise", create: bool = True, read_from: Moment | None = None,
        max_lag: Duration | None = None, handover: Duration = "30s", retry: Retry | None = None,
        kind: Kind = "stream", lease: Duration = "30s",
    ) -> OpeningReader[Any]:  # fmt: skip
        """A live reader over several topics, in turn; each batch is of one topic.

        The options are those of `Topic.reader`, and hold for each topic.
        """
        wanted: Any = topics  # what it is not is told by the blocking twin
        if isinstance(topics, Topic):
            wanted = topics._topic
        elif isinstance(topics, Sequence) and not isinstance(topics, str):
            wanted = [each._topic if isinstance(each, Topic) else each for each in topics]
        return opening_reader(
            self._threads, self._store.reader, wanted, consumer=consumer, start=start, partitions=partitions,
            follow=follow, on_gap=on_gap, create=create, read_from=read_from, max_lag=max_lag,
            handover=handover, retry=retry, kind=kind, lease=lease,
        )  # fmt: skip

    async def consumers(self) -> list[str]:
        """Names of all consumers."""
        return await self._threads.run(self._store.consumers)

    # Pipelines.

    async def pipelines(self) -> list[sync.Pipeline]:
        """All pipelines, by name, with how their latest run goes or went."""
        return await self._threads.run(self._store.pipelines)

    async def pipeline(self, name: str) -> sync.Pipeline:
        """The pipeline of that name; raises `UnknownPipeline`."""
        return await self._threads.run(self._store.pipeline, name)

    async def stop_pipeline(self, name: str, *, timeout: float = 60.0) -> bool:
        """Ask a running pipeline to end behind its present batch, and wait; False when time ran out."""
        return await self._threads.run(self._store.stop_pipeline, name, timeout=timeout)

    async def drop_pipeline(self, name: str) -> None:
        """Forget a pipeline and its checkpoint; raises `PipelineRunning` while it runs.

        Its consumer and what it wrote stay. Under the same name it begins anew.
        """
        await self._threads.run(self._store.drop_pipeline, name)

    # The store itself.

    async def flush_housekeeping(self, timeout: float = 60.0) -> bool:
        """Append delayed messages that are due, and wait until indexes and repacking that this process owes
        are done; False when time ran out.
        """
        return await self._threads.run(self._store.flush_housekeeping, timeout)

    async def check_state(self) -> list[str]:
        """What is wrong with `state.db`; empty when nothing."""
        return await self._threads.run(self._store.check_state)

    async def close(self) -> None:
        """Make everything durable and let go of the folder; open writers are closed first.

        Raises if anything could not be stored. Calling it twice is fine.
        """
        async with AsyncExitStack() as steps:
            steps.push_async_callback(in_own_thread, self._store.close)
            steps.push_async_callback(self._threads.end, _CLOSE_WAIT_S)
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
        return repr(self._store)

    # Inside.

    def _topic(self, topic: sync.Topic[T]) -> Topic[T]:
        group = self._groups.get(topic.id)
        if group is None:
            group = self._groups[topic.id] = Group(topic.open_topic, self._threads)
        return Topic(topic, group, self._writers, self._threads)


def _close_unwanted(opening: asyncio.Future[sync.Store]) -> None:
    """Whoever opened the store was cancelled meanwhile: close it, or its locks would stay."""
    if opening.exception() is None:
        opening.get_loop().run_in_executor(None, opening.result().close)
