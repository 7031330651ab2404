"""What a query's filters leave to be read: plain functions over the filters that Spark hands down.

Offsets, partitions, topics and the time of writing are known before anything is read, so what cannot
pass is not planned. (`timestamp` is the producer's own, in any order: it tells nothing about where to
look.) Nothing here is exact, nor need it be: Spark applies all filters again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from penstock.parse import datetime_ns

_LEAST, _MOST = -(2**63), 2**63
_MICROSECOND = 1000


@dataclass(frozen=True)
class NumberSpan:
    """Numbers from `first` up to `stop`."""

    first: int = _LEAST
    stop: int = _MOST

    def both(self, other: NumberSpan) -> NumberSpan:
        return NumberSpan(max(self.first, other.first), min(self.stop, other.stop))

    @property
    def is_bounded_below(self) -> bool:
        return self.first > _LEAST

    @property
    def is_bounded_above(self) -> bool:
        return self.stop < _MOST


@dataclass(frozen=True)
class FilterBounds:
    """What may pass the filters; None is anything."""

    topics: frozenset[str] | None = None
    numbers: frozenset[int] | None = None
    partitions: NumberSpan = field(default_factory=NumberSpan)
    offsets: NumberSpan = field(default_factory=NumberSpan)
    #: Nanoseconds.
    written: NumberSpan = field(default_factory=NumberSpan)

    @property
    def is_everything(self) -> bool:
        return self == FilterBounds()

    def has(self, topic: str, partition: int) -> bool:
        """Whether anything of a partition may pass."""
        return (
            (self.topics is None or topic in self.topics)
            and (self.numbers is None or partition in self.numbers)
            and self.partitions.first <= partition < self.partitions.stop
        )


def wanted(filters: Iterable[Any]) -> FilterBounds:
    """What may pass all of these filters; those that are not understood let everything pass."""
    found = FilterBounds()
    for each in filters:
        column: tuple[str, ...] = getattr(each, "attribute", ())
        if len(column) == 1:
            found = _narrowed(found, column[0], type(each).__name__, getattr(each, "value", None))
    return found


def _narrowed(found: FilterBounds, column: str, kind: str, value: Any) -> FilterBounds:
    if column == "topic":
        names = _strings(kind, value)
        if names is not None:
            topics = names if found.topics is None else names & found.topics
            return replace(found, topics=topics)
    elif column == "partition" and kind == "In" and (numbers := _integers(value)):
        return replace(found, numbers=numbers if found.numbers is None else numbers & found.numbers)
    elif column == "partition" and (span := _span(kind, value)) is not None:
        return replace(found, partitions=found.partitions.both(span))
    elif column == "offset" and (span := _span(kind, value)) is not None:
        return replace(found, offsets=found.offsets.both(span))
    elif column == "written_at" and (span := _span(kind, value)) is not None:
        return replace(found, written=found.written.both(span))
    return found


def _strings(kind: str, value: Any) -> frozenset[str] | None:
    if kind in ("EqualTo", "EqualNullSafe") and isinstance(value, str):
        return frozenset((value,))
    if kind == "In" and isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value):
        return frozenset(value)
    return None


def _integers(values: Any) -> frozenset[int] | None:
    if not isinstance(values, (list, tuple)) or not all(type(each) is int for each in values):
        return None
    return frozenset(values)


def _span(kind: str, value: Any) -> NumberSpan | None:
    """The span of numbers or nanoseconds that a comparison lets pass."""
    if kind == "In":
        spans = [_span("EqualTo", each) for each in value] if isinstance(value, (list, tuple)) else []
        if not spans or None in spans:
            return None
        known = [each for each in spans if each is not None]
        return NumberSpan(min(each.first for each in known), max(each.stop for each in known))
    if isinstance(value, datetime):
        # A column's microsecond stands for the thousand nanoseconds from it on.
        first = datetime_ns(value)
        behind = first + _MICROSECOND
    elif type(value) is int:
        first, behind = value, value + 1
    else:
        return None
    return {
        "EqualTo": NumberSpan(first, behind),
        "EqualNullSafe": NumberSpan(first, behind),
        "GreaterThan": NumberSpan(first=behind),
        "GreaterThanOrEqual": NumberSpan(first=first),
        "LessThan": NumberSpan(stop=first),
        "LessThanOrEqual": NumberSpan(stop=behind),
    }.get(kind)
