"""The async live reader: waits without a thread, reads in one only where that may take time.

Where reading happens was measured. Looking for something new costs 2 µs in the loop and 140 µs
through a thread; with a thousand idle readers that look once a second it is the difference between
nothing and an eighth of a processor. So a reader that is at the end looks in the loop: what it finds
was written a moment ago and lies in memory. A reader that has a backlog reads in a thread: segments
must be mapped, their checksums computed, their indexes perhaps made.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar

from penstock.aio.twin import Threads
from penstock.consume import dead_letters as deadletters
from penstock.consume import reader as consume
from penstock.consume.dead_letters import DeadLetter
from penstock.consume.lag import Lag
from penstock.consume.options import Retry
from penstock.consume.partition import Gap
from penstock.consume.process import (
    BYTES_MOST,
    LOOK_AGAIN_S,
    Handled,
    ProcessQueue,
    Summary,
    check_handler,
    settle,
)
from penstock.consume.transaction_part import Transactional
from penstock.errors import UsageError, WrongType
from penstock.message import Batch, Message, V
from penstock.parse import MIB, Duration, Size, size, whole
from penstock.place import Place


class LoopBell:
    """A hint that something was written; who waited looks for itself."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = False
        self._waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        """Wake who waits. Called from the thread that hears of writes, which an error would end."""
        if self._rung:
            return
        self._rung = True
        try:
            self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:
            pass  # the loop is closed: nobody waits any more

    async def wait(self, timeout: float) -> None:
        """Return when rung, or after `timeout` seconds; a ring before the call counts.

        Who looks only after this returned misses nothing: rings are dropped only while one is unheard.
        """
        if not self._rung:
            self._waiter = self._loop.create_future()
            timer = self._loop.call_later(timeout, self._wake)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        self._rung = False

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


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


Handler = Callable[[Message[Any]], Any]


class Processing:
    """One `process` of a reader."""

    def __init__(self, reader: Reader[Any], desk: ProcessQueue, handler: Handler, workers: int) -> None:
        self._reader = reader
        self._blocking = reader._blocking
        self._desk = desk
        self._handler = handler
        self._workers = workers
        self._tasks: set[asyncio.Task[None]] = set()
        #: Handlers that have not ended; a task lives a moment longer.
        self._running = 0
        self._finished: list[Handled] = []

    async def run(self) -> None:
        """Until nothing is left or it is stopped: then what runs is done. Cancelled, handlers are too."""
        try:
            await self._work()
        except BaseException:
            for task in self._tasks:
                task.cancel()
            raise
        finally:
            if self._tasks:
                await asyncio.wait(self._tasks)
            await self._reader._alone(self._end)

    async def _work(self) -> None:
        while not self._blocking.is_stopped:
            begun = await self._begin()
            batch = None
            if self._running < self._workers and self._desk.room > 0:
                batch = await self._reader._poll(self._desk.room, BYTES_MOST)
            if batch is not None:
                self._desk.put(batch)
            elif not begun and not self._finished:
                if not self._running or self._desk.commit_is_due:
                    await self._reader._alone(self._desk.commit)
                pause = self._blocking._pause(None)
                if self._finished:
                    continue  # meanwhile
                if pause is None and not self._running:
                    return
                is_busy = pause is None or self._running > 0
                await self._reader._bell.wait(LOOK_AGAIN_S if is_busy else pause or 0.0)

    async def _begin(self) -> bool:
        """Settle what ended, and begin with as many as there is room for; whether any began."""
        if not self._finished and not self._desk.has_some:
            return False
        messages = await self._reader._alone(self._step)
        for message in messages:
            self._running += 1
            task = asyncio.create_task(self._handle(message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return bool(messages)

    async def _handle(self, message: Message[Any]) -> None:
        error: Exception | None = None
        try:
            await self._handler(message)
        except Exception as raised:  # noqa: BLE001 - settled by whoever processes
            error = raised
        self._running -= 1
        self._finished.append(Handled(message, error))
        self._reader._bell.ring()

    # In a thread.

    def _step(self) -> list[Message[Any]]:
        finished, self._finished = self._finished, []
        room = self._workers - self._running  # now, or one that ended meanwhile would leave its place empty
        settle(self._desk, finished)
        found: list[Message[Any]] = []
        while len(found) < room and (message := self._desk.next()) is not None:
            found.append(message)
        return found

    def _end(self) -> None:
        finished, self._finished = self._finished, []
        try:
            settle(self._desk, finished)
        finally:
            self._desk.end()


async def run(
    reader: Reader[Any], desk: ProcessQueue, handler: Handler, *, workers: int, follow: bool
) -> None:
    """Process with coroutines, until nothing is left or it is stopped."""
    check_handler(handler, workers)
    if not inspect.iscoroutinefunction(handler) and not inspect.iscoroutinefunction(type(handler).__call__):
        raise WrongType("the handler is no coroutine function", hint="async def handle(message): …")
    with reader._blocking.following(follow):
        await Processing(reader, desk, handler, workers).run()


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
        self._bell = LoopBell()
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
