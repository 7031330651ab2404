"""Copy messages from one topic into another: frames are staged by partition until a transaction commits them.

Partition i goes to partition i when both topics have as many, with equal ranges; else keys choose, as they
do for every writer, and messages without a key stay together with those of their partition.

It touches files in the folders of partitions and nothing else of the store, so a Spark task can do it too;
but only a process that has the topic open can bring values that lie outside the source's log (`copy_bodies`).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import compress
from typing import TYPE_CHECKING

from penstock import codecs
from penstock.errors import InvalidOption, MessageTooLarge
from penstock.log.copy import FrameRun, MessageRun
from penstock.log.folder import Folder
from penstock.log.frame_columns import unpack_bits
from penstock.log.frame_encode import EncodedFrame
from penstock.log.staging import StagedPiece, StagingArea
from penstock.partition_tree import PartitionTree
from penstock.topic.routing import PARTITIONERS, partition_of
from penstock.topic.write_plan import TopicPlan

if TYPE_CHECKING:
    from penstock.topic.copy_bodies import BodyCopy


class OffsetSet:
    """Offsets from `first` up to `stop`, of which some are marked."""

    def __init__(self, first: int, stop: int) -> None:
        #: A multiple of 8, so that neighbours share no byte.
        self._base = first & ~7
        self._bits = bytearray((max(stop - self._base, 0) + 7) // 8)

    def __len__(self) -> int:
        """How many are marked."""
        return int.from_bytes(self._bits, "little").bit_count()

    def add(self, offsets: Iterable[int]) -> None:
        """Mark these offsets."""
        base, bits = self._base, self._bits
        for offset in offsets:
            place = offset - base
            bits[place >> 3] |= 1 << (place & 7)

    def add_bits(self, first: int, bits: bytes) -> None:
        """Mark what is set in `bits`, of which the first stands for offset `first`, a multiple of 8."""
        skipped = (self._base - first) // 8
        at = max(-skipped, 0)
        taken = bits[max(skipped, 0) :][: len(self._bits) - at]
        whole = int.from_bytes(self._bits[at : at + len(taken)], "little") | int.from_bytes(taken, "little")
        self._bits[at : at + len(taken)] = whole.to_bytes(len(taken), "little")

    def between(self, first: int, stop: int) -> OffsetSet:
        """Return the marks of a part of the range, as a set of its own."""
        part = OffsetSet(first, stop)
        at = (part._base - self._base) // 8
        part._bits[:] = self._bits[at : at + len(part._bits)]
        return part

    def places(self, first: int, stop: int) -> Sequence[int]:
        """Which of the offsets `first` to `stop` are marked, counted from `first`."""
        at = first - self._base
        flags = unpack_bits(self._bits, at >> 3, at & 7, (at & 7) + stop - first)
        return range(stop - first) if all(flags) else list(compress(range(stop - first), flags))


def is_same_layout(source: PartitionTree, sink: PartitionTree) -> bool:
    """Whether partition i of one topic owns what partition i of the other does, and none was split."""
    return source.even and sink.even and source.numbers == source.active == sink.active


def _beside(partition: int, sink: PartitionTree) -> int:
    """The partition of the sink that gets messages without a key."""
    return sink.active[partition % len(sink.active)]


class TopicCopy:
    """Messages staged for one topic, until a commit makes them part of it.

    `empty` are partitions without a message: into those the first piece is copied once more by the commit,
    where others become segments as they are. So it is kept small.
    """

    def __init__(
        self, plan: TopicPlan, folder_of: Callable[[int], Folder], *, source: PartitionTree,
        empty: Container[int] = (), carrier: BodyCopy | None = None,
    ) -> None:  # fmt: skip
        self._plan = plan
        self._folder_of = folder_of
        self._same = is_same_layout(source, plan.rows)
        self._choose = PARTITIONERS[plan.partitioner]
        self._name = f"{secrets.randbits(62) | 1:016x}"
        self._areas: dict[int, StagingArea] = {}
        self._empty = empty
        self._carrier = carrier
        self.count = 0
        #: Bytes that it takes in the log, and those of bodies beside it.
        self.bytes = 0

    @property
    def bodies(self) -> Sequence[str]:
        """The body objects that were made for the copy."""
        return () if self._carrier is None else self._carrier.made

    def add(self, partition: int, run: MessageRun, places: Sequence[int] | None = None) -> None:
        """Copy a run of a source's partition, or the messages at some places of it.

        Raises `MessageTooLarge` or `InvalidOption` for what the topic does not take.
        """
        if places is not None and len(places) == len(run):
            places = None
        if places is not None and not places:
            return
        self._check(run.codecs(), run.longest(self._plan.max_message_bytes))
        if self._same:
            self._stage(partition, run, places)
            return
        for number, chosen in self._routed(partition, run.keys(), places).items():
            self._stage(number, run, None if len(chosen) == len(run) else chosen)

    def add_marked(
        self, partition: int, first: int, run: MessageRun, marks: OffsetSet, *, keep_since: int
    ) -> None:
        """Copy what is marked of a run that begins at `first`, less tombstones written before a time."""
        places = marks.places(first, first + len(run))
        if places and (tombstones := run.tombstones()):
            written = run.written_times()
            gone = {place for place in tombstones if written[place] < keep_since}
            places = [place for place in places if place not in gone]
        self.add(partition, run, places)

    def finish(self) -> dict[int, list[StagedPiece]]:
        """Make everything durable; return what is staged, by partition."""
        return {number: area.finish() for number, area in sorted(self._areas.items())}

    def discard(self) -> None:
        """Delete all that was staged: frames and bodies."""
        for area in self._areas.values():
            area.discard()
        if self._carrier is not None:
            self._carrier.discard()

    def _routed(
        self, partition: int, keys: Sequence[bytes | None], places: Sequence[int] | None
    ) -> dict[int, list[int]]:
        tree = self._plan.rows
        chosen: dict[int, list[int]] = {}
        for place in range(len(keys)) if places is None else places:
            key = keys[place]
            number = _beside(partition, tree) if key is None else partition_of(key, tree, self._choose)
            chosen.setdefault(number, []).append(place)
        return chosen

    def _stage(self, number: int, run: MessageRun, places: Sequence[int] | None) -> None:
        area = self._areas.get(number)
        is_first = area is None and number in self._empty
        area = area or self._new_area(number)
        for draft in self._drafts(run, places):
            area.add(draft)
            self.count += draft.count
            self.bytes += draft.size
        if is_first:
            area.cut()

    def _drafts(self, run: MessageRun, places: Sequence[int] | None) -> Iterable[EncodedFrame]:
        carrier = self._carrier
        if carrier is None or not isinstance(run, FrameRun) or codecs.REFERENCE not in run.codecs():
            return run.drafts() if places is None else run.some(places)
        return self._with_bodies(carrier, run, places)

    def _with_bodies(
        self, carrier: BodyCopy, run: FrameRun, places: Sequence[int] | None
    ) -> Iterator[EncodedFrame]:
        before = carrier.bytes
        yield from carrier.drafts(run, places)
        self.bytes += carrier.bytes - before

    def _new_area(self, number: int) -> StagingArea:
        name = f"{self._name}-{len(self._areas):x}"
        area = self._areas[number] = StagingArea(self._folder_of(number), name, self._plan.segment_bytes)
        return area

    def _check(self, numbers: set[int], longest: int) -> None:
        plan = self._plan
        if codecs.REFERENCE in numbers and self._carrier is None:
            raise InvalidOption(
                "values of the source lie outside its log, and a Spark task does not bring them along",
                hint='engine="python" does',
            )
        if longest > plan.max_message_bytes:
            raise MessageTooLarge(
                f"a value of {longest} bytes is over the limit of {plan.max_message_bytes} of {plan.name!r}",
                hint=f"penstock topic alter {plan.name} --max-message-bytes …",
            )
        if plan.codecs:
            for number in numbers - {codecs.REFERENCE}:
                if codecs.lasting_name(number) not in plan.codecs:
                    raise InvalidOption(
                        f"topic {plan.name!r} does not allow codec {codecs.name_of(number)}",
                        hint=f"it allows {', '.join(plan.codecs)}; values are copied as they are packed",
                    )
