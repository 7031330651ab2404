"""A topic: a named log in partitions, and its promises."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, Literal

from penstock.consume.options import Kind, Moment, Retry, reader_options
from penstock.consume.reader import Reader, open_reader
from penstock.consume.removed_parents import remove_emptied
from penstock.errors import InvalidOption, WrongType
from penstock.files import speak, speaking
from penstock.growth_rules import refuse_own_partitioner, refuse_split
from penstock.keys import Key, Prefix, match
from penstock.log.frame import RAW
from penstock.message import Batch, Message, Receipt, Receipts, V, typed
from penstock.options import Sync, TopicOptions
from penstock.parse import PARTITIONS_MAX, Duration, Size, nanoseconds, one_of, seconds, size, whole
from penstock.partition_tree import HASHES
from penstock.place import Place
from penstock.state.database import refuse_read_only
from penstock.state.topics import Topics
from penstock.store import consumers
from penstock.store.consumers import ConsumerStats
from penstock.store.stats import PartitionInfo, TopicStats, partition_list, topic_stats
from penstock.topic import delayed, retention
from penstock.topic.bodies import is_file
from penstock.topic.input import Value, batch_of_many, batch_of_one
from penstock.topic.offsets import nothing_at
from penstock.topic.open_topic import OpenTopic
from penstock.topic.producer import NOBODY, Routing, group_sender, sender_of
from penstock.topic.retention import VacuumReport, vacuum
from penstock.topic.routing import Partitioner
from penstock.topic.scan import Scan, latest, past_of, read_some, require_index, wanted
from penstock.topic.value_codec import TypeCoder, allowed_codec, packer_for, refuse_codec
from penstock.topic.writer import Writer

if TYPE_CHECKING:  # ways in and out stand above the store; what is called here loads them
    from penstock.exchange.diskq_export import DiskqExported

#: Values that are no files, at a glance.
_PLAIN = frozenset((bytes, str))


@speaking(
    "write_many", "writer", "read", "latest", "scan", "reader", "add_consumer", "alter_consumer", "consumers",
    "seek_consumer", "kick_consumer", "drop_consumer", "alter", "split", "partitions", "stats", "vacuum",
    "delete_before", "expired",
)  # fmt: skip
class Topic(Generic[V]):
    """A topic of an open store; made by `Store.topic` and `Store.create_topic`.

    Opened with `type=Order` it is a `Topic[Order]`, whose values are orders instead of bytes.
    """

    def __init__(self, open_topic: OpenTopic, coder: TypeCoder | None = None) -> None:
        self.open_topic = open_topic
        self.coder = coder
        self._decode = None if coder is None else coder.decode

    @property
    def name(self) -> str:
        """The topic's name."""
        return self.open_topic.name

    @property
    def id(self) -> int:
        """An id that differs for a topic that was dropped and created again."""
        return self.open_topic.record.id

    @property
    def options(self) -> TopicOptions:
        """What the topic promises, as last read from the store."""
        return self.open_topic.options

    # Writing.

    def write(
        self, value: V | str | Path | BinaryIO | None, *, key: Key = None,
        headers: Mapping[str, str | bytes] | None = None, partition: int | None = None,
        group: str | None = None, timestamp: int | datetime | None = None, delay: Duration | None = None,
        deliver_at: int | datetime | None = None, name: str | None = None,
    ) -> Receipt:  # fmt: skip
        """Append one message; return once it would survive a power cut (or what the topic's `sync` says).

        Raises `Unavailable` when it cannot be stored now: nothing of it stays, try again. With `delay`, or
        at `deliver_at` (a datetime, or nanoseconds since 1970), it enters the topic when that has passed: it
        is on disk until then, and some process that has the store open appends it (docs/retries.md).

        On a topic with `payloads` the value may be a path or an open file, of any size; its body is stored
        before the message (docs/payloads.md). With a `name`, which becomes part of the body's, also a small
        value is stored so.
        """
        topic = self.open_topic
        options = topic.record.options
        if options.codecs or topic.read_only:
            self.require_raw()
        if partition is not None:
            topic.growth.require_active(partition)
        producer = NOBODY if group is None else group_sender(group)
        if name is not None or (value.__class__ not in _PLAIN and is_file(value)):
            if delay is not None or deliver_at is not None:
                raise delayed.no_body()
            message = batch_of_one(b"", key, headers, timestamp, partition, 0)  # what is wrong is said first
            body = value if is_file(value) else self.encoded(value)  # type: ignore[arg-type]
            return topic.write_body(message, producer, body, name)[0].receipt(0, options.sync)
        stored: Any = value if self.coder is None else self.coder.encode(value)
        if delay is not None or deliver_at is not None:
            message = batch_of_one(stored, key, headers, timestamp, partition, options.max_message_bytes)
            due = delayed.due_at(delay, deliver_at, topic.clock.now_ns())
            if due is not None:
                try:
                    return delayed.store(topic, message, producer.group, due)
                except OSError as error:
                    speak(error)
        else:
            limit = options.max_message_bytes if options.payloads is None else options.value_bytes
            message = batch_of_one(stored, key, headers, timestamp, partition, limit)
        try:
            return topic.write(message, producer)[0].receipt(0, options.sync)
        except OSError as error:
            speak(error)

    def write_many(
        self, values: Any, *, keys: Any = None, headers: Any = None, timestamps: Any = None,
        partition: int | None = None,
    ) -> Receipts:  # fmt: skip
        """Append many messages; return once all would survive a power cut (or what `sync` says).

        `values` is a list, an Arrow array, a table with a column `value`, a `Batch` or a `Scan`; nothing
        is written unless all of them can be. Messages of one partition stay together, in order.
        """
        open_topic = self.open_topic
        self.require_raw()
        open_topic.growth.require_active(partition)
        if isinstance(values, Scan):
            return self._write_scan(values, partition)
        limit = self.options.value_bytes
        packer = packer_for(self.coder, RAW, limit)
        values = open_topic.bodies.outside_all(values)
        batch = batch_of_many(values, keys, headers, timestamps, partition, limit, packer)
        runs = open_topic.write(batch) if len(batch.columns.values) else []
        return Receipts(runs, sync=self.options.sync)

    def writer(
        self, *, producer_id: str | None = None, group: str | None = None,
        partitioner: Partitioner | None = None, headers: Mapping[str, str | bytes] | None = None,
        codec: str | int | None = None, linger: Duration = "2ms", buffer: Size = "16MiB",
        timeout: Duration | None = None, sync: Sync | None = None, route: Routing = "key",
    ) -> Writer[V]:  # fmt: skip
        """A buffered writer, for many messages one after another.

        With a `producer_id` each message is stored exactly once, however often it is sent: `write` takes a
        `seqno`, or counts. All messages of a `group` go to one partition. `partitioner` chooses the
        partition of a key: a function of the key's bytes and the number of partitions. `codec` packs each
        value: "raw", "gzip", "zstd", "lzop" or one of your own; a topic with a list of codecs refuses
        others here. `route="producer"` sends all messages of the producer to one partition, whatever their
        keys: they keep its order.

        `linger` is how long a message may wait for company, `buffer` how many bytes may wait for the
        disk before `write` does, `timeout` how long it waits then. `sync="os"` does not wait for the disk.
        """
        self.require_writable()
        chosen = sync or self.options.sync
        one_of("sync", chosen, ("disk", "os"))
        number = allowed_codec(codec, self.options)
        if partitioner is not None:
            refuse_own_partitioner(self.name, self.options.autopartitioning)
        sender = sender_of(producer_id, group, partitioner, route)
        return Writer(
            self.open_topic,
            producer=sender,
            headers=headers,
            linger_s=seconds("linger", linger),
            buffer_bytes=size("buffer", buffer),
            timeout_s=None if timeout is None else seconds("timeout", timeout),
            sync=chosen,
            packer=packer_for(self.coder, number, self.options.value_bytes),
        )

    # Reading.

    def read(
        self, *, partition: int | None = None, start: Place = "earliest", stop: Place | None = None,
        key: Key = None, prefix: Prefix | None = None, limit: int = 1000,
    ) -> Batch[V]:  # fmt: skip
        """Up to `limit` messages from `start` on; empty at the end, never waits.

        Where the limit left messages out, `batch.more` says so, and `start=batch.next` goes on there.
        Without a partition: partition after partition. Raises `OutOfRange` for an offset that retention
        took or that lies beyond the end. On a topic with `index="key"`, `key` reads only messages of that
        key, and `prefix` those whose key begins so: a text with its first characters, an array
        (`["chat", 345]`) with its first elements.
        """
        whole("limit", limit, 1, 2**31)
        asked = wanted(self.open_topic, key, prefix)
        rows, more, following = read_some(self.open_topic, partition, start, stop, asked, limit)
        return Batch(self.name, rows, self._decode, more=more, next=following)

    def get(self, offset: int, *, partition: int = 0) -> Message[V]:
        """The one message at `offset`; raises `OutOfRange` when it is not there (any more, or yet)."""
        log = self.open_topic.log(partition)
        message = log.key_retention.message(offset) if type(offset) is int else None
        if message is None:
            raise nothing_at(self.name, log, offset)
        return message if self._decode is None else typed(message, self._decode)  # type: ignore[return-value]

    def latest(self, key: Key) -> Message[V] | None:
        """The newest message of a key, also a tombstone; None when there is none. Needs `index="key"`.

        Where a key is in several partitions, that is the one written last.
        """
        asked = match((key,))
        require_index(self.open_topic)
        message = latest(self.open_topic, asked)
        return message if message is None or self._decode is None else typed(message, self._decode)

    def scan(
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
        if partition is not None:
            self.open_topic.check(partition)
        asked = wanted(self.open_topic, key, prefix)
        if asked is not None and history is not None:
            raise InvalidOption(
                "an archive has no index of keys", hint="leave out key and prefix, or history"
            )
        past = past_of(self.open_topic, history, storage_options)
        return Scan(self.open_topic, partition, start, stop, columns, self._decode, asked, past)

    def reader(
        self, *, consumer: str | None = None, start: Place = "earliest",
        partitions: Sequence[int] | None = None, follow: bool = True,
        on_gap: Literal["raise", "skip"] = "raise", create: bool = True, read_from: Moment | None = None,
        max_lag: Duration | None = None, handover: Duration = "30s", retry: Retry | None = None,
        kind: Kind = "stream", lease: Duration = "30s",
    ) -> Reader[V]:  # fmt: skip
        """A live reader over all partitions; waits for what is to come unless `follow=False`.

        A consumer is created at first use and begins at `start`; later it goes on where it committed.
        Its readers share the partitions, wherever they run; `partitions` takes those for good instead,
        and raises `PartitionLost` when another reader has one. Without a consumer nothing is saved.

        `on_gap="skip"` skips what retention or damage took, and notes it in `reader.gaps`;
        otherwise that raises. Messages written before `read_from` (a moment, or an age) or longer ago
        than `max_lag` are skipped and noted in `reader.skipped`. `handover` is how long a partition
        that goes to another reader waits for what was delivered to be committed; `retry` when messages
        that failed are delivered again (docs/retries.md).

        With `kind="queue"` readers share messages instead of partitions: each has those it received for
        `lease`, then they are anybody's (docs/queues.md).
        """
        if consumer is not None:
            self.require_writable()
        topics = [self.open_topic]
        options = reader_options(
            topics, consumer=consumer, start=start, partitions=partitions, follow=follow, on_gap=on_gap,
            create=create, read_from=read_from, max_lag=max_lag, handover=handover, retry=retry,
            kind=kind, lease=lease,
            decoders={} if self._decode is None else {self.name: self._decode},
        )  # fmt: skip
        return open_reader(topics, options)

    # Consumers.

    def add_consumer(
        self, name: str, *, important: bool = False, availability_period: Duration | None = None,
        start: Place = "earliest", read_from: Moment | None = None, read_speed: Size | None = None,
        read_burst: Size | None = None,
    ) -> None:  # fmt: skip
        """Declare a consumer before its first reader; raises `AlreadyExists`.

        Nothing is removed before an important consumer has committed it, however full the disk gets;
        `availability_period` does so for a time. Messages written before `read_from` are skipped. Its readers
        together get `read_speed` bytes a second, and `read_burst` at once.
        """
        consumers.add(
            self.open_topic, name, important=important, availability_period=availability_period,
            start=start, read_from=read_from, read_speed=read_speed, read_burst=read_burst,
        )  # fmt: skip

    def alter_consumer(self, name: str, **changes: Any) -> None:
        """Change `important`, `availability_period`, `read_from`, `read_speed`, `read_burst`.

        Raises `UnknownConsumer`.

        Readers that are open take a new `read_from` up with the next partition they get.
        """
        self.require_writable()
        consumers.alter(self.open_topic, name, changes)

    def consumers(self) -> list[ConsumerStats]:
        """Who reads this topic, where they stand, how far behind they are, and which processes read."""
        return consumers.stats(self.open_topic)

    def seek_consumer(self, name: str, place: Place) -> dict[int, int]:
        """Put a consumer anywhere and return the offsets; a reader open under its name loses its place.

        Offsets by partition leave the partitions that they do not name where they are. The reader's next
        commit of what it got before raises `PartitionLost`; it goes on at the new place.
        """
        return consumers.seek(self.open_topic, name, place)

    def kick_consumer(self, name: str, pid: int | None = None) -> list[int]:
        """Take their partitions from a consumer's readers, all or those of one process, for others to read.

        Meant for a process that is stopped or stuck. When it goes on, its commits raise `PartitionLost`,
        and it joins again. Returns the pids that were kicked.
        """
        self.require_writable()
        return consumers.kick(self.open_topic, name, pid)

    def drop_consumer(self, name: str) -> None:
        """Forget a consumer and its positions; raises `UnknownConsumer`, as do its open readers then."""
        consumers.drop(self.open_topic, name)

    # The topic itself.

    def alter(self, **changes: Any) -> None:
        """Change options. Partitions can be added, not taken away; other processes notice by themselves."""
        self.require_writable()
        self.open_topic.refresh()
        options = self.options.altered(changes)
        if options.key_retention and not self.options.key_retention:
            consumers.refuse_key_retention(self.open_topic)
        self.open_topic.alter(options)

    def split(self, partition: int, *, at: int | None = None) -> tuple[int, int]:
        """Split a partition in two, at a hash or in the middle; returns both, the lower range first.

        It is only read from then on, and its children go on where it ends. Needs `autopartitioning="up"` or
        "paused". Raises `PartitionInactive` when it was split before.
        """
        self.require_writable()
        self.open_topic.refresh()
        refuse_split(self.name, self.options.autopartitioning)
        number = whole("partition", partition, 0, PARTITIONS_MAX)
        children = self.open_topic.growth.split(number, None if at is None else whole("at", at, 0, HASHES))
        assert children is not None, "only splits that happen by themselves have a limit"
        return children

    def partitions(self) -> list[PartitionInfo]:
        """The partitions that can be read, by number: their ranges, parents and children, what they hold."""
        return partition_list(self.open_topic)

    def stats(self) -> TopicStats:
        """Messages, bytes and times of each partition, without reading the messages."""
        self.open_topic.refresh()
        return topic_stats(self.open_topic)

    def vacuum(self) -> VacuumReport:
        """Remove what retention lets go, now, and report it."""
        self.require_writable()
        self.open_topic.refresh()
        return vacuum(self.open_topic)._replace(removed=remove_emptied(self.open_topic))

    def delete_before(self, place: Place) -> Batch[V]:
        """Remove everything before a place ("7d" ago, an offset), for good, and return what was removed.

        What important consumers have not committed stays. All removed messages are held in memory, those that
        `key_retention` had ended already among them.
        """
        self.require_writable()
        self.open_topic.refresh()
        return Batch(self.name, retention.delete_before(self.open_topic, place), self._decode)

    def expired(self, *, since: int | datetime | None = None) -> Batch[V]:
        """Messages that have expired (`key_retention`), as far as they still lie in the log.

        No other read returns them. With `since`, only those that expired after that moment: so a program that
        cleans up after them gets each once.
        """
        moment = None if since is None else nanoseconds("since", since)
        self.open_topic.refresh()
        return Batch(self.name, retention.expired(self.open_topic, moment), self._decode)

    def export_diskq(self, path: str | os.PathLike[str], *, encoding: str | None = None) -> DiskqExported:
        """Write the topic as a go-diskq folder, which is there whole or not at all; it must be new or empty.

        What was imported from one is as it was, byte for byte, and later messages lie where go-diskq would
        have put them. `encoding` is "fixed" or "varuint", else as it came. What diskq cannot hold (headers,
        tombstones) is named in `notes` (docs/exchange.md).
        """
        from penstock.exchange.diskq_export import export_diskq

        return export_diskq(self, path, encoding=encoding)

    def __repr__(self) -> str:
        return f"<Topic {self.name}: {len(self.open_topic.active())} partitions>"

    # Inside.

    def encoded(self, value: V | str | None) -> Value:
        """A value as bytes, by the topic's type."""
        return value if self.coder is None else self.coder.encode(value)  # type: ignore[return-value]

    def _write_scan(self, scan: Scan[Any], partition: int | None) -> Receipts:
        with self.writer() as writer:
            for batch in scan:
                writer.write_many(batch, partition=partition)
            return writer.flush()

    def require_raw(self) -> None:
        """Raise unless values may be written as they are."""
        self.require_writable()
        if self.options.codecs:
            refuse_codec(RAW, self.options)

    def require_writable(self) -> None:
        """Raise `ReadOnly` if the store was opened only to be read."""
        refuse_read_only(self.open_topic.read_only)


def several_topics(
    topics: str | Topic | Sequence[str | Topic], find: Callable[[str], Topic], records: Topics
) -> list[Topic]:
    """Topics by name or as they are; each once, and of the store that has these records."""
    if isinstance(topics, (str, Topic)):
        topics = [topics]
    if not isinstance(topics, Sequence):
        raise WrongType(f"topics is a name, a Topic or a list of them, not {type(topics).__name__}")
    found = [each if isinstance(each, Topic) else find(each) for each in topics]
    if not found:
        raise InvalidOption("topics is empty", hint="name one at least")
    names = [topic.name for topic in found]
    if len(set(names)) < len(names):
        raise InvalidOption(f"a topic is named twice: {', '.join(names)}")
    for topic in found:
        if topic.open_topic.topics is not records:
            raise InvalidOption(f"topic {topic.name!r} is of another store", hint="name it instead")
    return found
