"""What the driver tells tasks about the topics they write to: all they need, so that they never ask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from penstock.topic.plan import TopicPlan


class Target(NamedTuple):
    """Where a write goes."""

    store: str
    topics: Mapping[str, TopicPlan]
    #: The topic of all rows; None: each row names its own.
    topic: str | None
    #: Messages without a key or partition of their own begin here: not all writes at the first.
    turn: int
