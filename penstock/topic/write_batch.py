"""Checked messages on their way into a topic: columns, and where each of them wants to go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.log.frame_encode import EncodedFrame, MessageColumns, frames, taken


class WriteBatch(NamedTuple):
    """Checked messages on their way into a topic; a column that no message has is None."""

    columns: MessageColumns
    #: Explicit partitions, where the caller chose.
    partitions: Sequence[int | None] | None = None
    #: Groups of their own, where messages have one.
    groups: Sequence[str | None] | None = None

    def take(self, places: Sequence[int]) -> WriteBatch:
        """Those at `places`, in that order."""
        return WriteBatch(
            self.columns.take(places), taken(self.partitions, places), taken(self.groups, places)
        )

    def frames(self, created: int, *, compress: bool) -> list[EncodedFrame]:
        """All of it as frames; messages without a timestamp get `created`."""
        return frames(self.columns, created=created, compress=compress)
