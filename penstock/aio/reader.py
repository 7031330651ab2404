"""The async live reader: waits without a thread, reads in one only where that may take time.

Where reading happens was measured. Looking for something new costs 2 µs in the loop and 140 µs
through a thread; with a thousand idle readers that look once a second it is the difference between
nothing and an eighth of a processor. So a reader that is at the end looks in the loop: what it finds
was written a moment ago and lies in memory. A reader that has a backlog reads in a thread: segments
must be mapped, their checksums computed, their indexes perhaps made.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar

from penstock.aio.bell import Bell
from penstock.aio.processing import run
from penstock.aio.threads import Threads
from penstock.consume import reader as consume
from penstock.consume.desk import Summary
from penstock.consume.lag import Lag
from penstock.consume.policy import Retry
from penstock.consume.source import Gap
from penstock.consume.taking import Transactional
from penstock.errors import UsageError
from penstock.message import Batch, Message, V
from penstock.options import MIB, Duration, Place, Size, size, whole

P = ParamSpec("P")
T = TypeVar("T")


class Reader(Generic[V]):
    """Reads topics as a consumer, or without one; one coroutine at a time may receive.

    Others may commit meanwhile. Within a partition messages come in order; between partitions in turn.
    Without a consumer nothing is saved. Use it with `async with`.
    """

    def __init__(self, blocking: consume.Reader[V], threads: Threads) -> None:
        self._blocking = blocking
        self._threads = threads
        self._bell = Bell()
        blocking.bell.hearer = self._bell.ring
        self._found: Batch[V] | None = None
        self._at_end = False
        self._receiving = False
        self._working: asyncio.Future[Any] | None = None

    @property
    def consumer(self) -> str | None:
        return self._blocking.consumer

    @property
    def gaps(self) -> list[Gap]:
        """Offsets that were passed over with on_gap="skip", oldest first."""
        return self._blocking.gaps

    @property
    def skipped(self) -> list[Gap]:
        """Offsets that were passed over because of `read_from` and `max_lag`, oldest first."""
        return self._blocking.skipped

    # Receiving.

    async def receive(self, timeout: float | None = None) -> Message[V] | None:
        """The next message; None when none came within `timeout` seconds (for ever by default).

        With `follow=False` also None at the end. Cancelled, it has taken nothing.
        """
        message = self._blocking._next_ready()
        if message is None:
            batch = await self.receive_batch(self._blocking.fetches, timeout=timeout)
            message = self._blocking._hand_out(batch)
        return message

    async def receive_batch(
        self, max_messages: int = 1000, max_bytes: Size = 8 * MIB, timeout: float | None = None,
        tx: Transactional | None = None,
    ) -> Batch[V]:  # fmt: skip
        """What comes next from one partition, one message at least; empty after `timeout` seconds.

        With `follow=False` also empty at the end. Cancelled, it has taken nothing. In a transaction it is
        committed with it; rolled back, it is delivered again.
        """
        whole("max_messages", max_messages, 1, 2**31)
        limit = size("max_bytes", max_bytes)
        self._begin_receiving()
        try:
            if tx is not None:
                self._blocking.take(None, tx)
            batch = await self._receive_batch(max_messages, limit, timeout)
        finally:
            self._receiving = False
        if tx is not None:
            self._blocking.take(batch, tx)
        return batch

    def __aiter__(self) -> Reader[V]:
        return self

    async def __anext__(self) -> Message[V]:
        message = self._blocking._next_ready()
        while message is None:
            message = self._blocking._hand_out(await self.receive_batch(self._blocking.fetches))
            if message is None and not self._blocking._follows:
                raise StopAsyncIteration
        return message

    # Committing and moving.

    async def commit(self, done: Message[Any] | Batch[Any], *, tx: Transactional | None = None) -> None:
        """Messages are done: the consumer will not get them again.

        In any order; the stored position is the first one that is not done. Raises `PartitionLost` when
        the partition went to another member, or was moved, since they were delivered: they come again.
        The reader goes on with what it has. With `tx` they are done when the transaction commits.
        """
        await self._alone(self._blocking.commit, done, tx=tx)

    async def retry(
        self, message: Message[Any], *, after: Duration | None = None,
        error: BaseException | str | None = None,
    ) -> bool:  # fmt: skip
        """Have a message come again later, to this consumer only, and commit it, in one step.

        It comes after `after`, or else as the reader's `retry` policy says, with `message.attempt` one
        higher; `error` is kept with it. When the policy allows no further attempt it becomes a dead letter
        instead, and False is returned. A process that dies in between leaves it to come once more, never
        less. Raises `PartitionLost` when the partition went to another member: it comes again there.
        """
        return await self._alone(self._blocking.retry, message, after=after, error=error)

    async def reject(self, message: Message[Any], reason: str) -> None:
        """Make a message a dead letter, now, and commit it: it lies in `<topic>.dead` with its reason."""
        await self._alone(self._blocking.reject, message, reason)

    async def process(
        self, handler: Callable[[Message[V]], object], *, workers: int = 1, retry: Retry | None = None,
        follow: bool = True, keep_order: bool = False,
    ) -> Summary:  # fmt: skip
        """Call `handler` with each message: commit it when that returns, try it again later when it raises.

        The handler is a coroutine function; `workers` is how many of them run at a time. `retry` says
        when messages are tried again, and when they become dead letters; else the reader's policy does. With
        `keep_order` messages of one key are handled one after the other, and wait while an earlier one
        waits; other keys go on. `follow=False` ends when nothing is left now; else `stop` ends it, when what
        runs is done. Cancelled, so are the handlers, and their messages come again.
        """
        self._begin_receiving()
        try:
            desk = self._blocking.desk(retry, keep_order, workers)
            await run(self, desk, handler, workers=workers, follow=follow)
        finally:
            self._receiving = False
        return desk.summary

    def stop(self) -> None:
        """Have `process` end, from any thread or from its handler, when what runs is done."""
        self._blocking.stop()

    async def seek(self, place: Place) -> None:
        """Go on from `place` in every partition it reads; with a consumer the place is stored at once."""
        await self._alone(self._seek, place)

    @property
    def assigned(self) -> list[tuple[str, int]]:
        """(topic, partition) of everything this reader reads now."""
        return self._blocking.assigned

    async def lag(self) -> Lag:
        """What is stored in the partitions it reads and was not yet delivered: messages, bytes, seconds."""
        return await self._alone(self._blocking.lag)

    async def close(self) -> None:
        """Let go of all partitions; who waits in `receive` gets `Closed`. Never waits."""
        self._blocking.close()

    async def __aenter__(self) -> Reader[V]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Inside.

    def _begin_receiving(self) -> None:
        if self._receiving:
            raise UsageError("another coroutine is receiving from this reader", hint="open a reader for each")
        self._receiving = True

    async def _receive_batch(self, max_messages: int, limit: int, timeout: float | None) -> Batch[V]:
        deadline = None if timeout is None else time.monotonic() + timeout
        # A reader at the end never waits in between when there is always something new, so it lets
        # others have their turn here, before it takes anything that a cancellation could lose.
        await asyncio.sleep(0)
        while True:
            batch = await self._poll(max_messages, limit)
            if batch is not None:
                return batch
            pause = self._blocking._pause(deadline)
            if pause is None:
                return Batch(self._blocking._topics[0].name, ())
            await self._bell.wait(pause)

    async def _poll(self, max_messages: int, limit: int) -> Batch[V] | None:
        await self._idle()
        if self._found is not None:  # by a call that was cancelled
            self._blocking._put_back(self._found)
            self._found = None
        elif not self._blocking._has_ready() and (not self._at_end or self._blocking._reads_waiting()):
            await self._alone(self._look, max_messages, limit)
            batch, self._found = self._found, None
            self._at_end = batch is None
            return batch
        batch = self._blocking.poll(max_messages, limit)
        self._at_end = batch is None or (self._at_end and len(batch) < max_messages)
        return batch

    def _look(self, max_messages: int, limit: int) -> None:
        """In a thread; what it finds is kept here, since whoever asked may be gone."""
        self._found = self._blocking.poll(max_messages, limit)

    def _seek(self, place: Place) -> None:
        self._blocking.seek(place)
        self._found, self._at_end = None, False

    async def _alone(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a call in a thread while no other touches the reader, also not one that was cancelled."""
        await self._idle()
        working = self._threads.start(call, *args, **kwargs)
        self._working = working
        return await asyncio.shield(working)

    async def _idle(self) -> None:
        while self._working is not None and not self._working.done():
            await asyncio.wait([self._working])
