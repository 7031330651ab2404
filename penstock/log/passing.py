"""Passing over sealed segments that do not hold what is asked for, and remembering which they were.

A look at a filter is cheap, a thousand of them are not nothing. Sealed segments do not change: what one of
them does not hold it never will, whatever becomes of it. So a run of segments that was passed over once is
passed over in one step when the same keys are asked for again, and only those sealed since are looked at.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

from penstock.keys import Match
from penstock.log.keyindex import Sieve, StoredKeys

#: So many questions are remembered, and only small ones.
_QUESTIONS_MOST = 1024
_KEYS_MOST = 16
#: Shorter runs are not worth it.
_RUN_LEAST = 8

T = TypeVar("T", bound="Based")
#: By the first segment of a run, in the direction of the search: the last one.
_Runs = dict[int, int]


class Based(Protocol):
    """What is known of a segment, which has its first offset."""

    @property
    def base(self) -> int: ...


class Passed:
    """What one process has passed over in one partition."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[Match, bool], _Runs] = OrderedDict()

    def may_hold(self, sealed: Sequence[T], match: Match, between: range, *, newest: bool) -> Iterator[T]:
        """Those of `sealed` that may hold a wanted key, in order or the newest first.

        What is no index is always among them.
        """
        runs, passes = self._runs(match, newest), Sieve(match).passes
        step, at = (-1, between.stop - 1) if newest else (1, between.start)
        began = -1  # where the run that is being passed over began
        while at in between:
            table = sealed[at]
            if isinstance(table, StoredKeys) and not (passes(table) and _holds(table, match)):
                if began < 0:
                    began = at
                if runs and (last := runs.get(table.base)) is not None:
                    at = bisect_left(sealed, last, key=_base) if newest else _last_up_to(sealed, last)
            else:
                _note(runs, sealed, began, at - step)
                began = -1
                yield table
            at += step
        _note(runs, sealed, began, at - step)

    def _runs(self, match: Match, newest: bool) -> _Runs:
        if len(match.keys) + len(match.prefixes) > _KEYS_MOST:
            return {}
        question = match, newest
        runs = self._known.pop(question, None)
        self._known[question] = runs = {} if runs is None else runs
        while len(self._known) > _QUESTIONS_MOST:
            self._known.popitem(last=False)
        return runs


def _holds(table: StoredKeys, match: Match) -> bool:
    """Whether an index that the filter let pass may hold what is wanted: prefixes are looked up for that."""
    return not match.prefixes or not table.is_sound() or next(table.found(match), None) is not None


def _note(runs: _Runs, sealed: Sequence[Based], began: int, end: int) -> None:
    """A run was passed over, if it began and is long enough; `end` may lie outside what there is by now."""
    end = min(max(end, 0), len(sealed) - 1)
    if began >= 0 and abs(end - began) >= _RUN_LEAST:
        runs[sealed[began].base] = sealed[end].base


def _last_up_to(sealed: Sequence[Based], base: int) -> int:
    return bisect_right(sealed, base, key=_base) - 1


def _base(table: Based) -> int:
    return table.base
