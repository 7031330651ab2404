"""Something that takes time to open: `await` it, or use it with `async with`.

store = await penstock.aio.open("data")
async with penstock.aio.open("data") as store: ...
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar


class Openable(Protocol):
    """What can be opened: it is its own context manager."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


T = TypeVar("T", bound=Openable)


class Opening(Generic[T]):
    """Opens when awaited or entered; nothing happens before."""

    def __init__(self, opener: Callable[[], Awaitable[T]]) -> None:
        self._opener = opener

    def __await__(self) -> Generator[Any, Any, T]:
        return self._opener().__await__()

    async def __aenter__(self) -> T:
        self._opened = await self._opener()
        return await self._opened.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._opened.__aexit__(kind, error, trace)
