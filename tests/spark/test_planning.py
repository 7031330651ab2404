"""How a topic is divided among tasks: plain functions, no Spark."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.slices import (
    TASK_BYTES_LEAST,
    TASK_BYTES_MOST,
    SegmentRange,
    Slice,
    bundled,
    divided,
    range_bytes,
    reach,
    task_bytes,
)
from tests.kit.values import MIB


def whole(*segments: tuple[int, int], start: int = 0, stop: int | None = None, partition: int = 0) -> Slice:
    """A partition with segments of (messages, bytes)."""
    pieces, base = [], 0
    for messages, size in segments:
        pieces.append(SegmentRange(base, base + messages, size))
        base += messages
    return Slice("s", "s/p", "orders", 7, partition, start, base if stop is None else stop, tuple(pieces))


def ranges(slices: list[Slice]) -> list[tuple[int, int]]:
    return [(each.start, each.stop) for each in slices]


def test_small_topic_is_one_task_a_partition():
    planned = divided([whole((100, MIB)), whole((50, MIB), partition=1)])
    assert [(each.partition, each.start, each.stop) for each in planned] == [(0, 0, 100), (1, 0, 50)]


def test_empty_range_needs_no_task():
    assert divided([whole((100, MIB), start=40, stop=40)]) == []
    assert divided([whole()]) == []


def test_neighbouring_segments_share_a_task_up_to_its_size():
    planned = divided([whole(*[(10, 25 * MIB)] * 5)])
    assert ranges(planned) == [(0, 20), (20, 40), (40, 50)]
    assert [[piece.base for piece in each.pieces] for each in planned] == [[0, 10], [20, 30], [40]]


def test_large_segment_is_divided_by_offsets():
    planned = divided([whole((1000, 640 * MIB))])
    assert len(planned) == 10
    assert ranges(planned)[0] == (0, 100)
    assert all(each.pieces == planned[0].pieces for each in planned)


def test_segment_of_few_large_messages_has_no_more_tasks_than_messages():
    assert ranges(divided([whole((2, 640 * MIB))])) == [(0, 1), (1, 2)]


def test_range_within_segments_names_only_those_it_touches():
    planned = divided([whole((10, MIB), (10, MIB), (10, MIB), start=12, stop=17)])
    assert ranges(planned) == [(12, 17)]
    assert [piece.base for piece in planned[0].pieces] == [10]


def test_tasks_grow_with_the_topic_between_their_limits():
    assert task_bytes(0) == task_bytes(100 * MIB) == TASK_BYTES_LEAST
    assert TASK_BYTES_LEAST < task_bytes(4000 * MIB) < TASK_BYTES_MOST
    assert task_bytes(10**15) == TASK_BYTES_MOST


def test_few_cores_get_fewer_and_larger_tasks():
    """18.8: a task costs tens of milliseconds in Java and Python, whatever it reads."""
    assert TASK_BYTES_LEAST < task_bytes(1000 * MIB, cores=2) < TASK_BYTES_MOST
    assert task_bytes(1000 * MIB, cores=64) == TASK_BYTES_LEAST
    assert task_bytes(100 * MIB, cores=1) == TASK_BYTES_LEAST
    assert task_bytes(10**15, cores=64) == TASK_BYTES_MOST


def test_least_number_of_tasks_is_reached_where_there_are_enough_messages():
    small, large = whole((10, MIB)), whole((90, MIB), partition=1)
    assert [each.partition for each in divided([small, large], 4)] == [0, 1, 1, 1]
    assert len(divided([small, large], 50)) == 50
    assert len(divided([small, large], 1000)) == 100
    assert len(divided([small, large], 1)) == 2
    assert divided([whole()], 8) == []


SEGMENTS = st.lists(st.tuples(st.integers(1, 1000), st.integers(64, 2048 * MIB)), min_size=1, max_size=30)


@given(segments=SEGMENTS, data=st.data())
def test_budget_of_bytes_reaches_at_least_one_message_and_never_beyond(segments, data):
    planned = whole(*segments)
    start = data.draw(st.integers(0, planned.stop - 1))
    stop = data.draw(st.integers(start + 1, planned.stop))
    total = range_bytes(planned.pieces, start, stop)
    budget = data.draw(st.integers(1, max(total, 1) + 10))
    reached = reach(planned.pieces, start, stop, budget)
    assert start < reached <= stop
    assert reached == start + 1 or range_bytes(planned.pieces, start, reached) <= budget
    assert reach(planned.pieces, start, stop, total) == stop


@given(segments=SEGMENTS, least=st.integers(0, 60), data=st.data())
def test_every_offset_of_the_range_is_in_one_slice_and_in_order(segments, least, data):
    end = sum(messages for messages, _ in segments)
    start = data.draw(st.integers(0, end))
    stop = data.draw(st.integers(start, end))
    planned = divided([whole(*segments, start=start, stop=stop)], least)
    assert len(planned) >= min(least, stop - start)
    assert [offset for each in planned for offset in range(each.start, each.stop)] == list(range(start, stop))
    for each in planned:
        assert each.pieces[0].base <= each.start < each.pieces[0].stop
        assert each.pieces[-1].base < each.stop <= each.pieces[-1].stop
        assert all(one.stop == other.base for one, other in pairwise(each.pieces))


@pytest.mark.parametrize("size", [MIB, 64 * MIB, 100 * MIB, 300 * MIB, 2000 * MIB])
def test_no_task_is_much_larger_than_wanted(size):
    planned = divided([whole(*[(1000, size)] * 8)])
    target = task_bytes(8 * size)
    for each in planned:
        share = (each.stop - each.start) / 1000 * size
        assert share <= 1.5 * target


@given(st.lists(st.integers(1, 400 * MIB), max_size=300), st.integers(0, 100))
def test_bundles_hold_each_slice_once_in_order_and_are_not_many(sizes, least):
    """18.11: a topic of a thousand small partitions is not a thousand tasks."""
    slices = [whole((10, size), partition=number) for number, size in enumerate(sizes)]
    found = bundled(slices, least)
    assert [each for bundle in found for each in bundle] == slices
    assert all(found)
    assert len(found) == min(len(slices), max(64, least)) or 0.5 * max(64, least) < len(found)
    assert len(found) <= max(64, least)


def test_a_thousand_partitions_are_read_by_few_tasks_of_equal_weight():
    slices = [whole((10, 40_000), partition=number) for number in range(1000)]
    found = bundled(slices)
    assert len(found) == 64
    assert max(map(len, found)) <= 16
