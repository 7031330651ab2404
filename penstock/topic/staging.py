"""Messages of a transaction before it commits: encoded, routed, and out of everyone's sight.

Little lies in memory until the commit stores it in its own record; much lies in files in the folders
of its partitions, laid out as segments, so that the commit only has to rename them. What a process
that died left behind is removed after a day.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial

from penstock import references
from penstock.clock import NANOSECONDS
from penstock.log.active_segment import segment_bytes
from penstock.log.frame import Frame
from penstock.log.frame_encode import MessageColumns
from penstock.log.log import Log
from penstock.log.staging import STAGED, StagedPiece, StagingArea
from penstock.parse import Duration
from penstock.partition_tree import PartitionTree
from penstock.topic.delayed import Extras
from penstock.topic.open_topic import OpenTopic
from penstock.topic.routing import PARTITIONERS, partition_of
from penstock.topic.write_batch import WriteBatch
from penstock.topic.write_buffer import WIDTH, Besides, WriteBuffer

#: Has a message of a topic wait until it is due; False when it is due already.
PostponeFor = Callable[
    [OpenTopic, bytes | None, bytes | None, Extras, Duration | None, int | datetime | None], bool
]
#: Files that no commit names are left alone for so long: a transaction may be open all day.
ABANDONED_NS = 24 * 3600 * NANOSECONDS


class TopicStaging:
    """What a transaction writes to one topic."""

    def __init__(self, open_topic: OpenTopic, tx: int, postpone: PostponeFor) -> None:
        self.open_topic = open_topic
        #: What was written and is not encoded yet.
        self.buffer = WriteBuffer(
            open_topic,
            None,
            look=self._stage_if_full,
            admit=_admit,
            number=_number,
            postpone=partial(postpone, open_topic),
        )
        self._tx = tx
        self._areas_made = 0
        self._staged = 0
        #: Objects with bodies of these messages.
        self._bodies: list[str] = []
        self._begin()

    @property
    def count(self) -> int:
        """How many messages there are."""
        return self._staged + self.buffer.count

    @property
    def nearly_takes_time(self) -> bool:
        """Whether the next `write` may encode and write all of them, which takes time."""
        return len(self.buffer.rows) + WIDTH >= self.buffer.at

    def add_many(self, batch: WriteBatch) -> None:
        """Stage many messages, behind those that were added one by one."""
        self._stage_rows()
        self._staged += len(batch.columns.values)
        self._stage(batch)

    def adopt(
        self, pieces: Mapping[int, Sequence[StagedPiece]], *, tree: int, rows: PartitionTree,
        bodies: Iterable[str] = (),
    ) -> None:  # fmt: skip
        """Take what other processes staged, by partition, when the topic had this tree, which was `rows`.

        It comes first and alone: messages of its own are routed by the tree of the moment. `bodies` are
        objects that were made for it.
        """
        assert not self.count, "what others staged is adopted before anything is written"
        self.tree, self._rows = tree, rows
        self._bodies += bodies
        for number, staged in sorted(pieces.items()):
            area = self._areas.get(number) or self._new_area(number)
            area.adopt(staged)
            self._staged += sum(each.count for each in staged)

    def finish(self) -> dict[int, list[StagedPiece]]:
        """Make everything durable; return what is staged, by partition."""
        self._stage_rows()
        return {number: area.finish() for number, area in sorted(self._areas.items())}

    def catch_up(self) -> None:
        """Route again if partitions were added since; tell a partition that had not heard of it."""
        for number in self._areas:
            self.open_topic.catch_up(self.open_topic.log(number))
        if self.open_topic.record.tree != self.tree:
            self._route_again()

    def _route_again(self) -> None:
        """Route everything again: keys may belong to other partitions now."""
        old, before = self._areas, self._rows
        choose = PARTITIONERS[self.open_topic.options.partitioner]
        self._begin()
        for number, area in sorted(old.items()):
            for each in area.frames():
                batch = self._unpacked(_batch_of(each))
                by_key = [
                    key is not None and partition_of(key, before, choose) == number
                    for key in each.keys(0, each.head.count)
                ]
                chosen = [None if moves else number for moves in by_key]
                self._stage(batch._replace(partitions=chosen))
            area.discard()

    def discard(self) -> None:
        """Drop the rows and delete the staged frames; `discard_bodies` deletes the bodies."""
        rows, self.buffer.rows = self.buffer.rows, []
        self._bodies += [
            references.unpack(v).name for v in rows[::WIDTH] if isinstance(v, references.Referenced)
        ]
        for area in self._areas.values():
            area.discard()

    def discard_bodies(self) -> None:
        """Delete the bodies of a transaction that was rolled back: no message will refer to them."""
        names, self._bodies = self._bodies, []
        self.open_topic.bodies.discard(names)

    def _unpacked(self, batch: WriteBatch) -> WriteBatch:
        """Put bodies back in the place of references to packs: the messages of a pack may part now."""
        columns = batch.columns
        if isinstance(columns.codecs, int) or references.CODEC not in columns.codecs:
            return batch
        values, numbers = list(columns.values), list(columns.codecs)
        for place, stored in enumerate(columns.values):
            if numbers[place] != references.CODEC or stored is None:
                continue
            reference = references.unpack(stored)
            values[place] = references.Referenced(stored)
            if reference.is_packed:
                values[place] = references.fetch(reference, f"a transaction on {self.open_topic.name!r}")
                numbers[place] = reference.codec
        return batch._replace(columns=columns._replace(values=values, codecs=numbers))

    def _begin(self) -> None:
        self.tree = self.open_topic.record.tree
        self._rows = self.open_topic.tree
        self._areas: dict[int, StagingArea] = {}

    def _stage_if_full(self) -> None:
        if self.buffer.is_full():
            self._stage_rows()
        else:
            self.buffer.look_later()

    def _stage_rows(self) -> None:
        rows, self.buffer.rows = self.buffer.rows, []
        self.buffer.at = self.buffer.weight = 0
        if rows:
            self._staged += len(rows) // WIDTH
            self._stage(self.buffer.columns(rows, self.open_topic.clock.now_ns()))

    def _stage(self, batch: WriteBatch) -> None:
        if not batch.columns.values:
            return
        if self.open_topic.record.tree != self.tree:
            self._route_again()
        for number, frames, bodies in self.open_topic.encode(batch):
            self._bodies += bodies
            area = self._areas.get(number) or self._new_area(number)
            for frame in frames:
                area.add(frame)

    def _new_area(self, number: int) -> StagingArea:
        name = f"{self._tx:016x}-{self._areas_made:x}"
        self._areas_made += 1
        log = self.open_topic.log(number)
        area = self._areas[number] = StagingArea(log.folder, name, segment_bytes(log.options))
        return area


def _admit(key: bytes | None, is_placed: bool) -> None:
    """Admit every message: a transaction refuses none that is sound."""


def _number(
    seqno: int | None, timestamp: int | None, partition: int | None, group: str | None, key: bytes | None
) -> Besides:
    """Number nothing: a transaction has no seqnos."""
    return timestamp, partition, group, None


def _batch_of(found: Frame) -> WriteBatch:
    n = found.head.count
    keys, headers, named = found.keys(0, n), found.headers(0, n), found.producer()
    columns = MessageColumns(
        found.values(0, n),
        keys if any(key is not None for key in keys) else None,
        headers if any(headers) else None,
        found.timestamps(0, n),
        codecs=found.codec_numbers(0, n),
    )
    return WriteBatch(columns, groups=None if named is None else [named[0].group] * n)


def remove_abandoned(topic: OpenTopic, log: Log) -> int:
    """Remove staged files that no transaction will ever commit; return how many."""
    folder = log.folder
    found = [name for name in folder.files.listdir(folder.path) if name.endswith(STAGED)]
    gone: list[str] = []

    def remove() -> None:
        needed = topic.transactions.files(folder.topic_id, folder.partition)
        limit = topic.clock.now_ns() - ABANDONED_NS
        for name in found:
            with suppress(FileNotFoundError):  # its transaction ended meanwhile
                if name not in needed and folder.files.modified_ns(folder.name(name)) < limit:
                    folder.files.unlink(folder.name(name))
                    gone.append(name)

    if found:
        topic.transactions.collect(remove)
    return len(gone)
