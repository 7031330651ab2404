"""A topic: a named log in partitions, and its promises."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

from penstock.consume.reader import Reader
from penstock.errors import (
    InvalidOption,
    OffsetAhead,
    OffsetTrimmed,
    OutOfRange,
    ReadOnly,
    TopicReplaced,
    WrongType,
)
from penstock.log.folder import file_bytes
from penstock.message import Batch, Message, Receipt, Receipts, Rows
from penstock.options import (
    LATEST,
    MIB,
    Duration,
    Place,
    Size,
    Sync,
    TopicOptions,
    consumer_name,
    one_of,
    seconds,
    size,
    spot,
    topic_changes,
    whole,
)
from penstock.state.consumers import ConsumerOptions
from penstock.topic import outgoing
from penstock.topic.outgoing import Key, Value
from penstock.topic.partitions import Landed, Outgoing, Partitions
from penstock.topic.retention import VacuumReport, vacuum
from penstock.topic.scan import Scan
from penstock.topic.writer import Writer

_READ_BYTES = 64 * MIB


class PartitionStats(NamedTuple):
    """One partition in numbers."""

    partition: int
    start: int
    end: int
    messages: int
    bytes: int
    segments: int
    #: When the oldest and the newest message were written, in nanoseconds; None when empty.
    oldest: int | None
    newest: int | None


class TopicStats(NamedTuple):
    """A topic in numbers; counted from offsets, without reading messages."""

    topic: str
    messages: int
    bytes: int
    partitions: tuple[PartitionStats, ...]


class ConsumerStats(NamedTuple):
    """A consumer of a topic: where it stands and how far behind."""

    consumer: str
    important: bool
    positions: dict[int, int]
    #: Messages stored that it has not committed.
    lag: int
    #: When it last committed or was moved, in nanoseconds; None when it has no position yet.
    updated: int | None = None


class Topic:
    """A topic of an open store; made by `Store.topic` and `Store.create_topic`."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    @property
    def name(self) -> str:
        return self._partitions.name

    @property
    def id(self) -> int:
        """Differs for a topic that was dropped and created again."""
        return self._partitions.record.id

    @property
    def options(self) -> TopicOptions:
        """What the topic promises, as last read from the store."""
        return self._partitions.options

    # Writing.

    def write(
        self, value: Value, *, key: Key = None, headers: Mapping[str, str | bytes] | None = None,
        partition: int | None = None, timestamp: int | datetime | None = None,
    ) -> Receipt:  # fmt: skip
        """Append one message; return once it would survive a power cut (or what the topic's `sync` says).

        Raises `Unavailable` when it cannot be stored now: nothing of it stays, try again.
        """
        partitions = self._partitions
        self._require_writable()
        if partition is not None:
            partitions.check(partition)
        message = outgoing.one(value, key, headers, timestamp, partition, self.options.max_message_bytes)
        landed = next(partitions.append(message))
        sync = self.options.sync
        if sync == "disk":
            partitions.sync((landed,))
        return Receipt(landed.partition, landed.appended.first, sync)

    def write_many(
        self, values: Any, *, keys: Any = None, headers: Any = None, timestamps: Any = None,
        partition: int | None = None,
    ) -> Receipts:  # fmt: skip
        """Append many messages; return once all would survive a power cut (or what `sync` says).

        `values` is a list, an Arrow array, a table with a column `value`, a `Batch` or a `Scan`; nothing
        is written unless all of them can be. Messages of one partition stay together, in order.
        """
        partitions = self._partitions
        self._require_writable()
        partitions.check(partition)
        sync = self.options.sync
        if isinstance(values, Scan):
            return self._write_scan(values, partition)
        batch = outgoing.many(values, keys, headers, timestamps, partition, self.options.max_message_bytes)
        if not batch.values:
            return Receipts((), sync=sync)
        landed = list(partitions.append(batch))
        if sync == "disk":
            partitions.sync(landed)
        return Receipts([each.stored() for each in landed], sync=sync, order=_order(batch, landed))

    def writer(
        self, *, headers: Mapping[str, str | bytes] | None = None, linger: Duration = "2ms",
        buffer: Size = "16MiB", timeout: Duration | None = None, sync: Sync | None = None,
    ) -> Writer:  # fmt: skip
        """A buffered writer, for many messages one after another.

        `linger` is how long a message may wait for company, `buffer` how many bytes may wait for the
        disk before `write` does, `timeout` how long it waits then. `sync="os"` does not wait for the disk.
        """
        self._require_writable()
        chosen = sync or self.options.sync
        one_of("sync", chosen, ("disk", "os"))
        return Writer(
            self._partitions,
            headers=headers,
            linger_s=seconds("linger", linger),
            buffer_bytes=size("buffer", buffer),
            timeout_s=None if timeout is None else seconds("timeout", timeout),
            sync=chosen,
        )

    # Reading.

    def read(
        self, *, partition: int | None = None, start: Place = "earliest", stop: Place | None = None,
        limit: int = 1000,
    ) -> Batch:  # fmt: skip
        """Up to `limit` messages from `start` on; empty at the end, never waits.

        Without a partition: partition after partition. Raises `OutOfRange` for an offset that retention
        took or that lies beyond the end.
        """
        whole("limit", limit, 1, 2**31)
        partitions = self._partitions
        now = partitions.clock.now_ns()
        rows: list[Rows] = []
        for number in range(len(partitions)) if partition is None else (partition,):
            log = partitions.log(number)
            first = partitions.begin(number, start, now)
            last = log.resolve(LATEST if stop is None else spot(stop, number, now))
            cursor = log.cursor(first)
            while limit > 0 and cursor.offset < last and (found := cursor.read(limit, _READ_BYTES, last)):
                rows += found
                limit -= sum(map(len, found))
        return Batch(self.name, rows)

    def get(self, offset: int, *, partition: int = 0) -> Message:
        """The one message at `offset`; raises `OutOfRange` when it is not there (any more, or yet)."""
        log = self._partitions.log(partition)
        message = log.view.message(offset) if type(offset) is int else None
        if message is None:
            raise self._nothing_at(partition, offset)
        return message

    def scan(
        self, *, partition: int | None = None, start: Place = "earliest", stop: Place = "latest",
        columns: Sequence[str] | None = None,
    ) -> Scan:  # fmt: skip
        """A lazy pass from `start` to `stop`, in constant memory; takes part in Arrow, DuckDB, Polars.

        `columns` names those that its Arrow batches shall have: fewer are quicker.
        """
        if partition is not None:
            self._partitions.check(partition)
        return Scan(self._partitions, partition, start, stop, columns)

    def reader(
        self, *, consumer: str | None = None, start: Place = "earliest",
        partitions: Sequence[int] | None = None, follow: bool = True,
        on_gap: Literal["raise", "skip"] = "raise", create: bool = True,
    ) -> Reader:  # fmt: skip
        """A live reader over all partitions; waits for what is to come unless `follow=False`.

        A consumer is created at first use and begins at `start`; later it goes on where it committed.
        Without a consumer nothing is saved. `on_gap="skip"` passes over what retention or damage took,
        and notes it in `reader.gaps`; otherwise that raises.
        """
        one_of("on_gap", on_gap, ("raise", "skip"))
        if consumer is not None:
            consumer_name(consumer)
            self._require_writable()
        self._partitions.refresh()
        if partitions is not None:
            self._check_chosen(partitions)
        return Reader(
            [self._partitions],
            consumer=consumer,
            start=start,
            partitions=partitions,
            follow=follow,
            on_gap=on_gap,
            create=create,
        )

    # Consumers.

    def add_consumer(
        self, name: str, *, important: bool = False, availability_period: Duration | None = None,
        start: Place = "earliest",
    ) -> None:  # fmt: skip
        """Declare a consumer before its first reader; raises `AlreadyExists`.

        Nothing is removed before an important consumer has committed it, however full the disk gets;
        `availability_period` does so for a time.
        """
        partitions = self._partitions
        now = partitions.clock.now_ns()
        options = ConsumerOptions(
            important=important,
            availability_period_s=None
            if availability_period is None
            else seconds("availability_period", availability_period),
        )
        places = partitions.begin_all(start, now)
        partitions.consumers.add(consumer_name(name), self.id, options, places, now)

    def consumers(self) -> list[ConsumerStats]:
        """Who reads this topic, where they stand, and how far behind they are."""
        partitions = self._partitions
        ends = {log.partition: log.bounds() for log in partitions.logs()}
        found = []
        for record in partitions.consumers.of_topic(self.id):
            stored = partitions.consumers.positions(self.id, record.name)
            positions = {p.partition: p.position for p in stored}
            lag = sum(
                max(0, bounds.end - max(positions.get(number, bounds.start), bounds.start))
                for number, bounds in ends.items()
            )
            updated = max((p.updated for p in stored), default=None)
            found.append(ConsumerStats(record.name, record.options.important, positions, lag, updated))
        return found

    def seek_consumer(self, name: str, place: Place) -> dict[int, int]:
        """Put a consumer anywhere and return the offsets; a reader open under its name loses its place."""
        partitions = self._partitions
        now = partitions.clock.now_ns()
        consumer_name(name)
        places = partitions.begin_all(place, now)
        if not partitions.consumers.exists(name, self.id):
            self.add_consumer(name, start=place)
        else:
            partitions.consumers.seek(name, self.id, places, now)
        return places

    def drop_consumer(self, name: str) -> None:
        """Forget a consumer and its positions; raises `UnknownConsumer`."""
        self._partitions.consumers.drop(consumer_name(name), self.id)

    # The topic itself.

    def alter(self, **changes: Any) -> None:
        """Change options. Partitions can be added, not taken away; other processes notice by themselves."""
        self._require_writable()
        partitions = self._partitions
        partitions.refresh()
        fields = topic_changes(changes)
        if "sync" in fields and fields["sync"] != self.options.sync:
            raise InvalidOption(
                "sync cannot be changed later", hint="a writer may choose its own: writer(sync=…)"
            )
        partitions.alter(self.options.altered(**fields))

    def stats(self) -> TopicStats:
        """Messages, bytes and times of each partition, without reading the messages."""
        self._partitions.refresh()
        rows = tuple(self._partition_stats(number) for number in range(len(self._partitions)))
        return TopicStats(self.name, sum(r.messages for r in rows), sum(r.bytes for r in rows), rows)

    def vacuum(self) -> VacuumReport:
        """Remove what retention lets go, now, and report it."""
        self._require_writable()
        self._partitions.refresh()
        return vacuum(self._partitions)

    def __repr__(self) -> str:
        return f"<Topic {self.name}: {len(self._partitions)} partitions>"

    # Inside.

    def _check_chosen(self, numbers: Sequence[int]) -> None:
        if not isinstance(numbers, Collection) or isinstance(numbers, str):
            raise WrongType(f"partitions is a list of numbers, not {type(numbers).__name__}")
        if not numbers:
            raise InvalidOption("partitions is empty", hint="leave it out to read all of them")
        for number in numbers:
            self._partitions.check(number)

    def _write_scan(self, scan: Scan, partition: int | None) -> Receipts:
        with self.writer() as writer:
            for batch in scan:
                writer.write_many(batch, partition=partition)
            return writer.flush()

    def _partition_stats(self, number: int) -> PartitionStats:
        log = self._partitions.log(number)
        bounds = log.bounds()
        bases = log.view.segments()
        total = sum(bounds.byte if base == bounds.segment else file_bytes(log.folder, base) for base in bases)
        oldest = newest = None
        if bounds.end > bounds.start:
            oldest = self._written_at(number, bounds.start)
            newest = self._written_at(number, bounds.end - 1)
        return PartitionStats(
            number, bounds.start, bounds.end, bounds.end - bounds.start, total, len(bases), oldest, newest
        )

    def _written_at(self, partition: int, offset: int) -> int | None:
        rows = self._partitions.log(partition).cursor(offset).read(1, 1)
        return rows[0].messages()[0].written_at if rows else None

    def _nothing_at(self, partition: int, offset: int) -> OutOfRange:
        """Why there is no message at an offset."""
        whole("offset", offset, 0, 2**63 - 1)
        log = self._partitions.log(partition)
        bounds = log.bounds()
        if bounds.dropped:
            raise TopicReplaced(f"topic {self.name!r} was dropped", hint="open it anew by its name")
        self._refuse_ahead(partition, offset + 1)
        rows = log.cursor(max(offset, bounds.start)).read(1, 1)
        return OffsetTrimmed(
            f"offset {offset} of {self.name!r} partition {partition} holds no message",
            partition=partition, offset=offset, first=rows[0].first if rows else bounds.end,
        )  # fmt: skip

    def _refuse_ahead(self, partition: int, offset: int) -> None:
        end = self._partitions.log(partition).bounds().end
        if offset > end:
            raise OffsetAhead(
                f"offset {offset} of {self.name!r} partition {partition} is beyond the end ({end})",
                partition=partition, offset=offset, end=end,
            )  # fmt: skip

    def _require_writable(self) -> None:
        if self._partitions.read_only:
            raise ReadOnly("the store was opened with read_only=True", hint="open it without")


def _order(batch: Outgoing, landed: Sequence[Landed]) -> list[tuple[int, int]] | None:
    """For each message of the batch: which run it is in, and its place there."""
    if len(landed) == 1:
        return None
    order = [(0, 0)] * len(batch.values)
    for run, each in enumerate(landed):
        for place, index in enumerate(each.places):
            order[index] = (run, place)
    return order
