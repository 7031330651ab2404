"""Messages sent at an even pace, each with the moment at which it was due."""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct

from benchmarks.harness import VALUE_BYTES

#: Messages a second.
RATE = 10_000
_DUE = Struct("<q")
_REST = bytes(VALUE_BYTES - _DUE.size)


_SET_TIMER_SLACK, _GET_TIMER_SLACK = 29, 30


@contextmanager
def _short_sleeps() -> Iterator[None]:
    """Let this thread sleep no longer than it asks for.

    Linux wakes a thread up to 50 µs late, so as to wake several at once. That would count as the lateness of
    whoever is measured.
    """
    if sys.platform != "linux":
        yield
        return
    prctl = ctypes.CDLL(None).prctl
    before = prctl(_GET_TIMER_SLACK, 0, 0, 0, 0)
    prctl(_SET_TIMER_SLACK, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_SET_TIMER_SLACK, before, 0, 0, 0)


def at_their_moments(count: int, send: Callable[[bytes], object]) -> None:
    """Send messages of the usual size; one that is late is sent at once, and its lateness counts."""
    with _short_sleeps():
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
