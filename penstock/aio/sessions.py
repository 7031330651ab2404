"""The async sessions."""

from __future__ import annotations

from types import TracebackType

from penstock.aio.twin import Threads
from penstock.consume.options import Retry
from penstock.parse import Duration
from penstock.sessions import sessions


class Session:
    """One piece of work: a list of chunks. Made by `Sessions.open` and `Sessions.due`.

    With `async with` it is finished at the end, and stored when an exception leaves it.
    """

    def __init__(self, blocking: sessions.Session, threads: Threads) -> None:
        self._blocking = blocking
        self._threads = threads

    @property
    def id(self) -> str:
        """Tells it from any other session, for all its attempts."""
        return self._blocking.id

    @property
    def topic(self) -> str:
        """The topic that the session belongs to."""
        return self._blocking.topic

    @property
    def attempt(self) -> int:
        """1 when it was opened; each time it is delivered again it is one more."""
        return self._blocking.attempt

    @property
    def chunks(self) -> list[bytes]:
        """What was appended, in order."""
        return self._blocking.chunks

    @property
    def data(self) -> bytes:
        """All chunks, joined."""
        return self._blocking.data

    @property
    def last_error(self) -> str:
        """What went wrong the last time."""
        return self._blocking.last_error

    async def append(self, data: bytes) -> None:
        """Add a chunk."""
        await self._threads.run(self._blocking.append, data)

    async def replace(self, data: bytes) -> None:
        """Have this chunk in the place of all there are."""
        await self._threads.run(self._blocking.replace, data)

    async def finish(self) -> None:
        """Finish it: it is never delivered again. Raises `TakenElsewhere` if another process has it now."""
        await self._threads.run(self._blocking.finish)

    async def store(self, delay: Duration | None = None, *, error: BaseException | str | None = None) -> bool:
        """Put it away until later: after `delay`, but not sooner than its topic's policy says.

        Without a delay the policy's back-off decides. When it allows no further attempt the session becomes
        a dead letter in `<topic>.dead` instead, and False is returned.
        """
        return await self._threads.run(self._blocking.store, delay, error=error)

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._threads.run(self._blocking.__exit__, kind, error, trace)

    def __repr__(self) -> str:
        return repr(self._blocking)


class Sessions:
    """The sessions of a store, by topic; it is `Store.sessions`.

    Their topics are names of their own, not those of logs. One process at a time delivers what is due of a
    topic; when it ends or closes the store, the next one that asks goes on.
    """

    def __init__(self, blocking: sessions.Sessions, threads: Threads) -> None:
        self._blocking = blocking
        self._threads = threads

    async def declare(self, topic: str, retry: Retry) -> None:
        """Choose when sessions of a topic are delivered again, and how often; it is kept in the store.

        `retry.first` is the least that any of them waits.
        """
        await self._threads.run(self._blocking.declare, topic, retry)

    async def policy(self, topic: str) -> Retry:
        """What was declared for a topic, or else the default."""
        return await self._threads.run(self._blocking.policy, topic)

    async def open(self, topic: str, *, data: bytes | None = None, durable: bool = False) -> Session:
        """Begin a session. If this process dies it is lost; if it is `durable` it is delivered again."""
        opened = await self._threads.run(self._blocking.open, topic, data=data, durable=durable)
        return Session(opened, self._threads)

    async def due(self, topic: str, *, limit: int = 100, timeout: Duration = 0) -> list[Session]:
        """Sessions whose time has come, the earliest first; waits up to `timeout` when there are none.

        Each must be finished or stored again; those that were not when this process ends are delivered again.
        """
        found = await self._threads.run(self._blocking.due, topic, limit=limit, timeout=timeout)
        return [Session(each, self._threads) for each in found]

    async def count(self, topic: str) -> int:
        """How many wait or were delivered and are not settled."""
        return await self._threads.run(self._blocking.count, topic)

    async def topics(self) -> list[str]:
        """Names of topics that ever had a session stored or declared."""
        return await self._threads.run(self._blocking.topics)

    async def close(self) -> None:
        """Release the files; with the store."""
        await self._threads.run(self._blocking.close)

    def __repr__(self) -> str:
        return repr(self._blocking)
