"""Checked messages into the log, as durable as the topic promises, and the receipts for them."""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, Protocol

from penstock.clock import Clock
from penstock.errors import (
    Closed,
    DataError,
    InvalidOption,
    OffsetAhead,
    OffsetTrimmed,
    PenstockError,
    TopicReplaced,
)
from penstock.files import Files
from penstock.log.append import Appended, Rerouted
from penstock.log.frame import ProducerStamp
from penstock.log.frame_encode import EncodedFrame
from penstock.log.log import Log
from penstock.log.producers import Claim, Pair
from penstock.message import Receipt, Receipts, StoredRun
from penstock.options import TopicOptions
from penstock.parse import PARTITIONS_MAX, whole
from penstock.place import Place, Spot, spot
from penstock.references import Referenced, unpack
from penstock.state.consumers import Consumers
from penstock.state.topics import TopicRecord, Topics
from penstock.state.transactions import Transactions
from penstock.topic.bodies import TopicBodies
from penstock.topic.delayed import DelaysMessages, NoDelays
from penstock.topic.partition_table import PartitionTable
from penstock.topic.producer import NOBODY, Producer
from penstock.topic.routing import PARTITIONERS, Route
from penstock.topic.write_batch import WriteBatch, encode_all


def refuse_ahead(topic: str, log: Log, offset: int) -> None:
    """Raise `OffsetAhead` for an offset past the end; a reader there would wait without knowing why."""
    end = log.bounds().end
    if offset > end:
        raise _ahead(topic, log, offset, end)


def _ahead(topic: str, log: Log, offset: int, end: int) -> OffsetAhead:
    return OffsetAhead(
        f"offset {offset} of {topic!r} partition {log.partition} is beyond the end ({end})",
        partition=log.partition, offset=offset, end=end,
    )  # fmt: skip


def nothing_at(topic: str, log: Log, offset: int) -> OffsetTrimmed:
    """Why there is no message at an offset: it is gone, or (raised here) something else is wrong."""
    whole("offset", offset, 0, 2**63 - 1)
    bounds = log.bounds()
    if bounds.dropped:
        raise TopicReplaced(f"topic {topic!r} was dropped", hint="open it anew by its name")
    if offset >= bounds.end:
        raise _ahead(topic, log, offset, bounds.end)
    rows = log.cursor(max(offset, bounds.start)).read(1, 1)
    return OffsetTrimmed(
        f"offset {offset} of {topic!r} partition {log.partition} holds no message",
        partition=log.partition, offset=offset, first=rows[0].first if rows else bounds.end,
    )  # fmt: skip


#: The folder of a store in which its topics' bodies lie, those that lie in files.
PAYLOADS = "payloads"


class Landed(NamedTuple):
    """Messages of one call that went to one partition: which of the call, and where."""

    partition: int
    places: Sequence[int]
    #: Where, and what to wait for; None when there is nothing to wait for.
    appended: Appended | None
    #: How many bytes they take in the log.
    size: int
    #: They were there before, and were not stored again.
    duplicate: bool = False

    def stored(self) -> StoredRun:
        if self.duplicate or self.appended is None:
            return StoredRun(self.partition, -1, len(self.places), duplicate=True)
        return StoredRun(self.partition, self.appended.first, len(self.places))


class Closable(Protocol):
    """What can be closed."""

    def close(self) -> None: ...


