"""The async live reader: the engine of the blocking one, with another way to wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Generic

from penstock.aio.engine import LoopEngine
from penstock.aio.process import Processing, require_coroutine, terminating
from penstock.aio.twin import Threads
from penstock.consume import dead_letters
from penstock.consume.dead_letters import DeadLetter
from penstock.consume.engine import ReaderEngine
from penstock.consume.lag import Lag
from penstock.consume.options import Retry
from penstock.consume.partition import Gap
from penstock.consume.process import Stop, check_handler
from penstock.consume.process_queue import Account, ProcessQueue, Summary
from penstock.consume.reader import asked
from penstock.consume.transaction_part import Transactional
from penstock.errors import UsageError
from penstock.message import Batch, Message, V
from penstock.parse import MIB, Duration, Size
from penstock.place import Place
from penstock.wake import within


class DeadLetters:
    """The dead letters of one topic; made by `Store.dead_letters`."""

    def __init__(self, blocking: dead_letters.DeadLetters, threads: Threads) -> None:
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
        """Deliver letters again, without waiting, to the consumers they are of; return how many.

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


class Reader(Generic[V]):
    """Reads topics as a consumer, or without one; one coroutine at a time may receive.

    Others may commit meanwhile. Within a partition messages come in order; between partitions in turn.
    Without a consumer nothing is saved. Use it with `async with`.
    """

    def __init__(self, engine: ReaderEngine, threads: Threads) -> None:
        self.engine = engine
        self._loop = LoopEngine(engine, threads)
        self._stop = Stop(engine.bell.ring)
        self._receiving = False

    @property
    def consumer(self) -> str | None:
        """The consumer it reads for, if any."""
        return self.engine.consumer

    @property
    def gaps(self) -> list[Gap]:
        """Offsets that were skipped with on_gap="skip", oldest first."""
        return self.engine.gaps

    @property
    def skipped(self) -> list[Gap]:
        """Offsets that were skipped because of `read_from` and `max_lag`, oldest first."""
        return self.engine.skipped

    # Receiving.

    async def receive(self, timeout: Duration | None = None) -> Message[V] | None:
        """The next message; None when none came within `timeout` (for ever by default).

        `timeout` is in seconds, or text like "200ms". With `follow=False` also None at the end. Cancelled,
        it has taken nothing.
        """
        message = self.engine.next()
        if message is None:
            message = self.engine.hand_out(await self.receive_batch(self.engine.fetches, timeout=timeout))
        return message

    async def receive_batch(
        self, max_messages: int = 1000, max_bytes: Size = 8 * MIB, timeout: Duration | None = None,
        tx: Transactional | None = None,
    ) -> Batch[V]:  # fmt: skip
        """What comes next from one partition, one message at least; empty after `timeout`.

        With `follow=False` also empty at the end. Cancelled, it has taken nothing. In a transaction it is
        committed with it; rolled back, it is delivered again.
        """
        most, limit, deadline = asked(max_messages, max_bytes, timeout)
        self._begin_receiving()
        try:
            if tx is not None:
                self.engine.join(tx, None)
            batch = await self._receive_batch(most, limit, deadline)
        finally:
            self._receiving = False
        if tx is not None:
            self.engine.join(tx, batch)
        return batch

    def __aiter__(self) -> Reader[V]:
        return self

    async def __anext__(self) -> Message[V]:
        message = self.engine.next()
        while message is None:
            message = self.engine.hand_out(await self.receive_batch(self.engine.fetches))
            if message is None and not self.engine.follow:
                raise StopAsyncIteration
        return message

    # Committing and moving.

    async def commit(self, done: Message[Any] | Batch[Any], *, tx: Transactional | None = None) -> None:
        """Messages are done: the consumer will not get them again.

        In any order; the stored position is the first one that is not done. It is stored when this returns,
        and outlives the process. Raises `PartitionLost` when the partition went to another member, or was
        moved, since they were received: they are delivered again. The reader goes on with what it has. With
        `tx` they are done when the transaction commits. Of a queue, it raises when the lease of any ran out
        and another reader got it meanwhile; the others are done.
        """
        if tx is not None:
            await self._loop.alone(self.engine.join, tx, done)
        else:
            await self._loop.alone(self.engine.commit, done)

    async def retry(
        self, message: Message[Any], *, after: Duration | None = None,
        error: BaseException | str | None = None,
    ) -> bool:  # fmt: skip
        """Deliver a message again later, to this consumer only, and commit it, in one step.

        It comes after `after`, or else as the reader's `retry` policy says, with `message.attempt` one
        higher; `error` is kept with it. When the policy allows no further attempt it becomes a dead letter
        instead, and False is returned. A process that dies in between leaves it to come once more, never
        less. Raises `PartitionLost` when the partition went to another member, or the message of a queue to
        another reader: it is delivered again there.
        """
        return await self._loop.alone(self.engine.retry, message, after, error)

    async def reject(self, message: Message[Any], reason: str) -> None:
        """Make a message a dead letter, now, and commit it: it lies in `<topic>.dead` with its reason."""
        await self._loop.alone(self.engine.reject, message, reason)

    async def process(
        self, handler: Callable[[Message[V]], object], *, workers: int = 1, retry: Retry | None = None,
        follow: bool = True, keep_order: bool = False, signals: bool = True,
    ) -> Summary:  # fmt: skip
        """Call `handler` with each message: commit it when that returns, try it again later when it raises.

        The handler is a coroutine function; `workers` is how many of them run at a time. `retry` says
        when messages are tried again, and when they become dead letters; else the reader's policy does. With
        `keep_order` messages of one key are handled one after the other, and wait while an earlier one
        waits; other keys go on.

        `follow=False` ends when nothing is left now; else `stop` ends it, when what runs is done, and so does
        SIGTERM, unless `signals=False` or the program handles it. Cancelled, so are the handlers, and their
        messages are delivered again.
        """
        self._begin_receiving()
        follows = self.engine.follow
        try:
            policy = self.engine.begin_process(retry, keep_order=keep_order)
            check_handler(handler, workers)
            require_coroutine(handler)
            self._stop.is_set, self.engine.follow = False, follows and follow
            account = Account(self.engine, policy)
            work = ProcessQueue(self.engine, account, workers=workers, keep_order=keep_order)
            with terminating(self._stop, signals):
                await Processing(self._loop, work, handler, workers).run(self._stop)
        finally:
            self.engine.follow = follows
            self._receiving = False
        return account.summary

    def stop(self) -> None:
        """Have `process` end, from any thread or from its handler, when what runs is done."""
        self._stop()

    async def seek(self, place: Place) -> None:
        """Go on from `place` in every partition it reads; with a consumer the place is stored at once."""
        await self._loop.alone(self._loop.seek, place)

    @property
    def assigned(self) -> list[tuple[str, int]]:
        """(topic, partition) of everything this reader reads now."""
        return self.engine.assigned

    async def lag(self) -> Lag:
        """What is stored in the partitions it reads and was not yet delivered: messages, bytes, seconds."""
        return await self._loop.alone(self.engine.lag)

    async def close(self) -> None:
        """Release all partitions; who waits in `receive` gets `Closed`. Never waits."""
        self.engine.close()

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

    async def _receive_batch(self, max_messages: int, limit: int, deadline: float | None) -> Batch[V]:
        # A reader at the end never waits in between when there is always something new, so it lets
        # others have their turn here, before it takes anything that a cancellation could lose.
        await asyncio.sleep(0)
        while True:
            batch = await self._loop.poll(max_messages, limit)
            if batch is not None:
                return batch
            pause = self.engine.pause_s()
            if pause is not None:
                pause = within(deadline, pause)
            if pause is None:
                return Batch(self.engine.name, ())
            await self._loop.wait(pause)
