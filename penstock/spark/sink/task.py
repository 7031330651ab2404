"""What a task of a write does: it stages its rows beside the segments, where nobody sees them yet.

It touches files in the folders of partitions and nothing else of the store. The names of its files are
its own, so that an attempt that failed, or one that runs twice, is in nobody's way: only what is named
in the message to the driver can be committed, and the rest is removed after a day.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from penstock.clock import Clock
from penstock.errors import NotAStore, TopicReplaced
from penstock.files import Files
from penstock.log.arrow_input import ArrowStrings
from penstock.log.folder import Folder
from penstock.log.frame_encode import FRAME_BYTES, FRAME_MESSAGES, EncodedFrame, frames
from penstock.log.staging import StagedPiece, StagingArea
from penstock.parse import MIB
from penstock.spark.sink.frames import by_topic, chosen, columns_of, divided
from penstock.spark.sink.rows import Shape, WriteRows, check_values, rows
from penstock.topic.write_plan import TopicPlan

if TYPE_CHECKING:
    from penstock.topic.bodies import TopicBodies


class TaskBodies:
    """The bodies that one task stores for one topic."""

    def __init__(self, plan: TopicPlan) -> None:
        self._compress = plan.compress
        self._bodies: TopicBodies | None = None
        self._inline_bytes = plan.max_message_bytes
        self._made: list[str] = []
        if plan.outside is not None:
            from penstock.topic.bodies import TopicBodies

            root, store_id, options = plan.outside
            self._inline_bytes = options.inline_bytes
            self._bodies = TopicBodies(
                root, store_id, plan.id, lambda: options, lambda: None, Files(), Clock()
            )

    def drafts(self, messages: pa.RecordBatch, created: int) -> Iterable[EncodedFrame]:
        """Messages of one partition, that follow each other in it, as frames."""
        if self._bodies is None or ArrowStrings(messages.column("value")).fits(self._inline_bytes):
            return frames(columns_of(messages, created), created=created, compress=self._compress)
        stored = self._bodies.store_large(columns_of(messages, created))
        self._made += stored.made
        return frames(stored.columns, created=created, compress=self._compress)

    def discard(self) -> None:
        """Remove the bodies: their messages will not be."""
        if self._bodies is not None:
            self._bodies.discard(self._made)
            self._made = []


class WriteTarget(NamedTuple):
    """Where a write goes."""

    store: str
    topics: Mapping[str, TopicPlan]
    #: The topic of all rows; None: each row names its own.
    topic: str | None
    #: Messages without a key or partition of their own begin here: not all writes at the first.
    turn: int


#: Messages wait until there are enough of them for a frame; those of all partitions together, until this.
_GATHERED_BYTES_MOST = 32 * MIB

#: So many files are synced at the same time.
_SYNCS_MOST = 16

#: What was staged for each partition, in order, by topic.
StagedTopics = Mapping[str, Mapping[int, Sequence[StagedPiece]]]


class TaskResult(NamedTuple):
    """What a task staged, as it tells the driver."""

    task: int
    topics: StagedTopics
    #: The topics as the task knew them.
    plans: dict[str, TopicPlan]

    @property
    def rows(self) -> int:
        """How many rows the task staged."""
        return sum(each.count for parts in self.topics.values() for p in parts.values() for each in p)


def stage(batches: Iterable[pa.RecordBatch], shape: Shape, target: WriteTarget, *, turn: int) -> StagedTopics:
    """Stage all rows, durably; nothing of them stays when this raises."""
    return stage_rows((rows(batch, shape) for batch in batches if batch.num_rows), target, turn=turn)


def stage_rows(messages: Iterable[WriteRows], target: WriteTarget, *, turn: int) -> StagedTopics:
    """Stage rows that are messages already, durably; nothing of them stays when this raises."""
    staging = _TaskStaging(target, turn)
    try:
        for each in messages:
            staging.add(each)
        return staging.finish()
    except BaseException:
        staging.discard()
        raise
    finally:
        staging.close()


class _TaskStaging:
    """Everything a task has staged so far."""

    def __init__(self, target: WriteTarget, turn: int) -> None:
        self._target = target
        self._turn = target.turn + turn
        self._attempt = f"{secrets.randbits(62) | 1:016x}"
        self._places: dict[tuple[str, int], _Place] = {}
        self._bodies_of: dict[str, TaskBodies] = {}

    def add(self, found: WriteRows) -> None:
        messages, topics, partitions = found
        if topics is None:
            assert self._target.topic is not None, "a write without a topic is refused when it is planned"
            self._add(self._target.topics[self._target.topic], messages, partitions)
        else:
            for plan, places in by_topic(topics, self._target.topics):
                asked = None if partitions is None else partitions.take(places)
                self._add(plan, messages.take(places), asked)
        self._turn += 1
        if sum(place.gathered for place in self._places.values()) >= _GATHERED_BYTES_MOST:
            for place in self._places.values():
                place.encode()

    def _add(self, plan: TopicPlan, messages: pa.RecordBatch, asked: pa.Array | None) -> None:
        check_values(messages.column("value"), plan.value_bytes, plan.name)
        keys = messages.column("key") if "key" in messages.schema.names else None
        for number, part in divided(messages, chosen(keys, asked, plan, self._turn)):
            place = self._places.get((plan.name, number)) or self._new_place(plan, number)
            place.add(part)

    def _new_place(self, plan: TopicPlan, number: int) -> _Place:
        name = f"{self._attempt}-{len(self._places):x}"
        bodies = self._bodies_of.setdefault(plan.name, TaskBodies(plan))
        place = _Place(self._target.store, plan, number, name, bodies)
        self._places[plan.name, number] = place
        return place

    def finish(self) -> StagedTopics:
        """All that was staged, durable: syncs of many files at the same time share what the disk does."""
        places = sorted(self._places.items())
        for _, place in places:
            place.encode()
        with ThreadPoolExecutor(_SYNCS_MOST) as threads:
            pieces = list(threads.map(lambda each: each[1].finish(), places))
        found: dict[str, dict[int, list[StagedPiece]]] = {}
        for ((topic, number), _), staged in zip(places, pieces, strict=True):
            found.setdefault(topic, {})[number] = staged
        return found

    def discard(self) -> None:
        for place in self._places.values():
            place.staged.discard()
        for bodies in self._bodies_of.values():
            bodies.discard()

    def close(self) -> None:
        for place in self._places.values():
            place.folder.close()


class _Place:
    """What a task writes to one partition: messages that wait for a frame, and frames."""

    def __init__(self, store: str, plan: TopicPlan, number: int, name: str, bodies: TaskBodies) -> None:
        path = plan.path(number)
        if not os.path.isdir(path):
            raise unseen(store, plan.name)
        self.folder = Folder(
            path, topic_id=plan.id, partition=number, files=Files(), clock=Clock(), read_only=True
        )
        self.staged = StagingArea(self.folder, name, plan.segment_bytes)
        self._bodies = bodies
        self._waiting: list[pa.RecordBatch] = []
        self._count = 0
        self.gathered = 0

    def add(self, messages: pa.RecordBatch) -> None:
        self._waiting.append(messages)
        self._count += messages.num_rows
        self.gathered += messages.nbytes
        if self.gathered >= FRAME_BYTES or self._count >= FRAME_MESSAGES:
            self.encode()

    def encode(self) -> None:
        """Make frames of what waits."""
        if self._waiting:
            waiting, self._waiting, self._count, self.gathered = self._waiting, [], 0, 0
            whole = waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)
            for draft in self._bodies.drafts(whole, self.folder.clock.now_ns()):
                self.staged.add(draft)

    def finish(self) -> list[StagedPiece]:
        self.encode()
        return self.staged.finish()


def unseen(store: str, topic: str) -> NotAStore | TopicReplaced:
    """Why the folder of a partition is not there."""
    if os.path.isdir(store):
        return TopicReplaced(f"topic {topic!r} was dropped while it was written to")
    return NotAStore(
        f"{socket.gethostname()} does not see the store {store}",
        hint="executors write the files themselves: they must see the folder under the same path",
    )


def discard(
    staged: StagedTopics, plans: Mapping[str, TopicPlan], *, keep: Callable[[int, int], Set[str]]
) -> None:
    """Remove staged files but those that `keep` names for a topic's id and a partition."""
    for topic, partitions in staged.items():
        for number, pieces in partitions.items():
            needed = keep(plans[topic].id, number)
            for piece in pieces:
                if piece.file is not None and piece.file not in needed:
                    with suppress(FileNotFoundError):
                        os.unlink(os.path.join(plans[topic].path(number), piece.file))
