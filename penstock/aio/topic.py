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
from penstock.aio.twin import Opening, Threads
from penstock.aio.writer import Writer
from penstock.consume import reader as consume
from penstock.consume.options import Kind, Moment, Retry
from penstock.exchange.diskq_export import DiskqExported
from penstock.keys import Key, Prefix
from penstock.message import Batch, Message, Receipt, Receipts, V
from penstock.options import Sync, TopicOptions
from penstock.parse import Duration, Size, seconds
from penstock.place import Place
from penstock.store.consumers import ConsumerStats
from penstock.store.stats import TopicStats
from penstock.topic.bodies import is_file
from penstock.topic.retention import VacuumReport
from penstock.topic.routing import Partitioner


class Topic(Generic[V]):
    """A topic of an open store; made by `Store.topic` and `Store.create_topic`.

    Opened with `type=Order` it is a `Topic[Order]`, whose values are orders instead of bytes.
    """

    def __init__(
        self, topic: sync.Topic[V], group: Group, writers: weakref.WeakSet[Writer[Any]], threads: Threads
    ) -> None:
        self._topic = topic
        self._group = group
        self._writers = writers
        self._threads = threads

    @property
    def name(self) -> str:
        return self._topic.name

    @property
    def id(self) -> int:
        """Differs for a topic that was dropped and created again."""
        return self._topic.id

    @property
    def options(self) -> TopicOptions:
        """What the topic promises, as last read from the store."""
        return self._topic.options

    # Writing.

    async def write(
        self, value: V | str | Path | BinaryIO | None, *, key: Key = None,
        headers: Mapping[str, str | bytes] | None = None, partition: int | None = None,
        group: str | None = None, timestamp: int | datetime | None = None, delay: Duration | None = None,
        deliver_at: int | datetime | None = None, name: str | None = None,
    ) -> Receipt:  # fmt: skip
        """Append one message; return once it would survive a power cut (or what the topic's `sync` says).

        Coroutines that write at the same time share one sync. Raises `Unavailable` when it cannot be
        stored now: nothing of it stays, try again. Cancelled, it may be stored or not. With `delay`, or at
        `deliver_at` (a datetime, or nanoseconds since 1970), it enters the topic when that has passed: it is
        on disk until then, and some process that has the store open appends it (docs/retries.md).

        On a topic with `payloads` the value may be a path or an open file, of any size; its body is stored
        before the message (docs/payloads.md). With a `name`, which becomes part of the body's, also a small
        value is stored so.
        """
        if delay is not None or deliver_at is not None or name is not None or is_file(value):
            return await self._threads.run(
                self._topic.write, value, key=key, headers=headers, partition=partition, group=group,
                timestamp=timestamp, delay=delay, deliver_at=deliver_at, name=name,
            )  # fmt: skip
        self._topic.require_raw()
        body = self._topic.encoded(value)  # type: ignore[arg-type]
        return await self._group.add(
            body, key=key, headers=headers, partition=partition, group=group, timestamp=timestamp
        )

    async def write_many(
        self, values: Any, *, keys: Any = None, headers: Any = None, timestamps: Any = None,
        partition: int | None = None,
    ) -> Receipts:  # fmt: skip
        """Append many messages; return once all would survive a power cut (or what `sync` says).

        `values` is a list, an Arrow array, a table with a column `value`, a `Batch` or a `Scan`; nothing
        is written unless all of them can be. Messages of one partition stay together, in order.
        """
        if isinstance(values, Scan):
            values = values.blocking
        return await self._threads.run(
            self._topic.write_many, values, keys=keys, headers=headers, timestamps=timestamps,
            partition=partition,
        )  # fmt: skip

    def writer(
        self, *, producer_id: str | None = None, group: str | None = None,
        partitioner: Partitioner | None = None, headers: Mapping[str, str | bytes] | None = None,
        codec: str | int | None = None, linger: Duration = "2ms", buffer: Size = "16MiB",
        timeout: Duration | None = None, sync: Sync | None = None,
    ) -> Writer[V]:  # fmt: skip
        """A buffered writer, for many messages one after another.

        With a `producer_id` each message is stored exactly once, however often it is sent: `write` takes a
        `seqno`, or counts. All messages of a `group` go to one partition. `partitioner` chooses the
        partition of a key: a function of the key's bytes and the number of partitions. `codec` packs each
        value: "raw", "gzip", "zstd", "lzop" or one of your own; a topic with a list of codecs refuses
        others here.

        `linger` is how long a message may wait for company, `buffer` how many bytes may wait for the
        disk before `write` does, `timeout` how long it waits then. `sync="os"` does not wait for the disk.
        """
        blocking = self._topic.writer(
            producer_id=producer_id, group=group, partitioner=partitioner, headers=headers, codec=codec,
            linger=linger, buffer=buffer, timeout=timeout, sync=sync,
        )  # fmt: skip
        limit_s = None if timeout is None else seconds("timeout", timeout)
        writer = Writer(blocking, self._threads, timeout_s=limit_s)
        self._writers.add(writer)
        return writer

    # Reading.

    async def read(
        self, *, partition: int | None = None, start: Place = "earliest", stop: Place | None = None,
        key: Key = None, prefix: Prefix | None = None, limit: int = 1000,
    ) -> Batch[V]:  # fmt: skip
        """Up to `limit` messages from `start` on; empty at the end, never waits.

        Without a partition: partition after partition. Raises `OutOfRange` for an offset that retention
        took or that lies beyond the end. On a topic with `index="key"`, `key` reads only messages of that
        key, and `prefix` those whose key begins so: a text with its first characters, an array
        (`["chat", 345]`) with its first elements.
        """
        return await self._threads.run(
            self._topic.read, partition=partition, start=start, stop=stop, key=key, prefix=prefix, limit=limit
        )

    async def get(self, offset: int, *, partition: int = 0) -> Message[V]:
        """The one message at `offset`; raises `OutOfRange` when it is not there (any more, or yet)."""
        return await self._threads.run(self._topic.get, offset, partition=partition)

    async def latest(self, key: Key) -> Message[V] | None:
        """The newest message of a key, also a tombstone; None when there is none. Needs `index="key"`.

        Where a key is in several partitions, that is the one written last.
        """
        return await self._threads.run(self._topic.latest, key)

    async def scan(
        self, *, partition: int | None = None, start: Place = "earliest", stop: Place = "latest",
        key: Key = None, prefix: Prefix | None = None, columns: Sequence[str] | None = None,
        history: str | os.PathLike[str] | None = None, storage_options: Mapping[str, str] | None = None,
    ) -> Scan[V]:  # fmt: skip
        """A lazy pass from `start` to `stop`, in constant memory; takes part in Arrow, DuckDB, Polars.

        `columns` names those that its Arrow batches shall have: fewer are quicker. `key` and `prefix` are
        as for `read`. With `history`, the topic's archive (a folder, or s3:// with `storage_options`), what
        the log has no longer is read from there: "earliest" is then the archive's first message. Needs the
        `arrow` extra; raises `NotATable`, `NotAnArchive` or `ForeignArchive` when it is not this topic's
        archive.
        """
        scan = await self._threads.run(
            self._topic.scan, partition=partition, start=start, stop=stop, key=key, prefix=prefix,
            columns=columns, history=history, storage_options=storage_options,
        )  # fmt: skip
        return Scan(scan, self._threads)

    def reader(
        self, *, consumer: str | None = None, start: Place = "earliest",
        partitions: Sequence[int] | None = None, follow: bool = True,
        on_gap: Literal["raise", "skip"] = "raise", create: bool = True, read_from: Moment | None = None,
        max_lag: Duration | None = None, handover: Duration = "30s", retry: Retry | None = None,
        kind: Kind = "stream", lease: Duration = "30s",
    ) -> OpeningReader[V]:  # fmt: skip
        """A live reader over all partitions; waits for what is to come unless `follow=False`.

        Use it with `async with`, or await it. A consumer is created at first use and begins at `start`;
        later it goes on where it committed. Its readers share the partitions, wherever they run;
        `partitions` takes those for good instead, and raises `PartitionLost` when another reader has one.
        Without a consumer nothing is saved.

        `on_gap="skip"` passes over what retention or damage took, and notes it in `reader.gaps`;
        otherwise that raises. Messages written before `read_from` (a moment, or an age) or longer ago
        than `max_lag` are passed over and noted in `reader.skipped`. `handover` is how long a partition
        that goes to another reader waits for what was delivered to be committed.

        With `kind="queue"` readers share messages instead of partitions: each has those it received for
        `lease`, then they are anybody's (docs/queues.md).
        """
        return opening_reader(
            self._threads, self._topic.reader, consumer=consumer, start=start, partitions=partitions,
            follow=follow, on_gap=on_gap, create=create, read_from=read_from, max_lag=max_lag,
            handover=handover, retry=retry, kind=kind, lease=lease,
        )  # fmt: skip

    # Consumers.

    async def add_consumer(
        self, name: str, *, important: bool = False, availability_period: Duration | None = None,
        start: Place = "earliest", read_from: Moment | None = None,
    ) -> None:  # fmt: skip
        """Declare a consumer before its first reader; raises `AlreadyExists`.

        Nothing is removed before an important consumer has committed it, however full the disk gets;
        `availability_period` does so for a time. Messages written before `read_from` are passed over.
        """
        await self._threads.run(
            self._topic.add_consumer, name, important=important, availability_period=availability_period,
            start=start, read_from=read_from,
        )  # fmt: skip

    async def alter_consumer(self, name: str, **changes: Any) -> None:
        """Change `important`, `availability_period` or `read_from`; raises `UnknownConsumer`.

        Readers that are open take a new `read_from` up with the next partition they get.
        """
        await self._threads.run(self._topic.alter_consumer, name, **changes)

    async def consumers(self) -> list[ConsumerStats]:
        """Who reads this topic, where they stand, how far behind they are, and which processes read."""
        return await self._threads.run(self._topic.consumers)

    async def seek_consumer(self, name: str, place: Place) -> dict[int, int]:
        """Put a consumer anywhere and return the offsets; a reader open under its name loses its place.

        Offsets by partition leave the partitions that they do not name where they are. The reader's next
        commit of what it got before raises `PartitionLost`; it goes on at the new place.
        """
        return await self._threads.run(self._topic.seek_consumer, name, place)

    async def kick_consumer(self, name: str, pid: int | None = None) -> list[int]:
        """Take their partitions from a consumer's readers, all or those of one process, for others to read.

        Meant for a process that is stopped or stuck. When it goes on, its commits raise `PartitionLost`,
        and it joins again. Returns the pids that were kicked.
        """
        return await self._threads.run(self._topic.kick_consumer, name, pid)

    async def drop_consumer(self, name: str) -> None:
        """Forget a consumer and its positions; raises `UnknownConsumer`, as do its open readers then."""
        await self._threads.run(self._topic.drop_consumer, name)

    # The topic itself.

    async def alter(self, **changes: Any) -> None:
        """Change options. Partitions can be added, not taken away; other processes notice by themselves."""
        await self._threads.run(self._topic.alter, **changes)

    async def stats(self) -> TopicStats:
        """Messages, bytes and times of each partition, without reading the messages."""
        return await self._threads.run(self._topic.stats)

    async def vacuum(self) -> VacuumReport:
        """Remove what retention lets go, now, and report it."""
        return await self._threads.run(self._topic.vacuum)

    async def export_diskq(
        self, path: str | os.PathLike[str], *, encoding: str | None = None
    ) -> DiskqExported:
        """Write the topic as a go-diskq folder, which is there whole or not at all; it must be new or empty.

        What was imported from one is as it was, byte for byte, and later messages lie where go-diskq would
        have put them. `encoding` is "fixed" or "varuint", else as it came. What diskq cannot hold (headers,
        tombstones) is named in `notes` (docs/exchange.md).
        """
        return await self._threads.run(self._topic.export_diskq, path, encoding=encoding)

    async def delete_before(self, place: Place) -> Batch[V]:
        """Remove everything before a place ("7d" ago, an offset), for good, and return what was removed.

        What important consumers have not committed stays. All of it is held in memory; what lifetimes
        (`key_retention`) had ended already is among it.
        """
        return await self._threads.run(self._topic.delete_before, place)

    async def expired(self, *, since: int | datetime | None = None) -> Batch[V]:
        """Messages whose lifetime (`key_retention`) is over, as far as they still lie in the log.

        No other read gives them. With `since`, only those whose lifetime ended after that moment: so who
        cleans up after them gets each once.
        """
        return await self._threads.run(self._topic.expired, since=since)

    def __repr__(self) -> str:
        return repr(self._topic)


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
    """Whoever opened the reader was cancelled meanwhile: end its watches."""
    if opening.exception() is None:
        opening.result().close()
