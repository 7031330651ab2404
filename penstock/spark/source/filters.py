"""What a condition leaves to be read: plain functions over comparisons (`filter_parse`).

Offsets, partitions, topics and the time of writing are known before anything is read, so what cannot
pass is not planned. (`timestamp` is the producer's own, in any order: it tells nothing about where to
look.) Nothing here is exact, nor need it be: Spark applies the condition again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo
from typing import Any

from penstock.parse import datetime_ns
from penstock.spark.source.filter_parse import Comparison, Operator, moment

_LEAST, _MOST = -(2**63), 2**63
_MICROSECOND = 1000


@dataclass(frozen=True)
class NumberSpan:
    """Numbers from `first` up to `stop`."""

    first: int = _LEAST
    stop: int = _MOST

    def both(self, other: NumberSpan) -> NumberSpan:
        """Return what lies in both spans."""
        return NumberSpan(max(self.first, other.first), min(self.stop, other.stop))

    @property
    def is_bounded_below(self) -> bool:
        """Whether the span has a least number."""
        return self.first > _LEAST

    @property
    def is_bounded_above(self) -> bool:
        """Whether the span has a greatest number."""
        return self.stop < _MOST


@dataclass(frozen=True)
class FilterBounds:
    """What may pass a condition; None is anything."""

    topics: frozenset[str] | None = None
    numbers: frozenset[int] | None = None
    partitions: NumberSpan = field(default_factory=NumberSpan)
    offsets: NumberSpan = field(default_factory=NumberSpan)
    #: Nanoseconds.
    written: NumberSpan = field(default_factory=NumberSpan)

    @property
    def spans(self) -> dict[str, NumberSpan]:
        """The spans by the names of their fields."""
        return {"partitions": self.partitions, "offsets": self.offsets, "written": self.written}

    @property
    def is_everything(self) -> bool:
        """Whether nothing is filtered out."""
        return self == FilterBounds()

    def has(self, topic: str, partition: int) -> bool:
        """Whether anything of a partition may pass."""
        return (
            (self.topics is None or topic in self.topics)
            and (self.numbers is None or partition in self.numbers)
            and self.partitions.first <= partition < self.partitions.stop
        )


def bounds(comparisons: Iterable[Comparison], zone: tzinfo | None = UTC) -> FilterBounds:
    """What may pass all of these comparisons; those of other columns let everything pass."""
    found = FilterBounds()
    for each in comparisons:
        found = _narrowed(found, each, zone)
    return found


def to_text(found: FilterBounds) -> str:
    """Bounds as an option of a read can carry them."""
    return json.dumps(
        {
            "topics": None if found.topics is None else sorted(found.topics),
            "numbers": None if found.numbers is None else sorted(found.numbers),
            **{name: [span.first, span.stop] for name, span in found.spans.items()},
        }
    )


def from_text(text: str) -> FilterBounds:
    """Bounds from what `to_text` made; raises `ValueError` for anything else."""
    try:
        kept = json.loads(text)
        spans = {name: NumberSpan(*map(int, kept[name])) for name in FilterBounds().spans}
        topics, numbers = kept["topics"], kept["numbers"]
        return FilterBounds(
            None if topics is None else frozenset(topics),
            None if numbers is None else frozenset(numbers),
            **spans,
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"no bounds: {text!r:.100}") from error


def _narrowed(found: FilterBounds, given: Comparison, zone: tzinfo | None) -> FilterBounds:
    column, operator, value = given
    values = value if operator == "in" else (value,)
    if column == "topic" and operator in ("=", "in") and all(isinstance(each, str) for each in values):
        names = frozenset(values)
        return replace(found, topics=names if found.topics is None else names & found.topics)
    if column == "partition" and operator == "in" and all(type(each) is int for each in values):
        numbers = frozenset(values)
        return replace(found, numbers=numbers if found.numbers is None else numbers & found.numbers)
    field = {"partition": "partitions", "offset": "offsets", "written_at": "written"}.get(column)
    spans = [_span("=" if operator == "in" else operator, each, column, zone) for each in values]
    known = [each for each in spans if each is not None]
    if field is None or not known or len(known) < len(spans):
        return found
    span = NumberSpan(min(each.first for each in known), max(each.stop for each in known))
    spans_now = {**found.spans, field: found.spans[field].both(span)}
    return FilterBounds(found.topics, found.numbers, **spans_now)


def _span(operator: Operator, value: Any, column: str, zone: tzinfo | None) -> NumberSpan | None:
    """The span of numbers or nanoseconds that a comparison lets pass."""
    if column == "written_at":
        at = moment(value, zone) if isinstance(value, str) else value
        if not isinstance(at, datetime):
            return None
        # A column's microsecond stands for the thousand nanoseconds from it on.
        first = datetime_ns(at)
        behind = first + _MICROSECOND
    elif type(value) is int:
        first, behind = value, value + 1
    else:
        return None
    return {
        "=": NumberSpan(first, behind),
        ">": NumberSpan(first=behind),
        ">=": NumberSpan(first=first),
        "<": NumberSpan(stop=first),
        "<=": NumberSpan(stop=behind),
    }.get(operator)
