"""Filters as Spark hands them down, turned into what has to be read; no session."""

from datetime import UTC, datetime

import pytest

from tests.kit.slices import FilterBounds, NumberSpan, wanted
from tests.kit.values import datetime_ns
from tests.require import module

datasource = module("pyspark.sql.datasource", "spark")
EqualTo, In, Not = datasource.EqualTo, datasource.In, datasource.Not
GreaterThan, GreaterThanOrEqual = datasource.GreaterThan, datasource.GreaterThanOrEqual
LessThan, LessThanOrEqual = datasource.LessThan, datasource.LessThanOrEqual

MOMENT = datetime(2024, 2, 29, 12, tzinfo=UTC)
NS = datetime_ns(MOMENT)


@pytest.mark.parametrize(
    ("filters", "span"),
    [
        ([EqualTo(("offset",), 7)], NumberSpan(7, 8)),
        ([GreaterThan(("offset",), 7)], NumberSpan(first=8)),
        ([GreaterThanOrEqual(("offset",), 7), LessThan(("offset",), 9)], NumberSpan(7, 9)),
        ([LessThanOrEqual(("offset",), 9), LessThan(("offset",), 5)], NumberSpan(stop=5)),
        ([In(("offset",), [4, 9, 6])], NumberSpan(4, 10)),
    ],
)
def test_offsets(filters, span):
    assert wanted(filters) == FilterBounds(offsets=span)


def test_a_microsecond_of_the_column_is_a_thousand_nanoseconds():
    assert wanted([GreaterThan(("written_at",), MOMENT)]).written == NumberSpan(first=NS + 1000)
    assert wanted([LessThanOrEqual(("written_at",), MOMENT)]).written == NumberSpan(stop=NS + 1000)
    assert wanted([LessThan(("written_at",), MOMENT)]).written == NumberSpan(stop=NS)


def test_partitions_and_topics():
    found = wanted([In(("partition",), [1, 3]), GreaterThan(("partition",), 1), EqualTo(("topic",), "a")])
    assert found.has("a", 3)
    assert not found.has("a", 1)
    assert not found.has("b", 3)


@pytest.mark.parametrize(
    "filter",
    [
        EqualTo(("timestamp",), MOMENT), EqualTo(("value",), b"x"), Not(EqualTo(("offset",), 7)),
        EqualTo(("offset", "deeper"), 7), EqualTo(("offset",), None), EqualTo(("offset",), True),
        datasource.IsNotNull(("offset",)), In(("offset",), []), In(("offset",), [1, None]),
    ],
)  # fmt: skip
def test_what_is_not_understood_lets_everything_pass(filter):
    assert wanted([filter]).is_everything