class LetsGo(Protocol):
    """What holds something that others wait for."""

    def let_go(self) -> None: ...


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
        self._turn = itertools.count()
        self.bindings = topics.bindings(record.id)
        self.gates = PartitionTable(self)
        #: Where values lie that are too large for the log.
        self.bodies = TopicBodies(
            os.path.join(os.path.dirname(os.path.dirname(folder)), PAYLOADS), topics.store_id, record.id,
            lambda: self.record.options, self.refresh, files, clock,
        )  # fmt: skip
        self._closed = ""
        self._dropped = False
        #: Open writers: they are closed before the store is, or what they hold would be lost.
        self.writers: weakref.WeakSet[Closable] = weakref.WeakSet()
        #: Open readers: they let go of their leases when the store is closed, and hear of it.
        self.readers: weakref.WeakSet[LetsGo] = weakref.WeakSet()
        #: Called after a segment was sealed here, with the partition's number.
        self.on_roll: Callable[[int], None] = lambda partition: None
        #: Stores messages until they are due; `look` takes part in appending those.
        self.delayed: DelaysMessages = NoDelays()
        #: Another topic of the same store, made with these options if it is not there.
        self.neighbour: Callable[[str, dict[str, Any]], OpenTopic] = _no_neighbour

    @property
    def options(self) -> TopicOptions:
        return self.record.options

    @property
    def name(self) -> str:
        return self.record.name

    def __len__(self) -> int:
        return self.record.options.partitions

    def log(self, partition: int) -> Log:
        """The log of one partition, opened at first use."""
        log = self._logs.get(partition)
        if log is not None:
            return log
        self.require_open()
        if not 0 <= whole("partition", partition, -(2**31), 2**31) < len(self):
            raise InvalidOption(
                f"topic {self.name!r} has no partition {partition!r}", hint=f"they are 0 to {len(self) - 1}"
            )
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
        """The same for every partition."""
        return {number: self.begin(number, place, now_ns) for number in range(len(self))}

    def logs(self) -> list[Log]:
        return [self.log(partition) for partition in range(len(self))]

    def refresh(self) -> None:
        """Take up partitions and options that another process changed; `TopicReplaced` if it is gone."""
        self.require_open()
        record = self.topics.by_id(self.record.id)
        if record != self.record:
            self.record = record
            self.bodies.make_known()
            for log in list(self._logs.values()):
                log.options = record.options

    # Writing.

    def append(self, batch: WriteBatch, sender: Producer = NOBODY) -> Iterator[Landed]:
        """Append each message to its partition; visible to writers, not yet durable.

        Yields as it goes, so that the caller knows what is stored when a later partition fails.
        """
        tree = self.record.tree  # before routing: if another thread learns of a new tree, we route again
        left = self.route(batch, range(len(batch.values)), sender)
        while left:
            try:
                landed = self._append_share(batch, left[0], sender, tree)
            except Rerouted:
                if self.record.tree != tree:  # else it was the partition that had not heard of the tree
                    tree = self.record.tree
                    places = sorted(place for share in left for place in share.places)
                    left = self.route(batch, places, sender)
                continue
            yield from landed
            left = left[1:]

    def _append_share(self, batch: WriteBatch, share: Route, sender: Producer, tree: int) -> list[Landed]:
        if self.record.options.payloads is None:
            return self._append_inline(batch, share, sender, tree)
        lifted = self.bodies.lift(batch, share.places)
        try:
            landed = self._append_inline(lifted.batch, share, sender, tree)
        except (Rerouted, PenstockError) as error:
            # Of a single message it is certain that nothing stays; of several, a body may have its message.
            is_single = len(share.places) == 1 and not isinstance(error, DataError)
            if is_single or isinstance(error, (Rerouted, TopicReplaced)):
                self.bodies.discard(lifted.made)
            raise
        stored = (place for each in landed if not each.duplicate for place in each.places)
        self.bodies.discard(lifted.unused(stored))
        return landed

    def _append_inline(self, batch: WriteBatch, share: Route, sender: Producer, tree: int) -> list[Landed]:
        if sender.producer_id:
            return [
                Landed(share.partition, places, appended, size, duplicate=not size)
                for places, appended, size in sender.append(self, batch, share, tree)
            ]
        drafts = self.drafts(batch, share)
        appended = self.append_drafts(share.partition, drafts, tree)
        return [Landed(share.partition, share.places, appended, sum(draft.size for draft in drafts))]

    def drafts(self, batch: WriteBatch, share: Route) -> list[EncodedFrame]:
        """What one partition gets of a batch that no producer numbered, as frames."""
        places = share.places
        picked = batch if len(places) == len(batch.values) else batch.pick(places)
        if share.group:
            picked = picked._replace(producer=ProducerStamp("", share.group), seqnos=range(len(places)))
        return self.encode(picked)

    def encode(self, batch: WriteBatch) -> list[EncodedFrame]:
        return encode_all(batch, self.clock.now_ns(), compress=self.options.compress is not None)

    def append_drafts(
        self, partition: int, drafts: Sequence[EncodedFrame], tree: int, claim: Claim | None = None
    ) -> Appended:
        """Append frames to one partition; `Rerouted` when the partitions changed since `tree`."""
        log = self.log(partition)
        try:
            appended = log.append(drafts, tree=tree, claim=claim)
        except Rerouted:
            self.catch_up(log)
            raise
        self.on_appended(partition)
        return appended

    def on_appended(self, partition: int) -> None:
        """Have what was sealed tidied."""
        if self.log(partition).appender.sealed:
            self.on_roll(partition)

    def sync(self, landed: Sequence[Landed]) -> None:
        """Return when all of it would survive a power cut."""
        for each in landed:
            if each.appended is not None:
                self._logs[each.partition].sync(each.appended)

    def route(self, batch: WriteBatch, places: Sequence[int], sender: Producer = NOBODY) -> list[Route]:
        """What each partition gets: those chosen, then by group, by key, by producer, and in turn."""
        count = len(self)
        if batch.partitions is None and batch.groups is None:
            if count == 1:
                return [Route(0, sender.group, places)]
            if sender.group or batch.keys is None:
                return [Route(self._without_key(sender, sender.group), sender.group, places)]
        choose = sender.choose or PARTITIONERS[self.options.partitioner]
        chosen: dict[tuple[int, str], list[int]] = {}
        for place in places:
            group = (batch.groups[place] if batch.groups is not None else None) or sender.group
            number = batch.partitions[place] if batch.partitions is not None else None
            if number is None:
                key = batch.keys[place] if batch.keys is not None and not group else None
                number = choose(key, count) if key is not None else self._without_key(sender, group)
            chosen.setdefault((number, group), []).append(place)
        keyed = batch.keys is not None
        return [Route(*key, places, keyed and not key[1]) for key, places in sorted(chosen.items())]

    def _without_key(self, sender: Producer, group: str) -> int:
        """The partition that a group, or a producer, is bound to; for others the next one in turn."""
        count = len(self)
        if count == 1:
            return 0
        if not group and not sender.producer_id:
            return next(self._turn) % count
        pair = Pair(sender.producer_id, group)
        number = self.bindings.partition(
            *pair, count, self.clock.now_ns(), lambda: self.gates.only_partition(pair)
        )
        if number >= count:  # bound by a process that knows of more partitions than we do
            self.refresh()
        return number

    def catch_up(self, log: Log) -> None:
        """Learn of new partitions, and finish telling writers if whoever added them died before it did."""
        with log.folder.append:
            self.refresh()
            log.appender.publish_tree(self.record.tree)

    # The topic as a whole.

    def alter(self, options: TopicOptions) -> None:
        """Change options; added partitions open to a consumer once it has read what came before."""
        for partition in range(len(self), options.partitions):
            self._open(partition).close()
        if options.partitions > len(self):
            for log in self.logs():
                log.producers.load()  # most of it, before anyone has to wait for us
        with ExitStack() as locks:
            logs = self.logs()
            for log in logs:
                locks.enter_context(log.folder.append)
            ends = [(log.partition, log.appender.ready().next) for log in logs]
            if options.partitions > len(self):
                for log in logs:
                    log.sync_all()  # a gate behind messages that go with the power would stay shut
                    log.appender.save_gate()
            gates = [
                (partition, parent, end)
                for partition in range(len(self), options.partitions)
                for parent, end in ends
            ]
            self.record = self.topics.alter(self.record, options, gates)
            for log in logs:
                log.appender.publish_tree(self.record.tree)
                log.options = options
        self.bodies.make_known()

    def publish_dropped(self, forget: Callable[[], None]) -> None:
        """Tell every reader and writer that the topic is gone, and call `forget`, all locks held."""
        with ExitStack() as locks:
            logs = self.logs()
            for log in logs:
                locks.enter_context(log.folder.append)
            for log in logs:
                log.appender.publish_dropped()
            forget()
        self._dropped = True

    def close(self, reason: str = "the store is closed") -> None:
        self._closed = reason
        for reader in list(self.readers):
            reader.let_go()
        for log in self._logs.values():
            log.close()
        self._logs.clear()

    def _open(self, partition: int) -> Log:
        record = self.topics.by_id(self.record.id)  # or the folder may be a newer topic's by now
        return Log(
            os.path.join(self.folder, "parts", f"{partition:06d}"),
            topic=record.name,
            topic_id=record.id,
            partition=partition,
            options=record.options,
            files=self.files,
            clock=self.clock,
            committed=lambda: self.consumers.highest(record.id, partition),
            require_topic=lambda: self.topics.by_id(record.id),
            ledger=self.transactions.ledger(record.id, partition),
            current_options=lambda: self.topics.by_id(record.id).options,
            read_only=self.read_only,
        )

    @contextmanager
    def named_if_closed(self) -> Iterator[None]:
        """Files may be closed under whoever looks: what that raises is said as `Closed`, `TopicReplaced`."""
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
        if self._dropped:
            raise TopicReplaced(f"topic {self.name!r} was dropped", hint="open it anew by its name")
        if self._closed:
            raise Closed(f"topic {self.name!r}: {self._closed}", hint="open the store again")


