"""The async live reader: the engine of the blocking one, with another way to wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic

from penstock.aio.engine import LoopEngine
from penstock.aio.process import Processing, require_coroutine, terminating
from penstock.aio.twin import Threads, awaited, forwarded, mirrored
from penstock.consume import dead_letters, reader
from penstock.consume.engine import ReaderEngine
from penstock.consume.lag import Lag
from penstock.consume.options import Retry
from penstock.consume.partition import Gap
from penstock.consume.process import Stop, check_handler
from penstock.consume.process_queue import Account, ProcessQueue, Summary
from penstock.consume.transaction_part import Transactional
from penstock.errors import UsageError
from penstock.message import Batch, Message, V
from penstock.parse import MIB, Duration, Size
from penstock.place import Place
from penstock.wake import within


class DeadLetters:
    """The dead letters of one topic; made by `Store.dead_letters`."""

    def __init__(self, blocking: dead_letters.DeadLetters, threads: Threads) -> None:
        self.blocking = blocking
        self.threads = threads

    topic = forwarded[str](dead_letters.DeadLetters.topic)
    list = awaited(dead_letters.DeadLetters.list)
    show = awaited(dead_letters.DeadLetters.show)
    count = awaited(dead_letters.DeadLetters.count)
    replay = awaited(dead_letters.DeadLetters.replay)
    drop = awaited(dead_letters.DeadLetters.drop)

    def __repr__(self) -> str:
        return repr(self.blocking)


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

    consumer = forwarded[str | None](reader.Reader.consumer, of="engine")
    gaps = forwarded[list[Gap]](reader.Reader.gaps, of="engine")
    skipped = forwarded[list[Gap]](reader.Reader.skipped, of="engine")
    assigned = forwarded[list[tuple[str, int]]](reader.Reader.assigned, of="engine")

    # Receiving.

    @mirrored(reader.Reader.receive, besides="Cancelled, it has taken nothing.")
    async def receive(self, timeout: Duration | None = None) -> Message[V] | None:
        message = self.engine.next()
        if message is None:
            message = self.engine.hand_out(await self.receive_batch(self.engine.fetches, timeout=timeout))
        return message

    @mirrored(reader.Reader.receive_batch, besides="Cancelled, it has taken nothing.")
    async def receive_batch(
        self, max_messages: int = 1000, max_bytes: Size = 8 * MIB, timeout: Duration | None = None,
        tx: Transactional | None = None,
    ) -> Batch[V]:  # fmt: skip
        most, limit, deadline = reader.asked(max_messages, max_bytes, timeout)
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

    @mirrored(reader.Reader.commit)
    async def commit(self, done: Message[Any] | Batch[Any], *, tx: Transactional | None = None) -> None:
        if tx is not None:
            await self._loop.alone(self.engine.join, tx, done)
        else:
            await self._loop.alone(self.engine.commit, done)

    @mirrored(reader.Reader.retry)
    async def retry(
        self, message: Message[Any], *, after: Duration | None = None,
        error: BaseException | str | None = None,
    ) -> bool:  # fmt: skip
        return await self._loop.alone(self.engine.retry, message, after, error)

    @mirrored(reader.Reader.reject)
    async def reject(self, message: Message[Any], reason: str) -> None:
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

    @mirrored(reader.Reader.seek)
    async def seek(self, place: Place) -> None:
        await self._loop.alone(self._loop.seek, place)

    @mirrored(reader.Reader.lag)
    async def lag(self) -> Lag:
        return await self._loop.alone(self.engine.lag)

    @mirrored(reader.Reader.close)
    async def close(self) -> None:
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
