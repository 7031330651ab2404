"""The rules by which members share partitions, alone: quotas add up, and moves end in balance."""

from hypothesis import given
from hypothesis import strategies as st

from tests.kit.consumers import FREE_TOO_LONG_S, moves, quota

counts = st.integers(0, 60)
members = st.integers(1, 20)


@given(counts, members)
def test_quotas_add_up_and_differ_by_one_at_most(partitions, members):
    shares = [quota(partitions, members, rank) for rank in range(members)]
    assert sum(shares) == partitions
    assert max(shares) - min(shares) <= 1
    assert shares == sorted(shares, reverse=True), "the first few have one more"


@given(st.data(), st.dictionaries(st.integers(0, 30), st.booleans()), st.integers(0, 30))
def test_a_member_never_gives_below_its_quota_nor_takes_above_it(data, held, allowed):
    others = [number for number in range(31) if number not in held]
    free = data.draw(st.dictionaries(st.sampled_from(others), st.floats(0, 4.9))) if others else {}
    leaving = data.draw(st.sets(st.sampled_from(sorted(held)))) if held else set()
    take, give = moves(allowed, held, free, leaving)
    assert set(take) <= set(free)
    assert set(give) <= set(held)
    assert len(give) == max(0, len(held) - allowed)
    assert len(take) == min(len(free), max(0, allowed - len(held)))


@given(st.dictionaries(st.integers(0, 30), st.booleans(), min_size=1), st.integers(0, 30), st.data())
def test_idle_partitions_go_before_busy_ones_and_choices_stay(held, allowed, data):
    leaving = data.draw(st.sets(st.sampled_from(sorted(held)), max_size=max(0, len(held) - allowed)))
    _, give = moves(allowed, held, {}, leaving)
    assert leaving <= set(give) or not give, "what is on its way stays so"
    if any(not held[number] for number in set(give) - leaving):
        assert all(not held[number] for number in set(held) - set(give) - leaving), "no idle one was kept"


def test_what_nobody_takes_for_long_is_taken_over_quota():
    take, give = moves(1, {0: True}, {1: FREE_TOO_LONG_S, 2: 0.5}, ())
    assert (take, give) == ([1], [])


@given(st.integers(1, 40), st.lists(st.sampled_from(["join", "leave"]), max_size=12))
def test_members_that_only_follow_the_rules_end_in_balance(partitions, story):
    """Each acts by itself, one after the other, on what it sees; nobody holds what another holds."""
    held = {0: set()}
    for step, event in enumerate(story):
        if event == "join":
            held[step + 1] = set()
        elif len(held) > 1:
            del held[min(held)]
        for _ in range(3):
            for rank, number in enumerate(sorted(held)):
                taken = set().union(*held.values())
                free = dict.fromkeys(set(range(partitions)) - taken, 0.0)
                allowed = quota(partitions, len(held), rank)
                take, give = moves(allowed, dict.fromkeys(held[number], True), free, ())
                held[number] = (held[number] | set(take)) - set(give)
        sizes = [len(numbers) for numbers in held.values()]
        assert sum(sizes) == len(set().union(*held.values())) == partitions
        assert max(sizes) - min(sizes) <= 1
