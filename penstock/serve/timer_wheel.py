"""One timer for all connections: each is looked at in the second it asked for.

A task or a timer for each of fifty thousand connections would cost more than the connections. Times are
whole seconds; a connection is in at most one slot that counts.
"""

from __future__ import annotations

from typing import Protocol


class Timed(Protocol):
    """What can be put into a wheel."""

    #: The second it is looked at, or -1; the wheel's own.
    wheel_at: int

    def on_time(self, now: int) -> None:
        """Called in the second it asked for; it may ask again."""


class Wheel:
    """Seconds, and who is to be looked at in them."""

    def __init__(self, now: int) -> None:
        self._done = now
        self._slots: dict[int, set[Timed]] = {}

    def put(self, timed: Timed, at: int) -> None:
        """Have it looked at in the second `at`, if nothing earlier was asked for."""
        at = max(at, self._done + 1)
        if timed.wheel_at >= 0:
            if timed.wheel_at <= at:
                return
            self.remove(timed)
        timed.wheel_at = at
        slot = self._slots.get(at)
        if slot is None:
            self._slots[at] = {timed}
        else:
            slot.add(timed)

    def remove(self, timed: Timed) -> None:
        """Forget a connection."""
        slot = self._slots.get(timed.wheel_at)
        if slot is not None:
            slot.discard(timed)
        timed.wheel_at = -1

    def turn(self, now: int) -> None:
        """Look at all whose second has come."""
        while self._done < now:
            self._done += 1
            for timed in self._slots.pop(self._done, ()):
                timed.wheel_at = -1
                timed.on_time(now)
