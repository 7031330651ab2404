"""What the async twins of blocking classes are made of.

The blocking classes are the real ones; a twin holds one and runs its calls in threads, so that the event loop
never waits for a disk. Names, parameters, types and documentation stand once, in the blocking class:

    class Topic(Generic[V]):
        name = forwarded[str](store.Topic.name)         # a property of the blocking topic
        vacuum = awaited(store.Topic[V].vacuum)         # the same call, in a thread

        @mirrored(store.Topic.write, besides="Coroutines that write at the same time share one sync.")
        async def write(self, value, …): …              # a call of its own, with the same documentation

The threads are the store's own: a program that fills the loop's default threads does not hold up the store,
nor the store the program.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from inspect import getdoc
from operator import attrgetter
from types import MethodType, TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

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
    """The threads in which blocking calls are made, so that the loop need not wait for them."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(_THREADS_MOST, thread_name_prefix="penstock-aio")
        self._running: set[asyncio.Future[Any]] = set()
        self._ended = False

    def start(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Start a call in a thread; it goes on when nobody waits for it any more."""
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


R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


class Twin(Protocol):
    """An async twin: the blocking object that it calls, and the threads in which it does."""

    @property
    def blocking(self) -> Any:
        """The blocking object."""

    @property
    def threads(self) -> Threads:
        """Where its calls are made."""


class awaited(Generic[P, R]):
    """The async twin of a blocking method: its parameters, types and documentation; it runs in a thread."""

    def __init__(self, blocking: Callable[Concatenate[Any, P], R]) -> None:
        @wraps(blocking)
        async def twin(self: Twin, *args: P.args, **kwargs: P.kwargs) -> R:
            return await self.threads.run(partial(blocking, self.blocking), *args, **kwargs)

        self._twin: Any = twin

    def __get__(self, instance: object, owner: type) -> Callable[P, Coroutine[Any, Any, R]]:
        """The coroutine function, bound to an instance if there is one."""
        found: Callable[P, Coroutine[Any, Any, R]]
        found = self._twin if instance is None else MethodType(self._twin, instance)
        return found


class forwarded(property, Generic[R]):
    """A property of the blocking object as one of its twin: its name, its documentation, its value.

    `of` is what the twin holds that has a property of this name.
    """

    def __init__(self, blocking: Any, *, of: str = "blocking") -> None:
        super().__init__(attrgetter(f"{of}.{blocking.fget.__name__}"))
        self.__doc__ = blocking.__doc__

    if TYPE_CHECKING:  # a property is `Any` to them, where it is not written out

        @overload
        def __get__(self, instance: None, owner: type, /) -> Self: ...
        @overload
        def __get__(self, instance: Any, owner: type | None = None, /) -> R: ...
        def __get__(self, instance: Any, owner: type | None = None, /) -> Any: ...


def mirrored(blocking: Callable[..., Any] | property, *, besides: str = "") -> Callable[[F], F]:
    """Give a twin that is written by hand the documentation of its blocking method, and a word `besides`."""

    def mirror(twin: F) -> F:
        told = [text for text in (getdoc(blocking), besides) if text]
        twin.__doc__ = "\n\n".join(told) or None
        return twin

    return mirror
