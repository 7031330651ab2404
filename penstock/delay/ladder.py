"""The ladder of delays: which chain of files a wait goes to.

Only delays of the ladder have files, so that jitter and back-off never multiply them. A wait that is no
rung goes to the largest rung that is not longer, and from there, when it is due, to the next: it hops down.
What is left below the smallest rung is waited for in memory, while the record stays in its file. Waits that
begin below the smallest rung have a chain of their own, the rung 0.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from penstock.errors import InvalidOption, WrongType
from penstock.parse import Duration, seconds

DEFAULT: tuple[Duration, ...] = ("1s", "5s", "30s", "1m", "5m", "30m", "2h", "12h", "1d")
#: More rungs would make more files than they save hops.
RUNGS_MAX = 64
#: Nothing waits longer: a due time this far off is a mistake, not a plan.
WAIT_MAX_MS = 100 * 365 * 86_400_000


class Ladder:
    """Delays in milliseconds, the smallest first."""

    def __init__(self, delays: Iterable[Duration] = DEFAULT) -> None:
        if isinstance(delays, (str, bytes)) or not isinstance(delays, Iterable):
            raise WrongType(f"a ladder is a list of delays, not {type(delays).__name__}")
        self.rungs = tuple(_milliseconds(each) for each in delays)
        if not 1 <= len(self.rungs) <= RUNGS_MAX:
            raise InvalidOption(f"a ladder of {len(self.rungs)} delays", hint=f"give 1 to {RUNGS_MAX}")
        if any(later <= earlier for earlier, later in zip(self.rungs, self.rungs[1:], strict=False)):
            raise InvalidOption("the delays of a ladder must ascend, each only once", hint='("1s", "5s", …)')

    @property
    def smallest(self) -> int:
        """The shortest delay that has a chain of its own."""
        return self.rungs[0]

    def rung(self, wait_ms: int) -> int:
        """The largest delay that is not longer than the wait; 0 below the smallest."""
        place = bisect_right(self.rungs, wait_ms)
        return self.rungs[place - 1] if place else 0

    def __repr__(self) -> str:
        return f"Ladder({', '.join(f'{rung / 1000:g}s' for rung in self.rungs)})"


def wait_ms(name: str, wait: Duration) -> int:
    """A wait as whole milliseconds, rounded up: nothing comes too early."""
    if isinstance(wait, (int, float)) and wait < 0:
        raise InvalidOption(f"{name}={wait} s is negative", hint="0 is due at once")
    microseconds = round(seconds(name, wait) * 1_000_000)
    return checked_wait(name, -(-microseconds // 1000))


def checked_wait(name: str, wait: object) -> int:
    """Milliseconds to wait, within what can be waited for."""
    if not isinstance(wait, int) or isinstance(wait, bool):
        raise WrongType(f"{name} takes whole milliseconds, not {type(wait).__name__}")
    if wait < 0:
        raise InvalidOption(f"{name}={wait} ms is negative", hint="0 is due at once")
    if wait > WAIT_MAX_MS:
        raise InvalidOption(f"{name}={wait} ms is more than a hundred years")
    return wait


def _milliseconds(delay: Duration) -> int:
    exact = seconds("ladder", delay) * 1000
    whole = round(exact)
    if whole < 1 or abs(exact - whole) > 1e-6 * whole:
        raise InvalidOption(f"a ladder's delay of {delay!r}", hint="whole milliseconds, at least one")
    if whole > WAIT_MAX_MS:
        raise InvalidOption(f"a ladder's delay of {delay!r} is more than a hundred years")
    return whole
