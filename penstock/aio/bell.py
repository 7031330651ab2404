"""Wakes one waiting coroutine from any thread, and costs the loop one call however often it is rung."""

from __future__ import annotations

import asyncio


class Bell:
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
