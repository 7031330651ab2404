"""An engine as an event loop uses it: waits without a thread, reads in one only where that may take time.

Where reading happens was measured. Looking for something new costs 2 µs in the loop and 140 µs
through a thread; with a thousand idle readers that look once a second it is the difference between
nothing and an eighth of a processor. So a reader that is at the end looks in the loop: what it finds
was written a moment ago and lies in memory. A reader that has a backlog reads in a thread: segments
must be mapped, their checksums computed, their indexes perhaps made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from penstock.aio.twin import Threads
from penstock.consume.engine import ReaderEngine
from penstock.message import Batch
from penstock.place import Place

P = ParamSpec("P")
T = TypeVar("T")


class LoopBell:
    """A hint that something was written; the coroutine that waited looks for itself."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = False
        self._waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        """Wake the coroutine that waits. Called from the thread that hears of writes: an error ends it."""
        if self._rung:
            return
        self._rung = True
        try:
            self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:
            pass  # the loop is closed: nobody waits any more

    async def wait(self, timeout: float) -> None:
        """Return when rung, or after `timeout` seconds; a ring before the call counts.

        Looking after this returned misses nothing: rings are dropped only while one is unheard.
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


class LoopEngine:
    """A reader's engine in an event loop; at most one call to it is under way in a thread."""

    def __init__(self, engine: ReaderEngine, threads: Threads) -> None:
        self.engine = engine
        self._threads = threads
        self._bell = LoopBell()
        engine.bell.hearer = self._bell.ring
        self._found: Batch[Any] | None = None
        self._at_end = False
        self._working: asyncio.Future[Any] | None = None

    async def poll(self, max_messages: int, limit: int) -> Batch[Any] | None:
        """What is there now, or None; read in a thread where that may take time."""
        await self._idle()
        if self._found is not None:  # by a call that was cancelled
            self.engine.put_back(self._found)
            self._found = None
        elif not self.engine.has_fetched and (not self._at_end or self.engine.reads_files):
            await self.alone(self._look, max_messages, limit)
            batch, self._found = self._found, None
            self._at_end = batch is None
            return batch
        batch = self.engine.poll(max_messages, limit)
        self._at_end = batch is None or (self._at_end and len(batch) < max_messages)
        return batch

    async def wait(self, pause: float) -> None:
        """Wait for a ring."""
        await self._bell.wait(pause)

    def ring(self) -> None:
        """Wake the coroutine that waits."""
        self._bell.ring()

    async def alone(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a call in a thread once no other uses the engine: a cancelled one may still be running."""
        await self._idle()
        working = self._threads.start(call, *args, **kwargs)
        self._working = working
        return await asyncio.shield(working)

    # Inside.

    def _look(self, max_messages: int, limit: int) -> None:
        """Look for messages, in a thread; what is found is kept here, since the caller may be gone."""
        self._found = self.engine.poll(max_messages, limit)

    def seek(self, place: Place) -> None:
        """Go on from another place; what a cancelled call found is not delivered."""
        self.engine.seek(place)
        self._found, self._at_end = None, False

    async def _idle(self) -> None:
        while self._working is not None and not self._working.done():
            await asyncio.wait([self._working])
