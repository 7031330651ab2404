"""For tests of your own: a store that is gone afterwards, and a clock that you move by hand.

    from penstock.testing import Clock, penstock_store     # or: pytest_plugins = ["penstock.testing"]

    def test_orders_are_billed(penstock_store):
        orders = penstock_store.create_topic("orders")
        orders.write(b"paid")
        ...

    def test_orders_expire(tmp_path):
        clock = Clock()
        with penstock.open(tmp_path, clock=clock) as store:
            orders = store.create_topic("orders", retention="7d")
            orders.write(b"paid")
            clock.advance("8d")
            assert orders.vacuum().messages == 1

`Clock` needs nothing else; the fixture needs pytest.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import SupportsIndex

from penstock import clock
from penstock.clock import NANOSECONDS
from penstock.parse import Duration, nanoseconds, seconds
from penstock.store import Store, open_store

__all__ = ["Clock", "penstock_store"]

#: Where a test's clock begins unless a test says otherwise: a round moment, the same in every run.
BEGIN = datetime.fromisoformat("2030-01-01T00:00:00+00:00")


class Clock(clock.Clock):
    """A clock that stands still until it is moved. Sleeping moves it, and takes no time."""

    def __init__(self, moment: int | datetime = BEGIN) -> None:
        self._now_ns = nanoseconds("moment", moment)
        self._monotonic_ns = 0

    def now_ns(self) -> int:
        """The moment the clock stands at, in nanoseconds since 1970."""
        return self._now_ns

    def monotonic(self) -> float:
        """Seconds since the clock was made, moved by hand like the rest."""
        return self._monotonic_ns / NANOSECONDS

    def sleep(self, duration: SupportsIndex | float) -> None:
        """Move the clock instead of waiting."""
        self.advance(float(duration))

    def advance(self, duration: Duration) -> None:
        """Let time pass: seconds, a timedelta, or text such as "2h"."""
        passed_ns = round(seconds("duration", duration) * NANOSECONDS)
        self._now_ns += passed_ns
        self._monotonic_ns += passed_ns

    def set(self, moment: int | datetime) -> None:
        """Set the time of day, forward or back, as an administrator does; no time passes by it."""
        self._now_ns = nanoseconds("moment", moment)

    def __repr__(self) -> str:
        return f"<Clock at {self._now_ns} ns>"


try:
    import pytest
except ImportError:  # the clock works without
    __all__.remove("penstock_store")
else:

    @pytest.fixture
    def penstock_store(tmp_path: Path) -> Iterator[Store]:
        """An empty store in a temporary folder, closed after the test."""
        with open_store(tmp_path / "penstock-store") as store:
            yield store
