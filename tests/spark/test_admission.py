"""How far a micro-batch goes, in what shares, and in what order of partitions: no Spark, no files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.slices import (
    Extent,
    Loss,
    Reading,
    available,
    between,
    capped,
    is_open,
    limited_bytes,
    limited_rows,
    losses,
    moved,
    shares,
)

A, B, C = ("orders", 0), ("orders", 1), ("orders", 2)


def test_everything_new_is_available_and_a_partition_not_seen_before_begins_at_0():
    extents = {A: Extent(0, 10), B: Extent(0, 5), C: Extent(0, 0)}
    assert available({A: 4}, extents, {}) == [Reading(A, 4, 10), Reading(B, 0, 5)]


def test_position_beyond_the_end_waits():
    """A power cut may take what an unsynced topic had shown; its offsets are not given out again."""
    assert available({A: 50}, {A: Extent(0, 30)}, {}) == []
    assert moved({A: 50}, []) == {A: 50}


def test_what_retention_took_is_named_and_passed_over():
    extents = {A: Extent(7, 10), B: Extent(5, 5), C: Extent(2, 3)}
    assert losses({A: 4, B: 5}, extents, {}) == [Loss(*A, 4, 7), Loss(*C, 0, 2)]
    assert available({A: 4, B: 3}, extents, {}) == [Reading(A, 7, 10), Reading(B, 5, 5), Reading(C, 2, 3)]
    assert str(Loss(*A, 4, 7)) == "'orders' partition 0, offsets 4 to 6"


def test_child_opens_in_the_batch_after_its_parents_were_drained():
    gates = {C: {0: 10, 1: 5}}
    extents = {A: Extent(0, 12), B: Extent(0, 5), C: Extent(0, 3)}
    begin = {A: 0, B: 5}
    first = moved(begin, available(begin, extents, gates))
    assert first == {A: 12, B: 5}
    assert moved(first, available(first, extents, gates)) == {A: 12, B: 5, C: 3}


def test_child_waits_for_each_parent_and_for_parents_that_were_never_read():
    gates = {C: {0: 10, 1: 5}}
    assert not is_open(C, {A: 10, B: 4}, gates)
    assert not is_open(C, {A: 10}, gates)
    assert is_open(C, {A: 10, B: 5}, gates)
    assert is_open(A, {}, gates)


@given(st.data())
def test_no_batch_holds_both_sides_of_a_gate(data):
    """Whatever the limits: a partition added later is read only after what was there before it."""
    parents = {number: data.draw(st.integers(0, 40)) for number in range(data.draw(st.integers(1, 3)))}
    child, grandchild = ("t", len(parents)), ("t", len(parents) + 1)
    ends = {("t", n): at + data.draw(st.integers(0, 10)) for n, at in parents.items()}
    ends |= {child: data.draw(st.integers(0, 30)), grandchild: data.draw(st.integers(0, 30))}
    extents = {part: Extent(0, end) for part, end in ends.items()}
    gates = {child: parents, grandchild: {**parents, child[1]: data.draw(st.integers(0, ends[child]))}}
    begin: dict = {}
    for _ in range(1000):
        readings = limited_rows(
            available(begin, extents, gates), data.draw(st.integers(1, 50)), sum(begin.values())
        )
        end = moved(begin, readings)
        if end == begin:
            break
        for reading in between(begin, end):
            for parent, gate in gates.get(reading.part, {}).items():
                assert begin.get(("t", parent), 0) >= gate
        begin = end
    assert begin == {part: end for part, end in ends.items() if end}


@given(
    limit=st.integers(1, 500), sizes=st.lists(st.integers(0, 400), max_size=12), turn=st.integers(0, 10**6)
)
def test_shares_use_the_whole_limit_and_starve_nobody(limit, sizes, turn):
    given_out = shares(limit, dict(enumerate(sizes)), turn)
    assert sum(given_out.values()) == min(limit, sum(sizes))
    assert all(0 <= given_out[place] <= size for place, size in enumerate(sizes))
    busy = [place for place, size in enumerate(sizes) if size]
    if limit >= len(busy):
        assert all(given_out[place] for place in busy)


def test_shares_are_in_proportion():
    assert shares(1000, {"large": 9000, "small": 1000}, 0) == {"large": 900, "small": 100}


def test_with_less_than_one_each_all_have_their_turn():
    begin = dict.fromkeys([("t", n) for n in range(7)], 0)
    for _ in range(7):
        extents = {part: Extent(0, 1000) for part in begin}
        begin = moved(begin, limited_rows(available(begin, extents, {}), 2, sum(begin.values())))
    assert set(begin.values()) == {2}


@given(
    ends=st.dictionaries(
        st.tuples(st.sampled_from("ab"), st.integers(0, 3)), st.integers(0, 60), min_size=1, max_size=8
    ),
    data=st.data(),
)
def test_every_offset_comes_once_however_batches_are_cut(ends, data):
    """Positions only ever grow, batches join without gap or overlap, and the end is reached."""
    extents = {part: Extent(0, end) for part, end in ends.items()}
    begin: dict = {}
    seen: dict = {part: [] for part in ends}
    for _ in range(1000):
        rows, size = data.draw(st.one_of(st.none(), st.integers(1, 30))), data.draw(st.integers(1, 600))
        readings = limited_rows(available(begin, extents, {}), rows, sum(begin.values()))
        readings = limited_bytes(
            readings, size, sum(begin.values()),
            lambda each: 10 * (each.stop - each.start),
            lambda each, budget: min(each.stop, each.start + max(1, budget // 10)),
        )  # fmt: skip
        end = moved(begin, readings)
        if end == begin:
            break
        for part, start, stop in between(begin, end):
            seen[part] += range(start, stop)
        begin = end
    assert seen == {part: list(range(end)) for part, end in ends.items()}


def test_nothing_that_came_after_the_target_counts():
    extents = {A: Extent(0, 12), B: Extent(4, 9), C: Extent(0, 3)}
    assert capped(extents, {A: 10, B: 2}) == {A: Extent(0, 10), B: Extent(4, 4)}


@pytest.mark.parametrize("limit", [None, 100])
def test_limit_that_is_not_reached_changes_nothing(limit):
    readings = [Reading(A, 0, 50), Reading(B, 3, 10)]
    assert limited_rows(readings, limit, 3) == readings
