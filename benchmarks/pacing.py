"""Messages sent at an even pace, each with the moment at which it was due."""

from __future__ import annotations

import time
from collections.abc import Callable
from struct import Struct

from benchmarks.harness import VALUE_BYTES

#: Messages a second.
RATE = 10_000
_DUE = Struct("<q")
_REST = bytes(VALUE_BYTES - _DUE.size)


def at_their_moments(count: int, send: Callable[[bytes], object]) -> None:
    """Send messages of the usual size; one that is late is sent at once, and its lateness counts."""
    begin = time.monotonic_ns()
    for number in range(count):
        due = begin + number * 1_000_000_000 // RATE
        ahead = due - time.monotonic_ns()
        if ahead > 0:
            time.sleep(ahead / 1e9)
        send(_DUE.pack(due) + _REST)


def lateness(value: bytes, now: int) -> int:
    """Nanoseconds from the moment at which a message was due."""
    due: int = _DUE.unpack_from(value)[0]
    return now - due
