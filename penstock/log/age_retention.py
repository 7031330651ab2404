"""Retention by age, for readers: which message of a partition is the first that is not too old.

Older messages are not returned, whether or not somebody has removed them already (S001-48). The boundary is
looked for once a second at most, and not before the oldest message that is left expires; without retention it
costs nothing. Messages that consumers hold back stay readable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.clock import NANOSECONDS
from penstock.errors import Corrupt, OffsetTrimmed
from penstock.log.segments import Bounds, Segments
from penstock.log.staging import Hold
from penstock.options import TopicOptions

#: What has expired is hidden within a second.
_STEP_NS = NANOSECONDS * 9 // 10


class AgeRetention:
    """One process's knowledge of what has expired by age in a partition; shared by threads."""

    def __init__(
        self, segments: Segments, offset_at: Callable[[int, int], int], holds: Callable[[], Sequence[Hold]],
        options: TopicOptions,
    ) -> None:  # fmt: skip
        self._segments = segments
        self._now = segments.folder.clock.now_ns
        self._offset_at = offset_at
        self._holds = holds
        #: None: nothing expires.
        self.retention_ns = options.retention_ns
        #: As it was when somebody last asked for `start`.
        self.known_start = 0
        #: Up to this moment the start is right.
        self._due = 0
        self._raised: tuple[Bounds | None, int, Bounds | None] = (None, 0, None)

    def use(self, options: TopicOptions) -> None:
        """Go by these options from now on."""
        if options.retention_ns != self.retention_ns:
            self.retention_ns = options.retention_ns
            self.known_start = self._due = 0

    def start(self) -> int:
        """The first offset that has not expired, or that is held back; 0 when all there is can be read."""
        if self.retention_ns is None:
            return 0
        now = self._now()
        if now >= self._due:
            self._look(now, self.retention_ns)
        return self.known_start

    def within(self, bounds: Bounds) -> Bounds:
        """Return the bounds without what has expired."""
        if self.retention_ns is None:
            return bounds
        start = self.known_start if self._now() < self._due else self.start()
        if start <= bounds.start:
            return bounds
        known, at, raised = self._raised
        if known is not bounds or at != start or raised is None:
            raised = bounds._replace(start=min(start, bounds.end))
            self._raised = bounds, start, raised
        return raised

    def refuse(self, offset: int) -> None:
        """Raise `OffsetTrimmed` for an offset whose message has expired."""
        if self.retention_ns is not None and offset < self.start():
            bounds = self.within(self._segments.bounds())
            if offset < bounds.start:
                raise self._segments.trimmed(offset, bounds.start)

    def _look(self, now: int, retention_ns: int) -> None:
        try:
            start = self._offset_at(now - retention_ns, self.known_start)
            stored = self._segments.bounds().start
            held = start
            if start > stored:
                held, _ = held_back(start, self._holds(), lambda moment: self._offset_at(moment, 0), now)
            oldest = self._segments.message(start)
            following = now if oldest is None else oldest.written_at
        except (Corrupt, OffsetTrimmed):  # whoever reads there learns of it
            self._due = now + _STEP_NS
            return
        self.known_start = max(held, stored)
        self._due = now + _STEP_NS if held < start else max(following + retention_ns, now + _STEP_NS)
        if self.retention_ns != retention_ns:  # changed by another thread meanwhile
            self.known_start = self._due = 0


def held_back(
    wanted: int, holds: Sequence[Hold], offset_at: Callable[[int], int], now: int
) -> tuple[int, tuple[str, ...]]:
    """How far the start may really move, and who held it back."""
    start, held_by = wanted, []
    for hold in holds:
        limit = hold.position
        if hold.younger_than_ns is not None:
            limit = max(limit, offset_at(now - hold.younger_than_ns))
        if limit < wanted:
            held_by.append(hold.consumer)
            start = min(start, limit)
    return start, tuple(held_by)
