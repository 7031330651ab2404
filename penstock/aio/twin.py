"""The few threads in which a store's blocking calls run, so that the event loop never waits for a disk.

They are the store's own: a program that fills the loop's default threads does not hold up the store,
nor the store the program.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, Generic, ParamSpec, Protocol, Self, TypeVar

from penstock.errors import Closed


class Openable(Protocol):
    """What can be opened: it is its own context manager."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


Opened = TypeVar("Opened", bound=Openable)


class Opening(Generic[Opened]):
    """Opens when awaited or entered; nothing happens before."""

    def __init__(self, opener: Callable[[], Awaitable[Opened]]) -> None:
        self._opener = opener

    def __await__(self) -> Generator[Any, Any, Opened]:
        return self._opener().__await__()

    async def __aenter__(self) -> Opened:
        self._opened = await self._opener()
        return await self._opened.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._opened.__aexit__(kind, error, trace)


P = ParamSpec("P")
T = TypeVar("T")

#: Started only as they are needed. Calls wait for disks and locks, not for processors.
_THREADS_MOST = 8


class Threads:
    """Where blocking calls go."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(_THREADS_MOST, thread_name_prefix="penstock-aio")
        self._running: set[asyncio.Future[Any]] = set()
        self._ended = False

    def start(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Have a call made; it goes on when nobody waits for it any more."""
        if self._ended:
            raise Closed("the store is closed", hint="open it again")
        running = asyncio.get_running_loop().run_in_executor(self._executor, partial(call, *args, **kwargs))
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        return running

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a call and wait for it. Cancelled, the wait ends at once, and the call by itself."""
        return await asyncio.shield(self.start(call, *args, **kwargs))

    async def end(self, timeout: float) -> None:
        """Take no more calls, and wait for those under way, but not for ever."""
        self._ended = True
        if self._running:
            await asyncio.wait(self._running, timeout=timeout)
        self._executor.shutdown(wait=False)


async def in_own_thread(call: Callable[[], T]) -> T:
    """Make one call in a thread made for it: nothing that is queued elsewhere can hold it up."""
    executor = ThreadPoolExecutor(1, thread_name_prefix="penstock-aio")
    try:
        return await asyncio.get_running_loop().run_in_executor(executor, call)
    finally:
        executor.shutdown(wait=False)
