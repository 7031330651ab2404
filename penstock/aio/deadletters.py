"""The async dead letters."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.aio.threads import Threads
from penstock.consume import deadletters
from penstock.consume.deadletters import DeadLetter


class DeadLetters:
    """The dead letters of one topic; made by `Store.dead_letters`."""

    def __init__(self, blocking: deadletters.DeadLetters, threads: Threads) -> None:
        self._blocking = blocking
        self._threads = threads

    @property
    def topic(self) -> str:
        """The name of the topic whose dead letters they are."""
        return self._blocking.topic

    async def list(
        self, *, consumer: str | None = None, reason: str | None = None, limit: int = 1000
    ) -> list[DeadLetter]:
        """The oldest ones, at most `limit`: all, or those of a consumer, or whose reason or error says so."""
        return await self._threads.run(self._blocking.list, consumer=consumer, reason=reason, limit=limit)

    async def show(self, number: int) -> DeadLetter:
        """The one of that number; raises `OutOfRange` when it is none, or none any more."""
        return await self._threads.run(self._blocking.show, number)

    async def count(self) -> int:
        """How many there are."""
        return await self._threads.run(self._blocking.count)

    async def replay(
        self, numbers: int | Iterable[int] | None = None, *, consumer: str | None = None,
        reason: str | None = None, rate: float | None = None,
    ) -> int:  # fmt: skip
        """Have letters come again to the consumer they are of, at once; how many there were.

        All of them, or those of these numbers, of a consumer, or whose reason or error says so; at most
        `rate` a second. Each comes as attempt 2 and has the attempts that are left then. A process that dies
        meanwhile may leave some to be replayed twice, never not at all.
        """
        return await self._threads.run(
            self._blocking.replay, numbers, consumer=consumer, reason=reason, rate=rate
        )

    async def drop(
        self, numbers: int | Iterable[int] | None = None, *, consumer: str | None = None,
        reason: str | None = None,
    ) -> int:  # fmt: skip
        """Forget letters, chosen as for `replay`; how many there were. Their bytes go with retention."""
        return await self._threads.run(self._blocking.drop, numbers, consumer=consumer, reason=reason)

    def __repr__(self) -> str:
        return repr(self._blocking)
