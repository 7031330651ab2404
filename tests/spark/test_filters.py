"""Conditions in SQL turned into what has to be read; no session (18.2)."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from tests.kit.slices import Comparison, FilterBounds, NumberSpan, bounds, from_text, to_text, understood
from tests.kit.values import datetime_ns

MOMENT = datetime(2024, 2, 29, 12, tzinfo=UTC)
NS = datetime_ns(MOMENT)


def wanted(condition: str, zone=UTC) -> FilterBounds:
    return bounds(understood(condition, zone).comparisons, zone)


@pytest.mark.parametrize(
    ("condition", "span"),
    [
        ("offset = 7", NumberSpan(7, 8)),
        ("7 = offset", NumberSpan(7, 8)),
        ("offset <=> 7", NumberSpan(7, 8)),
        ("offset > 7", NumberSpan(first=8)),
        ("7 < offset", NumberSpan(first=8)),
        ("OFFSET >= 7 AND `offset` < 9", NumberSpan(7, 9)),
        ("(offset >= 7) and ((offset < 9))", NumberSpan(7, 9)),
        ("offset <= 9 and offset < 5", NumberSpan(stop=5)),
        ("offset between 4 and 9", NumberSpan(4, 10)),
        ("offset between 4 and 9 and offset > 5", NumberSpan(6, 10)),
        ("offset in (4, 9, 6)", NumberSpan(4, 10)),
        ("offset > -3", NumberSpan(first=-2)),
        ("offset >= 7 and value like '%AND offset < 3%'", NumberSpan(first=7)),
        ("offset >= 7 and (offset < 3 or value is null)", NumberSpan(first=7)),
        ("offset >= 7 and abs(offset) < 3", NumberSpan(first=7)),
    ],
)
def test_offsets(condition, span):
    assert wanted(condition) == FilterBounds(offsets=span)


def test_a_microsecond_of_the_column_is_a_thousand_nanoseconds():
    assert wanted("written_at > timestamp '2024-02-29 12:00:00Z'").written == NumberSpan(first=NS + 1000)
    assert wanted("written_at <= '2024-02-29T12:00:00+00:00'").written == NumberSpan(stop=NS + 1000)
    assert wanted(f"written_at < timestamp_micros({NS // 1000})").written == NumberSpan(stop=NS)


def test_times_without_a_zone_are_of_the_session():
    berlin = ZoneInfo("Europe/Berlin")
    assert wanted("written_at < '2024-02-29 13:00'", berlin).written == NumberSpan(stop=NS)


def test_times_in_a_zone_that_is_not_known_narrow_nothing():
    """Java knows zones that Python does not ("PST", "UTC-05:00"): taken for UTC, they left rows out."""
    for condition in ("written_at < '2024-02-29 13:00'", "written_at > timestamp '2024-02-29 13:00:00'"):
        assert wanted(condition, None) == FilterBounds()
    assert wanted("written_at < '2024-02-29 12:00Z'", None).written == NumberSpan(stop=NS)
    assert wanted("written_at < timestamp_seconds(99999999999999)") == FilterBounds()


def test_partitions_and_topics():
    found = wanted("partition in (1, 3) and partition > 1 and topic = 'a'")
    assert found.has("a", 3)
    assert not found.has("a", 1)
    assert not found.has("b", 3)


@pytest.mark.parametrize(
    "condition",
    [
        "timestamp = '2024-02-29'", "value = 'x'", "not offset = 7", "offset.deeper = 7", "offset = null",
        "offset = true", "offset is not null", "offset in ()", "offset in (1, null)", "offset <> 7",
        "offset = 7 or offset = 9", "offset = 7 -- and more", "offset = 7 /* or 1 = 1", "offset = partition",
        "offset + 1 = 7", "offset = 7 + 1", "written_at > '20240229'", "written_at > 'today'", "offset = '7'",
        "offset = 7.5", "(offset = 7", "offset = 7)", "", "a and", "(offset = 7) = false",
        "offset between 3 and 5 or true", "case when offset = 7 then true end", "offset = 7 is null",
        "case when true and offset = 7 and true then true else true end",
    ],
)  # fmt: skip
def test_what_is_not_understood_lets_everything_pass(condition):
    assert wanted(condition).is_everything, wanted(condition)


def test_bounds_travel_as_an_option():
    found = wanted("offset > 5 and partition in (1, 2) and topic = 'a' and written_at < '2024-02-29'")
    assert from_text(to_text(found)) == found
    for text in ("{}", "[]", "x", '{"topics": null}'):
        with pytest.raises(ValueError, match=r"no bounds|Expecting value"):
            from_text(text)


def test_the_whole_condition_or_only_a_part_is_said():
    assert understood("offset > 5 and key = 'a'").is_whole
    assert understood("key = 'a'").comparisons == (Comparison("key", "=", "a"),)
    assert not understood("offset > 5 and upper(key) = 'A'").is_whole
    assert not understood("offset > 5 or key = 'a'").is_whole
