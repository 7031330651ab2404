"""Everything a process needs to stage frames for a topic without opening the store."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from penstock.log.active_segment import segment_bytes
from penstock.partition_tree import PartitionTree

if TYPE_CHECKING:
    from penstock.options import TopicOptions
    from penstock.topic.open_topic import OpenTopic


class OutsidePlan(NamedTuple):
    """Where a topic puts values that are too large for its log."""

    #: The store's folder for bodies in files.
    root: str
    store_id: str
    options: TopicOptions


class TopicPlan(NamedTuple):
    """A topic as it was when the write was planned."""

    name: str
    id: int
    #: The folder that holds those of the partitions.
    folder: str
    rows: PartitionTree
    #: Counts changes of the partitions.
    tree: int
    partitioner: str
    compress: bool
    segment_bytes: int
    max_message_bytes: int
    #: Names of the codecs it allows; none named: all.
    codecs: tuple[str, ...] = ()
    #: None: all values lie in the log.
    outside: OutsidePlan | None = None

    @property
    def value_bytes(self) -> int:
        """The largest value that can be written, wherever it lies."""
        return self.max_message_bytes if self.outside is None else self.outside.options.value_bytes

    def path(self, partition: int) -> str:
        """Return the path of a partition's folder."""
        return os.path.join(self.folder, f"{partition:06d}")


def plan_of(topic: OpenTopic) -> TopicPlan:
    """The topic as it is now, with the folders of all partitions that can be written to in place."""
    options, parts = topic.options, [topic.log(number) for number in topic.active()]
    return TopicPlan(
        name=topic.name, id=topic.record.id, folder=os.path.dirname(parts[0].folder.path),
        rows=topic.tree, tree=topic.record.tree, partitioner=options.partitioner,
        compress=options.compress is not None, segment_bytes=segment_bytes(options),
        max_message_bytes=options.max_message_bytes, codecs=tuple(options.codecs),
        outside=_outside(topic),
    )  # fmt: skip


def _outside(topic: OpenTopic) -> OutsidePlan | None:
    bodies = topic.bodies
    if not bodies.takes_bodies:
        return None
    return OutsidePlan(bodies.root, topic.topics.store_id, topic.options)
