"""The partition tree through any history of splits and additions (S001-13, S001-24)."""

from __future__ import annotations

import pickle
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DataError, InvalidOption
from tests.kit.trees import (
    HASHES,
    PartitionRow,
    PartitionTree,
    by_range,
    hash_of,
    stored_rows,
    tree_of,
    tree_places,
)

#: How many partitions there are at first; then for each step whether it splits, which one, and where.
HISTORIES = st.tuples(
    st.integers(1, 9),
    st.lists(st.tuples(st.booleans(), st.integers(0, 999), st.floats(0, 1)), max_size=30),
)


def grown(history: tuple[int, list[tuple[bool, int, float]]]) -> list[PartitionTree]:
    """The trees of a history, one after another."""
    count, steps = history
    trees = [PartitionTree.equal(count)]
    for splits, which, where in steps:
        tree, number = trees[-1], trees[-1].rows[-1].partition + 1
        if splits:
            parent = tree.active[which % len(tree.active)]
            row = tree.row(parent)
            if row.width > 1:
                at = row.low + 1 + int(where * (row.width - 2))
                trees.append(tree.split(parent, tree.cut(parent, at), (number, number + 1), end=which))
        else:
            trees.append(tree.grown(tree.widest(), number, end=which))
    return trees


@given(HISTORIES)
def test_active_ranges_tile_all_hashes_and_numbers_ascend(history):
    for tree in grown(history):
        rows = sorted((tree.row(number) for number in tree.active), key=lambda row: row.low)
        assert [row.low for row in rows] == [0, *(row.high for row in rows[:-1])]
        assert rows[-1].high == HASHES
        assert all(parent < row.partition for row in tree for parent in row.parents)
        assert len({row.partition for row in tree}) == len(tree.rows)
        assert set(tree.active) <= set(tree.numbers)


@given(HISTORIES, st.lists(st.binary(max_size=12), min_size=1, max_size=40))
def test_a_key_leaves_a_partition_only_for_one_that_came_from_it(history, keys):
    trees = grown(history)
    for before, after in pairwise(trees):
        for key in keys:
            was, now = before.find(hash_of(key)), after.find(hash_of(key))
            assert now == was or was in after.row(now).parents


@given(HISTORIES, st.lists(st.binary(max_size=12), min_size=1, max_size=40))
def test_columns_of_keys_and_single_keys_go_the_same_way(history, keys):
    tree = grown(history)[-1]
    found = [tree.active[place] for place in tree_places(keys, tree)]
    assert found == [tree.find(hash_of(key)) for key in keys]


@given(HISTORIES, st.binary(max_size=12), st.text(max_size=5))
def test_what_was_meant_for_a_split_partition_goes_to_one_that_came_from_it(history, key, producer):
    tree = grown(history)[-1]
    for row in tree:
        for found in (
            tree.descend(row.partition, hash_of(key)),
            tree.descend_pair(row.partition, producer, "g"),
        ):
            assert tree.is_active(found)
            ancestors = {each.partition for each in tree.ancestors(found)}
            assert found == row.partition or row.partition in ancestors


@given(HISTORIES)
def test_rows_are_kept_and_read_again(history):
    tree = grown(history)[-1]
    rows = stored_rows(tree)
    assert (tree_of(rows, {}) if rows else PartitionTree.equal(history[0])) == tree
    assert pickle.loads(pickle.dumps(tree)) == tree


@given(st.binary(max_size=20), st.integers(1, 4096))
def test_equal_ranges_are_those_that_topics_always_had(key, count):
    assert PartitionTree.equal(count).find(hash_of(key)) == by_range(key, count)


def test_a_parent_that_never_held_a_message_hands_its_gates_on():
    tree = PartitionTree.equal(1).split(0, 2**31, (1, 2), end=7).split(1, 2**30, (3, 4), end=0)
    assert tree.gates(2) == {0: 7}
    assert tree.gates(3) == {1: 0, 0: 7}


def test_a_removed_parent_stops_nobody_and_is_not_listed():
    tree = PartitionTree.equal(1).split(0, 2**31, (1, 2), end=7).without(0)
    assert (tree.gates(1), tree.numbers, 0 in tree) == ({}, (1, 2), True)
    assert tree.row(0).children == (1, 2)


@pytest.mark.parametrize(
    ("rows", "hash_named"),
    [
        ([PartitionRow(0, "active", 0, 5)], "from 5 on"),
        ([PartitionRow(0, "active", 0, 5), PartitionRow(1, "active", 6, HASHES)], "hash 5"),
        ([PartitionRow(0, "active", 0, 7), PartitionRow(1, "active", 6, HASHES)], "hash 6"),
    ],
)
def test_ranges_that_leave_a_gap_or_overlap_are_refused(rows, hash_named):
    with pytest.raises(DataError, match=hash_named):
        PartitionTree(rows)


@pytest.mark.parametrize("at", [0, 2**31, -1, HASHES, 2**31 + 1])
def test_a_partition_is_divided_inside_its_range_only(at):
    with pytest.raises(InvalidOption, match=f"divided at {at}"):
        PartitionTree.equal(2).cut(0, at)


def test_a_range_of_one_hash_is_not_divided():
    tree = PartitionTree.equal(1).split(0, 1, (1, 2), end=0)
    with pytest.raises(InvalidOption, match="one hash"):
        tree.cut(1, None)
