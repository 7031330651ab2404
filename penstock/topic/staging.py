"""Messages of a transaction before it commits: encoded, routed, and out of everyone's sight.

Little lies in memory until the commit stores it in its own record; much lies in files in the folders
of its partitions, laid out as segments, so that the commit only has to rename them. What a process
that died left behind is removed after a day.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from penstock import references
from penstock.clock import NANOSECONDS
from penstock.keys import Key, checked_key
from penstock.log.active_segment import segment_bytes
from penstock.log.frame import Frame
from penstock.log.log import Log
from penstock.log.staging import STAGED, StagedPiece, StagingArea
from penstock.parse import KIB
from penstock.topic.input import Value
from penstock.topic.open_topic import OpenTopic
from penstock.topic.routing import PARTITIONERS
from penstock.topic.value_codec import checked_headers, checked_value
from penstock.topic.write_batch import FRAME_BYTES, FRAME_MESSAGES, WriteBatch
from penstock.topic.write_buffer import Pairs, Special, checked_extras, pair_columns

#: So much is encoded at a time: with keys and offsets somewhat less than a frame.
_GATHERED_BYTES = FRAME_BYTES * 3 // 4
#: Small messages are weighed once for so many values and keys.
_LOOK_EVERY = 2 * 256
#: Files that no commit names are left alone for so long: a transaction may be open all day.
ABANDONED_NS = 24 * 3600 * NANOSECONDS


class TopicStaging:
    """What a transaction writes to one topic."""

    def __init__(self, partitions: OpenTopic, tx: int) -> None:
        self.partitions = partitions
        #: Messages up to this size take the short way in.
        self.small = min(partitions.options.max_message_bytes, KIB)
        self._tx = tx
        self._pairs: Pairs = []
        self._plain = True  # nothing special is among them
        self._weight = 0
        self._shelves_made = 0
        self._staged = 0
        #: Objects with bodies of these messages.
        self._bodies: list[str] = []
        self._begin()

    def add(
        self, value: Value | Path | BinaryIO, key: Key, headers: Mapping[str, str | bytes] | None,
        timestamp: int | datetime | None, partition: int | None, group: str | None,
    ) -> None:  # fmt: skip
        """One message; it is encoded together with its neighbours."""
        if partition is not None:
            self.partitions.check(partition)
        stored = checked_value(self.partitions.bodies.outside(value), self.partitions.options.value_bytes)
        if isinstance(stored, references.Referenced):
            self._bodies.append(references.unpack(stored).name)
        if headers is None and timestamp is None and partition is None and group is None:
            self._pairs.extend((stored, checked_key(key)))
        else:
            extras = checked_extras(checked_headers(headers), timestamp, partition, group)
            self._pairs.extend((Special(stored, extras), checked_key(key)))
            self._plain = False
        self._weight += len(stored or b"")
        self._stage_if_full()

    def add_small(self, value: bytes, key: bytes | None) -> None:
        """The same for a small message without anything besides, known to be sound."""
        pairs = self._pairs
        pairs.extend((value, key))
        if not len(pairs) % _LOOK_EVERY:  # the last one stands for those before it
            self._weight += _LOOK_EVERY // 2 * len(value)
            self._stage_if_full()

    @property
    def limit(self) -> int:
        """The most bytes that a value may have."""
        return self.partitions.options.max_message_bytes

    @property
    def count(self) -> int:
        """How many messages there are."""
        return self._staged + len(self._pairs) // 2

    @property
    def nearly_takes_time(self) -> bool:
        """Whether the next `add` may encode and write what has gathered."""
        return self._weight >= _GATHERED_BYTES // 2 or len(self._pairs) >= 2 * FRAME_MESSAGES - 2

    def add_many(self, batch: WriteBatch) -> None:
        self._stage_pairs()
        self._staged += len(batch.values)
        self._stage(batch)

    def adopt(
        self, pieces: Mapping[int, Sequence[StagedPiece]], *, tree: int, partitions: int,
        bodies: Iterable[str] = (),
    ) -> None:  # fmt: skip
        """Take what other processes staged, by partition, when the topic had this tree and so many of them.

        It comes first and alone: messages of its own are routed by the tree of the moment. `bodies` are
        objects that were made for it.
        """
        assert not self.count, "what others staged is adopted before anything is written"
        self.tree, self._partition_count = tree, partitions
        self._bodies += bodies
        for number, staged in sorted(pieces.items()):
            shelf = self._shelves.get(number) or self._new_shelf(number)
            shelf.adopt(staged)
            self._staged += sum(each.count for each in staged)

    def finish(self) -> dict[int, list[StagedPiece]]:
        """All of it by partition, durable."""
        self._stage_pairs()
        return {number: shelf.finish() for number, shelf in sorted(self._shelves.items())}

    def catch_up(self) -> None:
        """Partitions may have been added, or one had not heard of it: then it is told."""
        for number in self._shelves:
            self.partitions.catch_up(self.partitions.log(number))
        if self.partitions.record.tree != self.tree:
            self._route_again()

    def _route_again(self) -> None:
        """Keys may belong elsewhere now."""
        old, before = self._shelves, self._partition_count
        choose = PARTITIONERS[self.partitions.options.partitioner]
        self._begin()
        for number, shelf in sorted(old.items()):
            for each in shelf.frames():
                batch = self._unpacked(_outgoing(each))
                by_key = [
                    key is not None and choose(key, before) == number for key in each.keys(0, each.head.count)
                ]
                chosen = [None if moves else number for moves in by_key]
                self._stage(batch._replace(partitions=chosen))
            shelf.discard()

    def discard(self) -> None:
        """Nothing of it is wanted any more."""
        self._pairs = []
        for shelf in self._shelves.values():
            shelf.discard()

    def discard_bodies(self) -> None:
        """No message will refer to them: it was rolled back."""
        names, self._bodies = self._bodies, []
        self.partitions.bodies.discard(names)

    def _unpacked(self, batch: WriteBatch) -> WriteBatch:
        """With the bodies of packs instead of references: the messages of a pack may go apart now."""
        if batch.codecs is None or references.CODEC not in batch.codecs:
            return batch
        values, numbers = list(batch.values), list(batch.codecs)
        for place, stored in enumerate(batch.values):
            if numbers[place] != references.CODEC or stored is None:
                continue
            reference = references.unpack(stored)
            values[place] = references.Referenced(stored)
            if reference.is_packed:
                values[place] = references.fetch(reference, f"a transaction on {self.partitions.name!r}")
                numbers[place] = reference.codec
        return batch._replace(values=values, codecs=numbers)

    def _begin(self) -> None:
        self.tree = self.partitions.record.tree
        self._partition_count = len(self.partitions)
        self._shelves: dict[int, StagingArea] = {}

    def _stage_if_full(self) -> None:
        if self._weight >= _GATHERED_BYTES or len(self._pairs) >= 2 * FRAME_MESSAGES:
            self._stage_pairs()

    def _stage_pairs(self) -> None:
        if self._pairs:
            pairs, plain = self._pairs, self._plain
            self._staged += len(pairs) // 2
            self._pairs, self._plain, self._weight = [], True, 0
            now = self.partitions.clock.now_ns()
            self._stage(pair_columns(pairs[0::2], pairs[1::2], now, plain=plain, extras=None))

    def _stage(self, batch: WriteBatch) -> None:
        if not batch.values:
            return
        if self.partitions.record.tree != self.tree:
            self._route_again()
        for share in self.partitions.route(batch, range(len(batch.values))):
            if self.partitions.options.payloads is not None:
                lifted = self.partitions.bodies.lift(batch, share.places)
                self._bodies += [*lifted.made, *lifted.given]
                drafts = self.partitions.drafts(lifted.batch, share)
            else:
                drafts = self.partitions.drafts(batch, share)
            shelf = self._shelves.get(share.partition) or self._new_shelf(share.partition)
            for draft in drafts:
                shelf.add(draft)

    def _new_shelf(self, number: int) -> StagingArea:
        name = f"{self._tx:016x}-{self._shelves_made:x}"
        self._shelves_made += 1
        log = self.partitions.log(number)
        shelf = self._shelves[number] = StagingArea(log.folder, name, segment_bytes(log.options))
        return shelf


def _outgoing(found: Frame) -> WriteBatch:
    n = found.head.count
    keys, headers, named = found.keys(0, n), found.headers(0, n), found.producer()
    return WriteBatch(
        found.values(0, n),
        keys if any(key is not None for key in keys) else None,
        headers if any(headers) else None,
        found.timestamps(0, n),
        codecs=found.codec_numbers(0, n),
        groups=None if named is None else [named[0].group] * n,
    )


def remove_abandoned(partitions: OpenTopic, log: Log) -> int:
    """Remove staged files that no transaction will ever commit; return how many."""
    folder = log.folder
    found = [name for name in folder.files.listdir(folder.path) if name.endswith(STAGED)]
    gone: list[str] = []

    def remove() -> None:
        needed = partitions.transactions.files(folder.topic_id, folder.partition)
        limit = partitions.clock.now_ns() - ABANDONED_NS
        for name in found:
            with suppress(FileNotFoundError):  # its transaction ended meanwhile
                if name not in needed and folder.files.modified_ns(folder.name(name)) < limit:
                    folder.files.unlink(folder.name(name))
                    gone.append(name)

    if found:
        partitions.transactions.collect(remove)
    return len(gone)
