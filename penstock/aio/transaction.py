"""The async transaction: messages to any topics and positions of any consumers, all or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, ParamSpec, TypeVar

from penstock import store as sync
from penstock.aio.scan import Scan
from penstock.aio.topic import Topic
from penstock.aio.twin import Threads, forwarded, mirrored
from penstock.keys import Key
from penstock.message import StoredRun, V
from penstock.parse import KIB, Duration
from penstock.topic.bodies import is_file

P = ParamSpec("P")
T = TypeVar("T")

#: Values up to this size are added in the loop.
_ADD_HERE_BYTES = 64 * KIB


class Transaction:
    """Writes and commits that become true together; made by `Store.transaction`, used with `async with`.

    Leaving `async with` commits; an exception, or `rollback`, leaves nothing of it behind.
    """

    def __init__(self, blocking: sync.Transaction, threads: Threads) -> None:
        self.blocking = blocking
        self.threads = threads
        self._working: asyncio.Future[Any] | None = None

    @property
    def name(self) -> str | None:
        """The name that is never committed twice; None if it has none."""
        return self.blocking.name

    @mirrored(sync.Transaction.write)
    async def write(
        self, topic: str | Topic[V], value: V | str | Path | BinaryIO | None, *, key: Key = None,
        headers: Mapping[str, str | bytes] | None = None, partition: int | None = None,
        group: str | None = None, timestamp: int | datetime | None = None, delay: Duration | None = None,
        deliver_at: int | datetime | None = None,
    ) -> None:  # fmt: skip
        write = partial(
            self.blocking.write, _blocking(topic), value, key=key, headers=headers, partition=partition,
            group=group, timestamp=timestamp, delay=delay, deliver_at=deliver_at,
        )  # fmt: skip
        staging = self.blocking.known_staging(_blocking(topic))
        if staging is None or staging.nearly_takes_time or self._is_busy() or _takes_time(value):
            await self._alone(write)
        else:
            write()

    @mirrored(sync.Transaction.write_many)
    async def write_many(
        self, topic: str | Topic[Any], values: Any, *, keys: Any = None, headers: Any = None,
        timestamps: Any = None, partition: int | None = None,
    ) -> None:  # fmt: skip
        if isinstance(values, Scan):
            values = values.blocking
        await self._alone(
            self.blocking.write_many, _blocking(topic), values, keys=keys, headers=headers,
            timestamps=timestamps, partition=partition,
        )  # fmt: skip

    written = forwarded[int](sync.Transaction.written)
    stored = forwarded[Mapping[str, Sequence[StoredRun]]](sync.Transaction.stored)

    @mirrored(sync.Transaction.commit, besides="Cancelled, it may be committed or not.")
    async def commit(self) -> None:
        await self._alone(self.blocking.commit)

    @mirrored(sync.Transaction.rollback)
    async def rollback(self) -> None:
        await self._alone(self.blocking.rollback)

    async def __aenter__(self) -> Transaction:
        self.blocking.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            await self.rollback()
        elif not self.blocking.ended:
            await self.commit()

    def __repr__(self) -> str:
        return repr(self.blocking)

    # Inside.

    async def _alone(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a call in a thread once no other uses the transaction: a cancelled one may still run."""
        while self._is_busy():
            assert self._working is not None
            await asyncio.wait([self._working])
        self._working = working = self.threads.start(call, *args, **kwargs)
        return await asyncio.shield(working)

    def _is_busy(self) -> bool:
        return self._working is not None and not self._working.done()


def _blocking(topic: str | Topic[V]) -> str | sync.Topic[V]:
    return topic.blocking if isinstance(topic, Topic) else topic


def _takes_time(value: object) -> bool:
    """Whether adding a value may store its body, or write to a file."""
    return is_file(value) or (isinstance(value, (bytes, str)) and len(value) > _ADD_HERE_BYTES)
