"""How far a replay may go by now."""

import pytest

import penstock
from penstock.store.replay import Rate, Speed, Unhurried, parse_rate, parse_speed, shared

SECOND = 1_000_000_000


def test_without_a_pace_all_of_it():
    assert Unhurried().targets({0: 5, 1: 0}, {0: 9, 1: 3}, 0.0) == {0: 9, 1: 3}


def test_partitions_share_a_budget_by_what_is_left_of_them():
    assert shared({0: 0, 1: 100}, {0: 90, 1: 110}, 10) == {0: 9, 1: 101}
    assert shared({0: 0, 1: 0, 2: 5}, {0: 1, 1: 1, 2: 5}, 1) == {0: 1, 1: 0, 2: 5}
    assert shared({0: 3}, {0: 8}, 100) == {0: 8}
    assert shared({0: 3, 1: 4}, {0: 8, 1: 9}, -5) == {0: 3, 1: 4}
    assert shared({0: 3}, {0: 3}, 5) == {0: 3}


def test_a_rate_counts_from_the_beginning_of_the_run():
    pace = Rate(100.0, {0: 50, 1: 0})
    assert pace.targets({0: 50, 1: 0}, {0: 1050, 1: 1000}, 0.0) == {0: 50, 1: 0}
    assert pace.targets({0: 50, 1: 0}, {0: 1050, 1: 1000}, 1.0) == {0: 100, 1: 50}
    assert pace.targets({0: 100, 1: 50}, {0: 1050, 1: 1000}, 1.0) == {0: 100, 1: 50}


def test_a_speed_follows_the_times_of_writing():
    written = {0: [10, 11, 12, 20], 1: [10, 15]}

    def offset_at(number: int, moment: int) -> int:
        return sum(second * SECOND < moment for second in written[number])

    pace = Speed(2.0, 10 * SECOND, offset_at)
    ends = {0: 4, 1: 2}
    assert pace.targets({0: 0, 1: 0}, ends, 0.0) == {0: 1, 1: 1}
    assert pace.targets({0: 1, 1: 1}, ends, 1.0) == {0: 3, 1: 1}
    assert pace.targets({0: 3, 1: 1}, ends, 2.5) == {0: 3, 1: 2}
    assert pace.targets({0: 3, 1: 1}, {0: 3, 1: 2}, 60) == {0: 3, 1: 2}


def test_rates_and_speeds_as_they_are_typed():
    assert (parse_rate("500/s"), parse_rate("2.5"), parse_speed("10x"), parse_speed("0.5")) == (
        500,
        2.5,
        10,
        0.5,
    )
    for parse, text in ((parse_rate, "fast"), (parse_rate, "0/s"), (parse_speed, "-1"), (parse_speed, "")):
        with pytest.raises(penstock.InvalidOption, match="not a number above 0"):
            parse(text)
