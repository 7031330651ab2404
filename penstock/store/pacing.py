"""How far a replay may go by now: as fast as it can, so many messages a second, or as it was written.

Plain functions of time and offsets; nothing here reads or waits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Protocol

from penstock.clock import NANOSECONDS
from penstock.errors import InvalidOption

#: Offsets by partition.
Offsets = Mapping[int, int]
_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:/s)?")
_SPEED = re.compile(r"(\d+(?:\.\d+)?)x?")


class Pace(Protocol):
    """How far each partition may be copied."""

    def targets(self, at: Offsets, ends: Offsets, elapsed_s: float) -> dict[int, int]:
        """The offset up to which each may be copied `elapsed_s` after the start; it never goes back."""


class Unhurried:
    """All of it, at once."""

    def targets(self, at: Offsets, ends: Offsets, elapsed_s: float) -> dict[int, int]:
        return dict(ends)


class Rate:
    """So many messages a second, from all partitions in proportion to what is left of them."""

    def __init__(self, per_second: float, begin: Offsets) -> None:
        self._per_second = per_second
        self._begin = dict(begin)

    def targets(self, at: Offsets, ends: Offsets, elapsed_s: float) -> dict[int, int]:
        done = sum(at[number] - self._begin[number] for number in at)
        return shared(at, ends, int(self._per_second * elapsed_s) - done)


class Speed:
    """As fast as it was written, or so many times faster: by the times that the log gave."""

    def __init__(self, factor: float, first_written_at: int, offset_at: Callable[[int, int], int]) -> None:
        self._factor = factor
        self._first = first_written_at
        #: The first offset of a partition that was written at a time or later.
        self._offset_at = offset_at

    def targets(self, at: Offsets, ends: Offsets, elapsed_s: float) -> dict[int, int]:
        moment = self._first + round(elapsed_s * self._factor * NANOSECONDS) + 1
        return {
            number: min(max(self._offset_at(number, moment), at[number]), end) for number, end in ends.items()
        }


def shared(at: Offsets, ends: Offsets, budget: int) -> dict[int, int]:
    """Go on by `budget` messages in all, each partition by its share of what is left.

    So all of them end together; what rounding leaves over goes to the first that has something left.
    """
    left = {number: end - at[number] for number, end in ends.items()}
    total = sum(left.values())
    budget = max(min(budget, total), 0)
    steps = {number: budget * rest // total if total else 0 for number, rest in left.items()}
    over = budget - sum(steps.values())
    for number, rest in left.items():
        more = min(over, rest - steps[number])
        steps[number] += more
        over -= more
    return {number: at[number] + step for number, step in steps.items()}


def parse_rate(text: str) -> float:
    """Messages a second, from "500" or "500/s"."""
    return _positive("rate", text, _RATE, '"500/s"')


def parse_speed(text: str) -> float:
    """How many times faster, from "2" or "2x"; "0.5x" is half as fast."""
    return _positive("speed", text, _SPEED, '"2x"')


def _positive(what: str, text: str, pattern: re.Pattern[str], example: str) -> float:
    match = pattern.fullmatch(text)
    if match is None or not float(match[1]):
        raise InvalidOption(f"{what} {text!r} is not a number above 0", hint=f"write it like {example}")
    return float(match[1])
