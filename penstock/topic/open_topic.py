"""`OpenTopic`: a topic as one process has it open. It holds the logs of its partitions and writes to them."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from penstock.clock import Clock
from penstock.errors import (
    Closed,
    DataError,
    LockTimeout,
    NotDurable,
    NotYetDurable,
    PenstockError,
    TopicReplaced,
)
from penstock.files import Files
from penstock.growth_rules import UP
from penstock.locks import FORKED, hold
from penstock.log.append import Rerouted
from penstock.log.frame_encode import encode, frames
from penstock.log.log import Log
from penstock.log.meter import HELD, QuotaTerms
from penstock.message import Receipt, StoredRun
from penstock.options import TopicOptions
from penstock.parse import PARTITIONS_MAX, whole
from penstock.partition_tree import PartitionTree
from penstock.place import Place, Spot, spot
from penstock.references import Referenced, unpack
from penstock.state.consumers import Consumers
from penstock.state.topics import TopicRecord, Topics
from penstock.state.transactions import StoredPartition, Transactions
from penstock.topic.append import EncodedRoute, TopicAppender
from penstock.topic.bodies import TopicBodies, stays_inside
from penstock.topic.delayed import DelaysMessages, NoDelays
from penstock.topic.delivery import Delivery
from penstock.topic.growth import PartitionGrowth
from penstock.topic.identity import keep_identity, mark_dropped
from penstock.topic.offsets import refuse_ahead
from penstock.topic.partition_table import PartitionTable
from penstock.topic.producer import NOBODY, Producer
from penstock.topic.resends import Resends
from penstock.topic.write_batch import WriteBatch

#: The folder of a store in which its topics' bodies lie, those that lie in files.
PAYLOADS = "payloads"
_DROPPED = "was dropped"


class Closable(Protocol):
    """What can be closed."""

    def close(self) -> None:
        """Close it."""


class LetsGo(Protocol):
    """An object that holds something others wait for, such as a reader with its partitions."""

    def let_go(self) -> None:
        """Release what is held, since the topic closes."""


class OpenTopic:
    """One topic, as one process has it open: opens logs when they are used, notices new ones."""

    def __init__(
        self, folder: str, record: TopicRecord, topics: Topics, consumers: Consumers,
        transactions: Transactions, files: Files, clock: Clock, *, read_only: bool = False,
    ) -> None:  # fmt: skip
        self.folder = folder
        self.record = record
        self.topics = topics
        self.consumers = consumers
        self.transactions = transactions
        self.files = files
        self.clock = clock
        self.read_only = read_only
        self._logs: dict[int, Log] = {}
        self._mutex = threading.Lock()
        #: Where values lie that are too large for the log.
        self.bodies = TopicBodies(
            os.path.join(os.path.dirname(os.path.dirname(folder)), PAYLOADS), topics.store_id, record.id,
            lambda: self.record.options, self.refresh, files, clock,
        )  # fmt: skip
        #: The one way in.
        self.appender = TopicAppender(
            lambda: self.record, self.log, clock, self.bodies, topics.bindings(record.id),
            PartitionTable(
                lambda: self.record,
                topics.partitions.gates_before_rows,
                self.log,
            ),
            Resends(self.logs, self.active_logs), catch_up=self.catch_up, refresh=self.refresh,
            on_appended=self.on_appended,
        )  # fmt: skip
        #: Adds and splits partitions.
        self.growth = PartitionGrowth(
            topics, lambda: self.record, clock, log=self.log, new_log=self._open, refresh=self.refresh,
            learn=self._learn,
        )  # fmt: skip
        #: Why nothing can be done with it any more; empty while it is open.
        self.ended = ""
        #: Open writers: they are closed before the store is, or what they hold would be lost.
        self.writers: weakref.WeakSet[Closable] = weakref.WeakSet()
        #: Open readers: they release their leases when the store is closed, and hear of it.
        self.readers: weakref.WeakSet[LetsGo] = weakref.WeakSet()
        #: Called after a segment was sealed here, with the partition's number.
        self.on_roll: Callable[[int], None] = lambda partition: None
        #: Called after a partition was written to too fast for too long, with its number.
        self.on_hot: Callable[[int], None] = lambda partition: None
        #: Called when options have changed, here or elsewhere.
        self.on_options: Callable[[], None] = lambda: None
        #: Applies what dead processes had committed anywhere in the store; what living ones have in hand.
        self.finish_transactions: Callable[[], set[int]] = set
        #: Raises when the store's folder is not where it was.
        self.require_place: Callable[[], None] = lambda: None
        #: Stores messages until they are due (`DelaysMessages`).
        self.delayed: DelaysMessages = NoDelays()
        #: Opens another topic of the same store, and makes it with these options if it is not there.
        self.sibling_topic: Callable[[str, dict[str, Any]], OpenTopic] = _no_sibling_topic

    @property
    def options(self) -> TopicOptions:
        """The topic's options."""
        return self.record.options

    @property
    def name(self) -> str:
        """The topic's name."""
        return self.record.name

    @property
    def tree(self) -> PartitionTree:
        """The topic's partitions as last read from the store."""
        return self.record.rows

    def numbers(self) -> tuple[int, ...]:
        """The partitions that can be read, ascending; those that were split are among them."""
        return self.record.rows.numbers

    def active(self) -> tuple[int, ...]:
        """The partitions that can be written to, by their ranges of hashes."""
        return self.record.rows.active

    def log(self, partition: int) -> Log:
        """The log of one partition, opened at first use."""
        log = self._logs.get(partition)
        if log is not None:
            return log
        self.require_open()
        if whole("partition", partition, -(2**31), 2**31) not in self.numbers():
            self.refresh()  # another process may have added it
            if partition not in self.numbers():
                raise self.tree.unknown(self.name, partition)
        with self._mutex:
            if partition not in self._logs:
                self._logs[partition] = self._open(partition)
                self._logs[partition].help()
            return self._logs[partition]

    def check(self, partition: int | None) -> None:
        """Raise unless the partition exists, or none was chosen."""
        if partition is not None:
            self.log(whole("partition", partition, 0, PARTITIONS_MAX))

    def begin(
        self, partition: int, place: Place, now_ns: int, resolve: Callable[[Log, Spot], int] = Log.resolve
    ) -> int:
        """The offset at which reading from `place` begins in a partition; raises `OffsetAhead`."""
        if isinstance(place, Mapping):
            for number in place:
                self.check(number)
        log = self.log(partition)
        offset = resolve(log, spot(place, partition, now_ns))
        refuse_ahead(self.name, log, offset)
        return offset

    def begin_all(self, place: Place, now_ns: int) -> dict[int, int]:
        """Return the offset at which reading from `place` begins, for every partition."""
        return {number: self.begin(number, place, now_ns) for number in self.numbers()}

    def logs(self) -> list[Log]:
        """Return the logs of all partitions, opened."""
        return [self.log(partition) for partition in self.numbers()]

    def active_logs(self) -> list[Log]:
        """Return the logs of the partitions that can be written to, opened, by number."""
        return [self.log(partition) for partition in sorted(self.active())]

    def opened_logs(self) -> list[Log]:
        """Return the logs of the partitions that are open already."""
        return list(self._logs.values())

    def refresh(self) -> None:
        """Take up partitions and options that another process changed; `TopicReplaced` if it is gone."""
        self.require_open()
        self.require_place()
        record = self.topics.by_id(self.record.id)
        if record != self.record:
            self.record = record
            self.bodies.make_known()
            for log in self.opened_logs():
                log.options = record.options
            self.on_options()

    # Writing: the one way in.

    def append(
        self, batch: WriteBatch, producer: Producer = NOBODY, *, stored: list[StoredRun] | None = None,
        terms: QuotaTerms = HELD,
    ) -> list[StoredRun]:  # fmt: skip
        """Append each message to its partition; visible to writers, not yet durable.

        Runs enter `stored` as they are stored: a caller that must know what is safe when a later partition
        fails passes its own list.
        """
        runs = [] if stored is None else stored
        if terms is HELD and (run := self._append_whole(batch, producer)) is not None:
            runs.append(run)
        else:
            self.appender.deliver(Delivery(batch, producer, runs, terms=terms))
        return runs

    def _append_whole(self, batch: WriteBatch, producer: Producer) -> StoredRun | None:
        """Append what goes to the only partition, as it is, without a stop; None where more is to be done."""
        columns, partitions, groups = batch
        record, values = self.record, columns.values
        options, active = record.options, record.rows.active
        log = self._logs.get(active[0])
        if len(active) != 1 or log is None:
            return None
        if producer is not NOBODY or partitions is not None or groups is not None:
            return None
        if options.payloads is not None and not stays_inside(values, options.inline_bytes):
            return None
        compress, created = options.compress is not None, self.clock.now_ns()
        if len(values) == 1:
            made = [encode(columns, created=created, compress=compress)]
        else:
            made = frames(columns, created=created, compress=compress)
        try:
            appended = log.appender.append(made, tree=record.tree)
        except Rerouted:
            return None
        if log.appender.sealed or ((meter := log.appender.meter) is not None and meter.is_hot):
            self.on_appended(log.partition)
        size = made[0].size if len(made) == 1 else sum(frame.size for frame in made)
        return StoredRun(
            log.partition, appended.first, len(values), False, None, size, appended.next,
            appended.cuts, appended.waited,
        )  # fmt: skip

    def write(self, batch: WriteBatch, producer: Producer = NOBODY) -> list[StoredRun]:
        """Append a batch; return when it is as safe as the topic promises."""
        run = self._append_whole(batch, producer)
        runs = [run] if run is not None else self.append(batch, producer)
        if self.record.options.sync == "disk":
            try:
                self.sync(runs)
            except LockTimeout as error:
                raise _not_yet_durable(error) from error
        return runs

    def write_body(
        self, batch: WriteBatch, producer: Producer, body: Any, name: str | None
    ) -> list[StoredRun]:
        """Store a body outside the log, then its message; a body whose message was not stored goes again."""
        stored = self.bodies.outside(body, name)
        try:
            return self.write(batch._replace(columns=batch.columns._replace(values=(stored,))), producer)
        except PenstockError as error:
            if isinstance(stored, Referenced) and not isinstance(error, DataError):
                self.bodies.discard([unpack(stored).name])
            raise

    def write_each(self, batch: WriteBatch) -> list[Receipt | Exception]:
        """Write a batch whose messages succeed or fail each for itself: a receipt or an error of each."""
        runs: list[StoredRun] = []
        failure: Exception = AssertionError("a message went to no partition")
        try:
            self.append(batch, stored=runs)
        except (PenstockError, OSError) as error:
            failure = error
        outcomes: list[Receipt | Exception] = [failure] * len(batch.columns.values)
        sync = self.options.sync
        for run in runs:
            places = range(len(outcomes)) if run.places is None else run.places
            try:
                if sync == "disk":
                    self.sync((run,))
            except (PenstockError, OSError) as error:
                told = _not_yet_durable(error) if isinstance(error, LockTimeout) else error
                for place in places:
                    outcomes[place] = told
            else:
                for index, place in enumerate(places):
                    outcomes[place] = run.receipt(index, sync)
        return outcomes

    def write_without_waiting(self, batch: WriteBatch) -> StoredRun | None:
        """Write one frame to the only partition if nothing but the disk has to be waited for; else None."""
        record = self.record
        options, active = record.options, record.rows.active
        if options.sync != "disk" or options.payloads is not None or len(active) != 1 or self.read_only:
            return None
        made = batch.frames(self.clock.now_ns(), compress=options.compress is not None)
        if len(made) != 1:
            return None
        try:
            appended = self.log(active[0]).write_at_once(made, tree=record.tree)
        except FileNotFoundError:
            return None  # the topic was dropped at this moment, and what was stored is gone with it
        if appended is None:
            return None
        self.on_appended(active[0])
        return StoredRun(active[0], appended.first, made[0].count, size=made[0].size, stop=appended.next)

    def encode(self, batch: WriteBatch) -> Iterator[EncodedRoute]:
        """A batch by partition, as frames, its large values stored outside; nothing is appended."""
        return map(self.appender.encode, self.appender.route(batch, NOBODY))

    def sync(self, runs: Sequence[StoredRun]) -> None:
        """Return when all of it would survive a power cut."""
        try:
            for run in runs:
                if run.stop:
                    self._logs[run.partition].syncer.sync(run.stop, run.cuts)
        except (OSError, NotDurable) as error:
            self.topics.by_id(self.record.id)  # says so when it was dropped: then it is not the disk
            self.require_place()
            if isinstance(error, PenstockError):
                raise
            raise _not_yet_durable(error) from error

    def on_appended(self, partition: int) -> None:
        """Have what was sealed tidied, and what is written to too fast split."""
        appender = self.log(partition).appender
        if appender.sealed:
            self.on_roll(partition)
        if self.options.autopartitioning == UP and appender.meter is not None and appender.meter.notice():
            self.on_hot(partition)

    def catch_up(self, log: Log) -> None:
        """Learn of new partitions, and finish telling writers if whoever added them died before it did."""

        def tell() -> bool:
            self.refresh()
            log.appender.publish_tree(self.record.tree)
            return log.appender.ready().shown.sealed

        if hold((log.folder.append,), tell):
            self.growth.finish(log.partition)

    # The topic as a whole.

    def alter(self, options: TopicOptions) -> None:
        """Change options; added partitions open to a consumer once it has read what came before."""
        self.require_place()
        self.growth.alter(options)
        self.bodies.make_known()
        self.on_options()

    def _learn(self, record: TopicRecord) -> None:
        """Take up what this process has changed, and keep it beside the messages too."""
        self.record = record
        for number, log in list(self._logs.items()):
            if number in record.rows.numbers:
                log.options = record.options
            else:
                self._logs.pop(number).close()
        keep_identity(self.files, self.folder, record, self.topics)

    def publish_dropped(self, forget: Callable[[], None]) -> None:
        """Tell every reader and writer that the topic is gone, and call `forget`, all locks held."""

        def drop() -> None:
            if self.topics.by_id(self.record.id).tree != self.record.tree:
                return  # there are partitions that nobody has locked
            for log in logs:
                log.appender.publish_dropped()
            mark_dropped(self.files, self.folder, self.record.id)
            forget()
            self.ended = _DROPPED

        while self.ended != _DROPPED:
            self.refresh()
            logs = self.logs()
            hold([log.folder.append for log in logs], drop)

    def close(self, reason: str = "the store is closed") -> None:
        """Release the readers and close every log; later calls say `reason`."""
        self.ended = self.ended or reason
        for reader in list(self.readers):
            reader.let_go()
        for log in self._logs.values():
            log.close()
        self._logs.clear()

    def abandon(self) -> None:
        """Close in a forked child: the logs are the parent's."""
        self.ended = self.ended or FORKED
        self._logs = {}

    def _open(self, partition: int) -> Log:
        record = self.topics.by_id(self.record.id)  # or the folder may be a newer topic's by now
        if partition in record.rows.removed():
            raise record.rows.unknown(record.name, partition)  # or its folder would be made anew
        return Log(
            os.path.join(self.folder, "parts", f"{partition:06d}"),
            topic=record.name, topic_id=record.id, partition=partition, options=record.options,
            files=self.files, clock=self.clock, read_only=self.read_only,
            state=StoredPartition(self.topics, self.consumers, self.transactions, record.id, partition),
        )  # fmt: skip

    @contextmanager
    def named_if_closed(self) -> Iterator[None]:
        """Raise `Closed` or `TopicReplaced` for the errors of files that were closed during a call."""
        try:
            yield
        except (Closed, OSError):
            self.require_open()  # knows why
            raise

    def help(self, partition: int) -> None:
        """Let readers see what a process that died left behind in a partition."""
        with self.named_if_closed():
            self.log(partition).help()

    def require_open(self) -> None:
        """Raise when the store was closed or the topic dropped."""
        if self.ended == _DROPPED:
            raise TopicReplaced(f"topic {self.name!r} {_DROPPED}", hint="open it anew by its name")
        if self.ended:
            raise Closed(f"topic {self.name!r}: {self.ended}", hint="open the store again")


def _no_sibling_topic(name: str, options: dict[str, Any]) -> OpenTopic:
    raise AssertionError(f"a topic outside a store knows no {name}")


def _not_yet_durable(error: OSError) -> NotYetDurable:
    """The error for a write whose sync could not be waited for: it is in the log."""
    what = error.args[0] if isinstance(error, LockTimeout) else error.strerror
    return NotYetDurable(f"written, and not yet durable: {what}", hint="do not write it again")
