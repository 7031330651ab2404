"""Time, as an argument: everything that needs to know the time asks a `Clock`.

Tests put `penstock.testing.Clock` in its place and move time by hand.
"""

from __future__ import annotations

import time

NANOSECONDS = 1_000_000_000


class Clock:
    """The machine's clocks."""

    #: Nanoseconds since 1970, UTC; may step back when the machine's clock is set.
    now_ns = staticmethod(time.time_ns)

    #: Seconds that never step back, for time-outs and intervals.
    monotonic = staticmethod(time.monotonic)

    #: Sleep for so many seconds.
    sleep = staticmethod(time.sleep)

    @property
    def drives_threads(self) -> bool:
        """Whether threads act by themselves when a moment comes; not by a clock that a test moves."""
        return self.now_ns is time.time_ns


class CommandClock(Clock):
    """The machine's clocks for a command that does one thing: nothing happens by itself beside it."""

    def now_ns(self) -> int:
        return time.time_ns()
