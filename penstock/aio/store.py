"""The async store: a folder of topics, opened in an event loop."""

from __future__ import annotations

import asyncio
import os
import weakref
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any

from penstock import store as sync
from penstock.aio.group import Group
from penstock.aio.opening import Opening
from penstock.aio.threads import Threads, in_own_thread
from penstock.aio.topic import Topic
from penstock.aio.writer import Writer
from penstock.clock import Clock
from penstock.errors import PenstockError
from penstock.files import Files

#: How long `close` waits for calls that are under way in threads.
_CLOSE_WAIT_S = 10.0


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
        self._writers: weakref.WeakSet[Writer] = weakref.WeakSet()

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

    async def create_topic(self, name: str, *, exists_ok: bool = False, **options: Any) -> Topic:
        """Make a topic; its options are those of `TopicOptions`, such as `partitions=3, retention="7d"`.

        With `exists_ok=True` one of that name is taken as it is, unless an option given here differs:
        then `InvalidOption` names it.
        """
        run = self._threads.run
        return self._topic(await run(self._store.create_topic, name, exists_ok=exists_ok, **options))

    async def topic(self, name: str) -> Topic:
        """The topic of that name; raises `UnknownTopic`."""
        return self._topic(await self._threads.run(self._store.topic, name))

    async def topics(self) -> list[Topic]:
        """All topics, by name."""
        return [self._topic(each) for each in await self._threads.run(self._store.topics)]

    async def drop_topic(self, name: str) -> None:
        """Remove a topic with all its messages and positions, for good.

        Readers and writers that have it open get `TopicReplaced`.
        """
        await self._threads.run(self._store.drop_topic, name)

    async def consumers(self) -> list[str]:
        """Names of all consumers."""
        return await self._threads.run(self._store.consumers)

    # The store itself.

    async def flush_housekeeping(self, timeout: float = 60.0) -> bool:
        """Wait until indexes and repacking that this process owes are done; False when time ran out."""
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

    def _topic(self, topic: sync.Topic) -> Topic:
        group = self._groups.get(topic.id)
        if group is None:
            group = self._groups[topic.id] = Group(topic._partitions, self._threads)
        return Topic(topic, group, self._writers, self._threads)


def _close_unwanted(opening: asyncio.Future[sync.Store]) -> None:
    """Whoever opened the store was cancelled meanwhile: close it, or its locks would stay."""
    if opening.exception() is None:
        opening.get_loop().run_in_executor(None, opening.result().close)
