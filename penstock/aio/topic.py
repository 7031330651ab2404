"""The async topic: a named log in partitions, and its promises."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Generic, Literal

from penstock import store as sync
from penstock.aio.group_commit import Group
from penstock.aio.reader import Reader
from penstock.aio.scan import Scan
from penstock.aio.twin import Opening, Threads, awaited, forwarded, mirrored
from penstock.aio.writer import Writer
from penstock.consume import reader as consume
from penstock.consume.options import Kind, Moment, Retry
from penstock.keys import Key, Prefix
from penstock.message import Message, Receipt, Receipts, V
from penstock.options import Sync, TopicOptions
from penstock.parse import Duration, Size, seconds
from penstock.place import Place
from penstock.topic.bodies import is_file
from penstock.topic.producer import Routing
from penstock.topic.routing import Partitioner


class Topic(Generic[V]):
    """A topic of an open store; made by `Store.topic` and `Store.create_topic`.

    Opened with `type=Order` it is a `Topic[Order]`, whose values are orders instead of bytes.
    """

    def __init__(
        self, topic: sync.Topic[V], group: Group, writers: weakref.WeakSet[Writer[Any]], threads: Threads
    ) -> None:
        self.blocking = topic
        self._group = group
        self._writers = writers
        self.threads = threads

    name = forwarded[str](sync.Topic.name)
    id = forwarded[int](sync.Topic.id)
    options = forwarded[TopicOptions](sync.Topic.options)

    # Writing.

    @mirrored(
        sync.Topic.write,
        besides="Coroutines that write at the same time share one sync. Cancelled, it is stored or not.",
    )
    async def write(
        self, value: V | str | Path | BinaryIO | None, *, key: Key = None,
        headers: Mapping[str, str | bytes] | None = None, partition: int | None = None,
        group: str | None = None, timestamp: int | datetime | None = None, delay: Duration | None = None,
        deliver_at: int | datetime | None = None, name: str | None = None,
    ) -> Receipt:  # fmt: skip
        if delay is not None or deliver_at is not None or name is not None or is_file(value):
            return await self.threads.run(
                self.blocking.write, value, key=key, headers=headers, partition=partition, group=group,
                timestamp=timestamp, delay=delay, deliver_at=deliver_at, name=name,
            )  # fmt: skip
        self.blocking.require_raw()
        body = self.blocking.encoded(value)  # type: ignore[arg-type]
        return await self._group.add(
            body, key=key, headers=headers, partition=partition, group=group, timestamp=timestamp
        )

    @mirrored(sync.Topic.write_many)
    async def write_many(
        self, values: Any, *, keys: Any = None, headers: Any = None, timestamps: Any = None,
        partition: int | None = None,
    ) -> Receipts:  # fmt: skip
        if isinstance(values, Scan):
            values = values.blocking
        return await self.threads.run(
            self.blocking.write_many, values, keys=keys, headers=headers, timestamps=timestamps,
            partition=partition,
        )  # fmt: skip

    @mirrored(sync.Topic.writer)
    def writer(
        self, *, producer_id: str | None = None, group: str | None = None,
        partitioner: Partitioner | None = None, headers: Mapping[str, str | bytes] | None = None,
        codec: str | int | None = None, linger: Duration = "2ms", buffer: Size = "16MiB",
        timeout: Duration | None = None, sync: Sync | None = None, route: Routing = "key",
    ) -> Writer[V]:  # fmt: skip
        blocking = self.blocking.writer(
            producer_id=producer_id, group=group, partitioner=partitioner, headers=headers, codec=codec,
            linger=linger, buffer=buffer, timeout=timeout, sync=sync, route=route,
        )  # fmt: skip
        limit_s = None if timeout is None else seconds("timeout", timeout)
        writer = Writer(blocking, self.threads, timeout_s=limit_s)
        self._writers.add(writer)
        return writer

    # Reading.

    read = awaited(sync.Topic[V].read)
    get = awaited(sync.Topic[V].get)
    latest = awaited(sync.Topic[V].latest)

    @mirrored(sync.Topic.scan)
    async def scan(
        self, *, partition: int | None = None, start: Place = "earliest", stop: Place = "latest",
        key: Key = None, prefix: Prefix | None = None, columns: Sequence[str] | None = None,
        history: str | os.PathLike[str] | None = None, storage_options: Mapping[str, str] | None = None,
    ) -> Scan[V]:  # fmt: skip
        scan = await self.threads.run(
            self.blocking.scan, partition=partition, start=start, stop=stop, key=key, prefix=prefix,
            columns=columns, history=history, storage_options=storage_options,
        )  # fmt: skip
        return Scan(scan, self.threads)

    @mirrored(sync.Topic.reader, besides="Use it with `async with`, or await it.")
    def reader(
        self, *, consumer: str | None = None, start: Place = "earliest",
        partitions: Sequence[int] | None = None, follow: bool = True,
        on_gap: Literal["raise", "skip"] = "raise", create: bool = True, read_from: Moment | None = None,
        max_lag: Duration | None = None, handover: Duration = "30s", retry: Retry | None = None,
        kind: Kind = "stream", lease: Duration = "30s",
    ) -> OpeningReader[V]:  # fmt: skip
        return opening_reader(
            self.threads, self.blocking.reader, consumer=consumer, start=start, partitions=partitions,
            follow=follow, on_gap=on_gap, create=create, read_from=read_from, max_lag=max_lag,
            handover=handover, retry=retry, kind=kind, lease=lease,
        )  # fmt: skip

    # Consumers.

    add_consumer = awaited(sync.Topic[V].add_consumer)

    @mirrored(sync.Topic.alter_consumer)
    async def alter_consumer(self, name: str, **changes: Any) -> None:
        await self.threads.run(self.blocking.alter_consumer, name, **changes)

    consumers = awaited(sync.Topic[V].consumers)
    seek_consumer = awaited(sync.Topic[V].seek_consumer)
    kick_consumer = awaited(sync.Topic[V].kick_consumer)
    drop_consumer = awaited(sync.Topic[V].drop_consumer)
    # The topic itself.

    @mirrored(sync.Topic.alter)
    async def alter(self, **changes: Any) -> None:
        await self.threads.run(self.blocking.alter, **changes)

    split = awaited(sync.Topic[V].split)
    partitions = awaited(sync.Topic[V].partitions)
    stats = awaited(sync.Topic[V].stats)
    vacuum = awaited(sync.Topic[V].vacuum)
    export_diskq = awaited(sync.Topic[V].export_diskq)
    delete_before = awaited(sync.Topic[V].delete_before)
    expired = awaited(sync.Topic[V].expired)

    def __repr__(self) -> str:
        return repr(self.blocking)


class OpeningReader(Opening[Reader[V]], Generic[V]):
    """What `topic.reader(…)` returns: await it, enter it, or iterate it at once."""

    async def __aiter__(self) -> AsyncIterator[Message[V]]:
        async with self as reader:
            async for message in reader:
                yield message


def opening_reader(
    threads: Threads, opener: Callable[..., consume.Reader[V]], *args: Any, **options: Any
) -> OpeningReader[V]:
    """A reader that opens in a thread when it is awaited or entered."""

    async def opened() -> Reader[V]:
        opening = threads.start(opener, *args, **options)
        try:
            return Reader((await asyncio.shield(opening)).engine, threads)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_unwanted)
            raise

    return OpeningReader(opened)


def _close_unwanted(opening: asyncio.Future[consume.Reader[V]]) -> None:
    """End the watches of a reader whose opening was cancelled meanwhile."""
    if opening.exception() is None:
        opening.result().close()
