"""Values that a task writes and that are too large for the log: stored outside, then their frames are staged.

A body is synced when its frame is staged, and a frame is seen when the driver commits it: so a message that
can be read has its body. An attempt that fails removes what it stored; what is left of one that dies, or
whose write is not committed, is an orphan for the sweep.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.clock import Clock
from penstock.files import Files
from penstock.log.encode import Draft
from penstock.spark.frames import drafts
from penstock.topic.plan import TopicPlan

if TYPE_CHECKING:
    from penstock.topic.bodies import TopicBodies
    from penstock.topic.framing import Outgoing


class Lifting:
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

    def drafts(self, messages: pa.RecordBatch, created: int) -> Iterable[Draft]:
        """Messages of one partition, that follow each other in it, as frames."""
        longest = pc.max(pc.binary_length(messages.column("value"))).as_py() or 0
        if self._bodies is None or longest <= self._inline_bytes:
            return drafts(messages, created, compress=self._compress)
        from penstock.topic.framing import encode_all  # most tasks have no need of it

        lifted = self._bodies.lift(_outgoing(messages, created), range(messages.num_rows))
        self._made += lifted.made
        return encode_all(lifted.batch, created, compress=self._compress)

    def discard(self) -> None:
        """Remove the bodies: their messages will not be."""
        if self._bodies is not None:
            self._bodies.discard(self._made)
            self._made = []


def _outgoing(messages: pa.RecordBatch, created: int) -> Outgoing:
    from penstock.topic.framing import Outgoing

    there = dict(zip(messages.schema.names, messages.columns, strict=True))
    keys = there["key"].to_pylist() if "key" in there else None
    headers: list[Any] | None = None
    if "headers" in there:
        headers = [dict(each) if each else None for each in there["headers"].to_pylist()]
    times = pc.fill_null(there["time"], created).to_pylist() if "time" in there else None
    return Outgoing(
        there["value"].to_pylist(),
        keys if keys and any(key is not None for key in keys) else None,
        headers if headers and any(headers) else None,
        times,
    )
