"""Commits in any order; the position moves over the contiguous prefix.

Pure bookkeeping for one partition, in offsets. A hole between two messages that were delivered
one after the other (offsets that were never given out, or damage that was skipped) belongs to the
message behind it: committing that one covers the hole. Behind the last message delivered it belongs to
that one.
"""

from __future__ import annotations

from bisect import bisect_left, insort


class Commits:
    """What of a partition was delivered and what of that is done."""

    def __init__(self, position: int) -> None:
        #: Everything below is done; this is what gets stored.
        self.position = position
        #: Everything below was delivered.
        self.delivered = position
        self._done: list[tuple[int, int]] = []
        self._holes: dict[int, int] = {}
        #: Up to here nothing can be delivered behind the last message that was.
        self._skipped = position

    @property
    def is_idle(self) -> bool:
        """Whether all that was delivered is done."""
        return self.position == self.delivered

    def is_done(self, offset: int) -> bool:
        """Whether the message at an offset is done."""
        return offset < self.position or any(first <= offset < stop for first, stop in self._done)

    def copy(self) -> Commits:
        """The same bookkeeping for a trial: what the position would be if more were committed."""
        other = Commits(self.position)
        other.delivered, other._skipped = self.delivered, self._skipped
        other._done, other._holes = list(self._done), dict(self._holes)
        return other

    def deliver(self, first: int, stop: int) -> None:
        """Messages `first` to `stop` went out."""
        if first > self.delivered:
            self._holes[first] = self.delivered
        self.delivered = max(self.delivered, stop)

    def skip(self, stop: int) -> None:
        """Nothing can be delivered before `stop`: it is passed over together with what came before it."""
        self._skipped = max(self._skipped, stop)
        self._pass_over()

    def rewind(self, offset: int) -> None:
        """Messages from `offset` on did not go out after all; none of them may be done."""
        if offset < self.delivered:
            self.delivered = self._holes.get(offset, offset)
            self._holes = {first: since for first, since in self._holes.items() if first < offset}
            self._skipped = self.position

    def commit(self, first: int, stop: int) -> bool:
        """Messages `first` to `stop` are done; returns whether the position moved.

        Raises `ValueError` for messages that were not delivered.
        """
        if stop > self.delivered:
            raise ValueError(f"offset {stop - 1} was not delivered by this reader")
        first = self._holes.pop(first, first)
        if stop <= self.position:
            return False
        if first > self.position:
            self._add(first, stop)
            return False
        self.position = stop
        self._join()
        self._pass_over()
        return True

    def _pass_over(self) -> None:
        if self.is_idle and self._skipped > self.position:
            self.position = self.delivered = self._skipped

    def _add(self, first: int, stop: int) -> None:
        at = bisect_left(self._done, (first, stop))
        if at == len(self._done) or self._done[at] != (first, stop):
            insort(self._done, (first, stop))

    def _join(self) -> None:
        """Take up ranges that now touch the position."""
        used = 0
        for first, stop in self._done:
            if first > self.position and self._holes.get(first, first) > self.position:
                break
            self._holes.pop(first, None)
            self.position = max(self.position, stop)
            used += 1
        del self._done[:used]
