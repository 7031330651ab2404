"""What the driver tells tasks about the topics they write to: all they need, so that they never ask."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple


class TopicPlan(NamedTuple):
    """A topic as it was when the write was planned."""

    name: str
    id: int
    #: The folder that holds those of the partitions.
    folder: str
    partitions: int
    #: Counts changes of the partitions.
    tree: int
    partitioner: str
    compress: bool
    segment_bytes: int
    max_message_bytes: int

    def path(self, partition: int) -> str:
        return os.path.join(self.folder, f"{partition:06d}")


class Target(NamedTuple):
    """Where a write goes."""

    store: str
    topics: Mapping[str, TopicPlan]
    #: The topic of all rows; None: each row names its own.
    topic: str | None
    #: Messages without a key or partition of their own begin here: not all writes at the first.
    turn: int
