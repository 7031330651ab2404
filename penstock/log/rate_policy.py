"""When a partition is written to too fast, and how long a writer has to wait: plain functions of numbers.

Times are nanoseconds, speeds bytes a second.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from penstock.clock import NANOSECONDS

#: A window has so many parts, and so many samples are kept: one for each part.
SAMPLES = 10


class RateSample(NamedTuple):
    """How many bytes a partition had since it began, at one moment."""

    at: int
    bytes: int


def is_hot(samples: Sequence[RateSample], now: int, speed: int, window: int, percent: int) -> bool:
    """Whether a partition was written to at `percent` of its speed throughout the window that ends now.

    Of each tenth of the window no more counts than its share of the speed: a burst cannot make up for the
    rest, and at 90 % one idle tenth is forgiven. The last sample is the present one.
    """
    tenth = window // SAMPLES
    if not samples or tenth <= 0:
        return False
    curve = _curve(samples, tenth)
    edges = [_bytes_at(curve, now - place * tenth) for place in range(SAMPLES, -1, -1)]
    most = speed * tenth / NANOSECONDS
    counted = sum(min(after - before, most) for before, after in pairwise(edges))
    return counted * 100 >= percent * most * SAMPLES


def write_rate(samples: Sequence[RateSample], now: int, window: int) -> float | None:
    """Bytes a second over the window that ends now, or over the part of it that is known; None if none is."""
    if not samples:
        return None
    curve = _curve(samples, window // SAMPLES)
    begin = max(now - window, curve[0].at)
    if begin >= now:
        return None
    return (_bytes_at(curve, now) - _bytes_at(curve, begin)) * NANOSECONDS / (now - begin)


def reserved(arrival: int, now: int, size: int, speed: int, burst: int) -> tuple[int, int]:
    """The theoretical arrival time with `size` bytes more, and how long their writer has to wait.

    The arrival time is when all that was written would have been written at the speed. It may run ahead of
    now by what a burst takes. More than a burst at once waits no longer than a burst would, or it could never
    be written in time; those behind it wait the longer.
    """
    begin = max(arrival, now)
    ahead = min(size - burst, 0) * NANOSECONDS // speed
    return begin + size * NANOSECONDS // speed, max(0, begin + ahead - now)


def _curve(samples: Sequence[RateSample], tenth: int) -> list[RateSample]:
    """Samples as points of a curve of bytes over time.

    A sample is taken by the first append that comes a tenth or more behind the one before. So between two
    that are far apart nobody wrote but in the first tenth: the curve goes up there, and is flat behind it.
    """
    found = [samples[0]]
    for before, after in pairwise(samples):
        if after.at - before.at > 2 * tenth:
            found.append(RateSample(before.at + tenth, after.bytes))
        found.append(after)
    return found


def _bytes_at(curve: Sequence[RateSample], at: int) -> float:
    """How many bytes there were at a moment, on straight lines between the points."""
    place = bisect_right(curve, at, key=lambda each: each.at)
    if place == 0:
        return curve[0].bytes
    if place == len(curve):
        return curve[-1].bytes
    before, after = curve[place - 1], curve[place]
    return before.bytes + (after.bytes - before.bytes) * (at - before.at) / (after.at - before.at)
