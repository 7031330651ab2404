"""The async sessions."""

from __future__ import annotations

from types import TracebackType

from penstock.aio.twin import Threads, awaited, forwarded, mirrored
from penstock.parse import Duration
from penstock.sessions import sessions


class Session:
    """One piece of work: a list of chunks. Made by `Sessions.open` and `Sessions.due`.

    With `async with` it is finished at the end, and stored when an exception leaves it.
    """

    def __init__(self, blocking: sessions.Session, threads: Threads) -> None:
        self.blocking = blocking
        self.threads = threads

    id = forwarded[str](sessions.Session.id)
    topic = forwarded[str](sessions.Session.topic)
    attempt = forwarded[int](sessions.Session.attempt)
    chunks = forwarded[list[bytes]](sessions.Session.chunks)
    data = forwarded[bytes](sessions.Session.data)
    last_error = forwarded[str](sessions.Session.last_error)
    append = awaited(sessions.Session.append)
    replace = awaited(sessions.Session.replace)
    finish = awaited(sessions.Session.finish)
    store = awaited(sessions.Session.store)

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.threads.run(self.blocking.__exit__, kind, error, trace)

    def __repr__(self) -> str:
        return repr(self.blocking)


class Sessions:
    """The sessions of a store, by topic; it is `Store.sessions`.

    Their topics are names of their own, not those of logs. One process at a time delivers what is due of a
    topic; when it ends or closes the store, the next one that asks goes on.
    """

    def __init__(self, blocking: sessions.Sessions, threads: Threads) -> None:
        self.blocking = blocking
        self.threads = threads

    declare = awaited(sessions.Sessions.declare)
    policy = awaited(sessions.Sessions.policy)
    count = awaited(sessions.Sessions.count)
    topics = awaited(sessions.Sessions.topics)
    close = awaited(sessions.Sessions.close)

    @mirrored(sessions.Sessions.open)
    async def open(self, topic: str, *, data: bytes | None = None, durable: bool = False) -> Session:
        opened = await self.threads.run(self.blocking.open, topic, data=data, durable=durable)
        return Session(opened, self.threads)

    @mirrored(sessions.Sessions.due)
    async def due(self, topic: str, *, limit: int = 100, timeout: Duration = 0) -> list[Session]:
        found = await self.threads.run(self.blocking.due, topic, limit=limit, timeout=timeout)
        return [Session(each, self.threads) for each in found]

    def __repr__(self) -> str:
        return repr(self.blocking)
