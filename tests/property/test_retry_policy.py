"""Back-off: waits grow, stay within their limit, end after the last attempt (B003-10)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Retry
from tests.kit.values import seconds

policies = st.builds(
    lambda first, more, factor, attempts, jitter: Retry(
        first=first, factor=factor, limit=first + more, attempts=attempts, jitter=jitter
    ),
    st.floats(0.001, 3600), st.floats(0, 1e6), st.floats(1, 1000), st.integers(1, 10_000), st.floats(0, 1),
)  # fmt: skip


@given(policies, st.integers(1, 20_000), st.floats(0, 1))
def test_waits_grow_up_to_the_limit_and_jitter_only_adds(policy, attempt, chance):
    wait = policy.wait_s(attempt)
    if attempt >= policy.attempts:
        assert wait is None
        assert policy.wait_s(attempt, chance) is None
        return
    first, limit = seconds("first", policy.first), seconds("limit", policy.limit)
    assert first <= wait <= limit
    assert policy.back_off_s(attempt + 1) >= wait
    assert wait <= policy.wait_s(attempt, chance) <= wait * (1 + policy.jitter) * (1 + 1e-9)


def test_the_default_is_eight_attempts_within_about_two_minutes():
    waits = [Retry().wait_s(attempt) for attempt in range(1, 9)]
    assert waits == [1, 2, 4, 8, 16, 32, 64, None]


@pytest.mark.parametrize("attempt", [1, 10**6])
def test_a_huge_back_off_is_its_limit(attempt):
    policy = Retry(first="1s", factor=1000, limit="1h", attempts=10**6, jitter=0)
    assert policy.back_off_s(attempt) in (1, 3600)
