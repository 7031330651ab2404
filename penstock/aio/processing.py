"""`Reader.process` for coroutines: as many of them at a time as there are workers, in the event loop.

What touches files happens in a thread, once for all that is to be settled and begun.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.consume.desk import Desk
from penstock.consume.processing import BYTES_MOST, LOOK_AGAIN_S, Handled, check_handler, settle
from penstock.errors import WrongType
from penstock.message import Message

if TYPE_CHECKING:
    from penstock.aio.reader import Reader

Handler = Callable[[Message[Any]], Any]


class Processing:
    """One `process` of a reader."""

    def __init__(self, reader: Reader[Any], desk: Desk, handler: Handler, workers: int) -> None:
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


async def run(reader: Reader[Any], desk: Desk, handler: Handler, *, workers: int, follow: bool) -> None:
    """Process with coroutines, until nothing is left or it is stopped."""
    check_handler(handler, workers)
    if not inspect.iscoroutinefunction(handler) and not inspect.iscoroutinefunction(type(handler).__call__):
        raise WrongType("the handler is no coroutine function", hint="async def handle(message): …")
    with reader._blocking.following(follow):
        await Processing(reader, desk, handler, workers).run()
