"""When a partition is hot (S001-26), and how long a quota is waited for (S001-13): numbers only."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log.rate_policy import RateSample, is_hot, reserved, write_rate

S = 1_000_000_000
WINDOW = 100 * S
TENTH = WINDOW // 10
SPEED = 1000


def steady(share, tenths=10, begin=0):
    """Samples a tenth apart, at a share of the speed."""
    each = int(share * SPEED * TENTH / S)
    return [RateSample(begin + place * TENTH, place * each) for place in range(tenths + 1)]


def hot(samples, percent=90, now=None):
    return is_hot(samples, samples[-1].at if now is None else now, SPEED, WINDOW, percent)


@pytest.mark.parametrize(
    ("share", "expected"), [(1.0, True), (0.9, True), (0.89, False), (5.0, True), (0, False)]
)
def test_the_whole_window_at_the_threshold_is_hot(share, expected):
    assert hot(steady(share)) is expected


def test_a_burst_cannot_split():
    """Ten windows' worth in one tenth counts as that tenth."""
    quiet = [RateSample(place * TENTH, 0) for place in range(10)]
    assert not hot([*quiet, RateSample(10 * TENTH, 10 * SPEED * 100)])


def test_a_burst_before_a_pause_cannot_split():
    """The next append takes the sample; nobody wrote in between."""
    assert not hot([RateSample(0, 0), RateSample(10 * TENTH, 10 * SPEED * 100)])


@pytest.mark.parametrize("idle", range(10))
def test_one_idle_tenth_is_forgiven_and_two_are_not(idle):
    def with_idle(*places):
        samples, total = [RateSample(0, 0)], 0
        for place in range(10):
            total += 0 if place in places else SPEED * 10
            samples.append(RateSample((place + 1) * TENTH, total))
        return samples

    assert hot(with_idle(idle))
    assert not hot(with_idle(idle, (idle + 1) % 10))
    assert not hot(with_idle(idle), percent=100)


def test_a_part_of_the_window_is_not_enough():
    """Children begin with no samples."""
    assert not hot(steady(1.0, tenths=8))
    assert not hot([RateSample(0, 10**9)])
    assert not is_hot([], 0, SPEED, WINDOW, 90)


def test_samples_that_come_a_little_late_make_no_difference():
    samples = [RateSample(int(place * TENTH * 1.4), int(place * 1.4 * SPEED * 10)) for place in range(11)]
    assert hot(samples)


def test_what_was_before_the_window_does_not_count():
    samples = steady(1.0)
    assert not hot(samples, now=samples[-1].at + 3 * TENTH)


def test_the_rate_is_that_of_the_window():
    assert write_rate(steady(0.5), 10 * TENTH, WINDOW) == pytest.approx(500)
    assert write_rate(steady(0.5, tenths=3), 3 * TENTH, WINDOW) == pytest.approx(500)
    assert write_rate([], 0, WINDOW) is None
    assert write_rate([RateSample(5, 7)], 5, WINDOW) is None


def test_more_than_a_burst_at_once_passes_and_those_behind_it_wait():
    """Else it could never be written within a timeout."""
    arrival, wait = reserved(0, 100 * S, 5000, SPEED, 1000)
    assert wait == 0
    arrival, wait = reserved(arrival, 100 * S, 5000, SPEED, 1000)
    assert wait == 5 * S
    assert reserved(arrival, 100 * S, 0, SPEED, 1000)[1] == 9 * S


def test_a_burst_passes_and_then_the_speed_holds():
    arrival, waits = 0, []
    for _ in range(5):
        arrival, wait = reserved(arrival, 100 * S, 500, SPEED, 1000)
        waits.append(wait / S)
    assert waits == [0, 0, 0.5, 1.0, 1.5]


@given(
    st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 3 * S)), min_size=1, max_size=50),
    st.integers(1, 10_000),
    st.integers(1, 10_000),
)
def test_no_span_of_time_has_more_than_the_speed_and_a_burst(writes, speed, burst):
    """Whoever waits as told: bytes written by any moment stay below burst and speed since the beginning."""
    arrival, now, total, begun = 0, 0, 0, 0
    for size, pause in writes:
        now += pause
        arrival, wait = reserved(arrival, now, size, speed, burst)
        now += wait
        total += size
        rounding = len(writes) * speed / S + 1
        assert total <= max(burst, size) + speed * (now - begun) / S + rounding
