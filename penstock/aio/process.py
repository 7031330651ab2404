"""`process` for handlers that are coroutines: as many at a time as there are workers, settled in a thread."""

from __future__ import annotations

import asyncio
import inspect
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from penstock.aio.engine import LoopEngine
from penstock.consume.process import BYTES_MOST, LOOK_AGAIN_S, Stop
from penstock.consume.process_queue import Handled, ProcessQueue
from penstock.errors import WrongType
from penstock.message import Message

Handler = Callable[[Message[Any]], Any]


class Processing:
    """One `process` of a reader."""

    def __init__(self, engine: LoopEngine, work: ProcessQueue, handler: Handler, workers: int) -> None:
        self._engine = engine
        self._work = work
        self._handler = handler
        self._workers = workers
        self._tasks: set[asyncio.Task[None]] = set()
        #: Handlers that have not ended; a task lives a moment longer.
        self._running: dict[asyncio.Task[None], Message[Any]] = {}
        self._finished: list[Handled] = []

    async def run(self, stop: Stop) -> None:
        """Handle messages until none is left or `stop` is set; handlers that run then are waited for.

        Cancelling it cancels the handlers.
        """
        try:
            while not stop.is_set and await self._step():
                pass
        except BaseException:
            for task in self._tasks:
                task.cancel()
            raise
        finally:
            if self._tasks:
                await asyncio.wait(self._tasks)
            await self._engine.alone(self._end)

    async def _step(self) -> bool:
        """Begin what may begin, look for more, or wait; False when nothing is left."""
        begun = await self._begin()
        batch = None
        if len(self._running) < self._workers and self._work.room > 0:
            batch = await self._engine.poll(self._work.room, BYTES_MOST)
        if batch is not None:
            self._work.put(batch)
        elif not begun and not self._finished:
            if not self._running or self._work.commit_is_due:
                await self._engine.alone(self._work.commit)
            if not self._running and (batch := await self._engine.poll(1, BYTES_MOST)) is not None:
                self._work.put(batch)  # what was committed has opened a partition
                return True
            pause = self._engine.engine.pause_s()
            if self._finished:
                return True  # meanwhile
            is_busy = bool(self._running) or self._work.has_some
            if pause is None and not is_busy:
                return False
            await self._engine.wait(LOOK_AGAIN_S if is_busy or pause is None else pause)
        return True

    async def _begin(self) -> bool:
        """Settle what ended, and begin as many as there is room for; return whether any began."""
        if not self._finished and not self._work.has_some:
            return False
        messages = await self._engine.alone(self._settle)
        for message in messages:
            task = asyncio.create_task(self._handle(message))
            self._running[task] = message
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return bool(messages)

    async def _handle(self, message: Message[Any]) -> None:
        error: Exception | None = None
        try:
            await self._handler(message)
        except Exception as raised:  # noqa: BLE001 - settled by whoever processes
            error = raised
        task = asyncio.current_task()
        assert task is not None
        del self._running[task]
        self._finished.append(Handled(message, error))
        self._engine.ring()

    # In a thread.

    def _settle(self) -> list[Message[Any]]:
        finished, self._finished = self._finished, []
        room = self._workers - len(self._running)  # now, or one that ended meanwhile leaves its place empty
        self._work.settle(finished)
        if self._work.commit_is_due:
            self._work.commit()
        found: list[Message[Any]] = []
        while len(found) < room and (message := self._work.take()) is not None:
            found.append(message)
        return found

    def _end(self) -> None:
        finished, self._finished = self._finished, []
        try:
            self._work.settle(finished)
        finally:
            self._work.end(self._running.values())


@contextmanager
def terminating(stop: Stop, wanted: bool) -> Iterator[None]:
    """Let SIGTERM end a `process`, unless the program handles that signal itself."""
    is_default = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if not (wanted and is_default and threading.current_thread() is threading.main_thread()):
        yield
        return
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


def require_coroutine(handler: object) -> None:
    """Raise unless a handler can be awaited."""
    if not inspect.iscoroutinefunction(handler) and not inspect.iscoroutinefunction(type(handler).__call__):
        raise WrongType("the handler is no coroutine function", hint="async def handle(message): …")