def _no_neighbour(name: str, options: dict[str, Any]) -> OpenTopic:
    raise AssertionError(f"a topic outside a store knows no {name}")


def append_one(partitions: OpenTopic, message: WriteBatch, sender: Producer) -> Receipt:
    """Append a single message; return once it is stored as safely as the topic's `sync` says."""
    landed = next(partitions.append(message, sender))
    sync = partitions.options.sync
    if sync == "disk":
        partitions.sync((landed,))
    return landed.stored().receipt(0, sync)


def append_with_body(
    partitions: OpenTopic, message: WriteBatch, sender: Producer, body: Any, name: str | None
) -> Receipt:
    """Store a body outside the log, then its message; a body whose message was not stored goes again."""
    stored = partitions.bodies.outside(body, name)
    try:
        return append_one(partitions, message._replace(values=(stored,)), sender)
    except PenstockError as error:
        if isinstance(stored, Referenced) and not isinstance(error, DataError):
            partitions.bodies.discard([unpack(stored).name])
        raise


def append_many(partitions: OpenTopic, batch: WriteBatch) -> Receipts:
    """The same for many; the receipts are in the order of the batch."""
    sync = partitions.options.sync
    if not batch.values:
        return Receipts((), sync=sync)
    landed = list(partitions.append(batch))
    if sync == "disk":
        partitions.sync(landed)
    return Receipts([each.stored() for each in landed], sync=sync, order=_order(batch, landed))


def _order(batch: WriteBatch, landed: Sequence[Landed]) -> list[tuple[int, int]] | None:
    """For each message of the batch: which run it is in, and its place there."""
    if len(landed) == 1:
        return None
    order = [(0, 0)] * len(batch.values)
    for run, each in enumerate(landed):
        for place, index in enumerate(each.places):
            order[index] = (run, place)
    return order
