"""Partitions that are added and split: each change of a topic's tree, from the locks to the rows.

A split, whose commit point is the seal in the parent's log:

    1  state.db: the children get their numbers
    2  lock the parent: make the children's folders, with all that is known of its producers; seal it
    3  state.db: the parent is inactive, its children are active; the tree has a new number

Whoever meets a seal without step 3 does it. A split without a seal is begun again, with the same numbers.

Partitions that are added beside others take the upper half of the widest range each. There the rows are the
commit point, with all locks held; donors hear of it before that, or keys could still go to them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from penstock.clock import Clock
from penstock.errors import InvalidOption, PartitionInactive
from penstock.growth_rules import UP
from penstock.locks import hold
from penstock.log.append import Sealed
from penstock.log.lineage import Birth, Seal, read_seal
from penstock.log.log import Log
from penstock.log.producer_table import ProducerTable
from penstock.options import TopicOptions
from penstock.parse import MIB, PARTITIONS_MAX, whole
from penstock.partition_tree import PartitionRow, hash_of, pair_hash, split_point
from penstock.state.partitions import BegunSplit, next_number
from penstock.state.topics import TopicRecord, Topics, TreeChanged

logger = logging.getLogger("penstock.growth")

#: To find where a partition is best divided, so many of its last messages are looked at.
_LOOKED_AT, _LOOKED_AT_BYTES = 500, 4 * MIB


class Donation(NamedTuple):
    """A new partition, and the one whose upper half it takes."""

    donor: int
    number: int


class PartitionGrowth:
    """Changes the partitions of one topic."""

    def __init__(
        self, topics: Topics, record: Callable[[], TopicRecord], clock: Clock, *, log: Callable[[int], Log],
        new_log: Callable[[int], Log], refresh: Callable[[], None], learn: Callable[[TopicRecord], None],
    ) -> None:  # fmt: skip
        self._topics = topics
        self._record = record
        self._clock = clock
        self._log = log
        #: Opens a partition that the rows do not know yet.
        self._new_log = new_log
        self._refresh = refresh
        self._learn = learn

    # Splits.

    def split_hot(self, partition: int) -> tuple[int, int] | None:
        """Split a partition that is written to too fast, so that half of what came last goes to each child.

        None when its mode or its limit do not let it, or when nearly all of it has one key.
        """
        self._refresh()
        record = self._record()
        if record.options.autopartitioning != UP or not record.rows.is_active(partition):
            return None
        row = record.rows.row(partition)
        cut = split_point(_last_hashes(self._log(partition), row), row)
        if cut is None:
            logger.info("partition %d of %s is written to too fast by one key", partition, record.name)
            return None
        children = self.split(partition, cut, record.options.max_partitions)
        if children is not None:
            logger.info("split partition %d of %s into %d and %d", partition, record.name, *children)
        return children

    def split(self, partition: int, at: int | None, most: int | None = None) -> tuple[int, int] | None:
        """Split a partition at a hash, or in the middle; return its children, the lower one first.

        Raises `PartitionInactive` when it was split before. None when that would make more than `most` active
        partitions.
        """
        self._refresh()
        self.require_active(partition)
        log = self._log(partition)
        log.appender.producers.load()  # most of it, before anyone has to wait for us
        begun = self._topics.partitions.begin_split(self._record().id, partition, at, most)
        self._refresh()  # from here on nobody takes a part of its range
        if begun is None:
            self.finish(partition)
            self.require_active(partition)
            return None
        try:
            hold((log.folder.append,), lambda: self._seal(log, begun))
        except Sealed:
            pass  # another process was quicker, with the same numbers
        self.finish(partition)
        return begun.children

    def finish(self, partition: int) -> None:
        """Let the rows say that a partition was split, if a seal in its log does."""
        log = self._log(partition)

        def end() -> int | None:
            ends = log.appender.ready()  # which makes the seal durable
            return ends.append.next if ends.shown.sealed else None

        stop = hold((log.folder.append,), end)
        if stop is not None and self._record().rows.is_active(partition):
            split = self._sealed_split(log)
            if split is not None:
                self._topics.partitions.finish_split(self._record().id, split, stop)
            self._learn(self._topics.by_id(self._record().id))
        else:
            self._refresh()

    def finish_all(self) -> None:
        """Finish splits that were begun: those with a seal are made known, the others go on."""
        for begun in self._topics.partitions.begun(self._record().id):
            log = self._log(begun.parent)
            try:
                hold((log.folder.append,), lambda log=log, begun=begun: self._seal(log, begun))  # type: ignore[misc]
            except Sealed:
                pass
            self.finish(begun.parent)

    def _seal(self, log: Log, begun: BegunSplit) -> None:
        """Make the children and seal the parent, whose append lock is held; raises `Sealed`."""
        ends = log.appender.unsealed()
        row = self._record().rows.row(begun.parent)
        log.appender.save_gate()
        facts = log.appender.producers.catch_up(ends.append, ends.durable)
        now = log.appender.active.written_at(ends.append)
        gates = {begun.parent: ends.append.next}
        for number, low, high in (
            (begun.low_child, row.low, begun.cut),
            (begun.high_child, begun.cut, row.high),
        ):
            self._make(number, Birth(gates, low, high), facts, now)
        log.appender.seal(Seal(begun.children, row.low, begun.cut, row.high), now)

    def _sealed_split(self, log: Log) -> BegunSplit | None:
        """Return the split that a log's seal made true, or the store's record where the seal is damaged."""
        seal = read_seal(log.folder)
        if seal is not None:
            return BegunSplit(log.partition, *seal.children, seal.cut)
        begun = self._topics.partitions.begun(self._record().id)
        return next((each for each in begun if each.parent == log.partition), None)

    def require_active(self, partition: int | None) -> None:
        """Raise unless messages can be written to a partition, or none was chosen."""
        if partition is None:
            return
        log = self._log(whole("partition", partition, 0, PARTITIONS_MAX))
        shown = log.folder.read_shown()
        if shown is not None and shown.sealed and self._record().rows.is_active(partition):
            self.finish(partition)  # another process has split it
        row = self._record().rows.row(partition)
        if row.state != "active":
            raise PartitionInactive(self._record().name, partition, row.children)

    # Options, and partitions added beside others.

    def alter(self, options: TopicOptions) -> None:
        """Store new options; as many partitions as they ask for are added."""
        while True:
            self._refresh()
            self._refuse_fewer(options)
            self.finish_all()
            record = self._record()
            logs = [self._log(number) for number in sorted(record.rows.active)]
            if options.partitions > len(logs):
                for log in logs:
                    log.appender.producers.load()  # most of it, before anyone has to wait for us
            try:
                hold([log.folder.append for log in logs], lambda: self._alter(record, logs, options))  # noqa: B023
            except (TreeChanged, Sealed):
                continue  # another process was quicker
            return

    def keep_one(self, used_as: str) -> None:
        """Remember that the topic holds a stream or events, which have one order: it never gets more."""
        if self._record().options.used_as is None:
            self.alter(self._record().options.using_as(used_as))

    def _alter(self, record: TopicRecord, logs: Sequence[Log], options: TopicOptions) -> None:
        """Store new options; the append locks of all active partitions are held."""
        if options.partitions <= len(logs):
            after = self._topics.alter(record, options)
        elif options.partitioner == "range":
            after = self._add_beside(record, logs, options)
        else:
            after = self._add_by_count(record, logs, options)
        for log in logs:
            log.appender.publish_tree(after.tree)
        self._learn(after)

    def _add_beside(self, record: TopicRecord, logs: Sequence[Log], options: TopicOptions) -> TopicRecord:
        """Add partitions that each take half of another's range, with what that one knows of producers."""
        facts: dict[int, ProducerTable] = {}
        ends: dict[int, int] = {}
        now = self._clock.now_ns()
        for log in logs:
            at = log.appender.unsealed()
            now = max(now, log.appender.active.written_at(at.append))
            log.sync_all()  # a gate behind messages that go with the power would stay shut
            log.appender.save_gate()
            ends[log.partition] = at.append.next
            facts[log.partition] = log.appender.producers.catch_up(at.append, at.durable)
        donors: set[int] = set()
        tree = record.rows
        for donor, number in self._donations(record, options.partitions - len(logs)):
            tree = tree.grown(donor, number, ends.setdefault(donor, 0))
            facts[number] = facts[donor]
            row = tree.row(number)
            self._make(number, Birth(row.gates, row.low, row.high), facts[number], now)
            donors.add(donor)
        for log in logs:
            if log.partition in donors:  # before the rows: an older writer must not follow a newer one here
                log.appender.publish_tree(record.tree + 1)
        return self._topics.alter(record, options, tree=tree)

    def _donations(self, record: TopicRecord, count: int) -> Iterator[Donation]:
        tree = record.rows
        begun = self._topics.partitions.begun(record.id)
        first = next_number(tree, begun, count)
        for number in range(first, first + count):
            donor = tree.widest(less=(each.parent for each in begun))
            yield Donation(donor, number)
            tree = tree.grown(donor, number, 0)

    def _add_by_count(self, record: TopicRecord, logs: Sequence[Log], options: TopicOptions) -> TopicRecord:
        """Add partitions where keys are placed by how many there are: they move between all of them."""
        ends = []
        for log in logs:
            at = log.appender.unsealed()
            log.sync_all()
            log.appender.save_gate()
            ends.append((log.partition, at.append.next))
        added = range(len(logs), options.partitions)
        for number in added:
            self._new_log(number).close()
        gates = [(number, parent, end) for number in added for parent, end in ends]
        return self._topics.alter(record, options, gates=gates)

    def _refuse_fewer(self, options: TopicOptions) -> None:
        there = self._record().options.partitions
        if options.partitions < there:
            raise InvalidOption(
                f"partitions cannot be taken away ({there} to {options.partitions})",
                hint="create a topic with fewer and copy the messages",
            )

    def _make(self, number: int, birth: Birth, facts: ProducerTable, now: int) -> None:
        """Make the folder of a new partition, durably; nobody else knows of it."""
        log = self._new_log(number)
        try:
            hold((log.folder.append,), lambda: log.appender.begin(birth, facts, now))
        finally:
            log.close()


def _last_hashes(log: Log, row: PartitionRow) -> list[int]:
    """The hashes of what was written last: of keys, and of producers' groups that were bound here."""
    bounds = log.bounds()
    cursor = log.cursor(max(bounds.end - _LOOKED_AT, bounds.start))
    found = []
    for rows in cursor.read(_LOOKED_AT, _LOOKED_AT_BYTES):
        for message in rows.messages():
            if message.group is None and message.key is not None:
                found.append(hash_of(message.key))
            elif message.group is not None or message.producer_id is not None:
                hashed = pair_hash(message.producer_id or "", message.group or "", row.partition)
                found.append(row.low + (hashed * row.width >> 32))
    return found
