"""What may be read of a split topic, and what members share: parents first, whatever the tree."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.consume.readable import drained, is_open, readable, shut
from tests.kit.trees import PartitionTree


@st.composite
def trees(draw):
    """Layouts as splits, added partitions and removed parents leave them; each partition ends at 10."""
    tree = PartitionTree.equal(draw(st.integers(1, 3)))
    for _ in range(draw(st.integers(0, 6))):
        number = tree.rows[-1].partition + 1
        if draw(st.booleans()):
            partition = draw(st.sampled_from(tree.active))
            tree = tree.split(partition, tree.cut(partition, None), (number, number + 1), 10)
        else:
            tree = tree.grown(tree.widest(), number, draw(st.integers(0, 10)))
    for row in tree:
        if row.state == "inactive" and draw(st.integers(0, 3)) == 0:
            tree = tree.without(row.partition)
    return tree


@st.composite
def standing(draw):
    """A tree, and how far each partition was read."""
    tree = draw(trees())
    at = {number: draw(st.sampled_from((0, 3, 10))) for number in tree.numbers}
    return tree, lambda number, gate: number not in at or at[number] >= gate


@given(standing())
def test_a_partition_is_shut_while_anything_above_it_is_not_passed(case):
    """S001-22, by the definition: walk up all ways."""
    tree, passed = case

    def above(number):
        for parent, gate in tree.row(number).gates.items():
            yield parent, gate
            yield from above(parent)

    closed = shut(tree, passed)
    for number in tree.numbers:
        ways = [(parent, gate) for parent, gate in above(number) if tree.row(parent).state != "removed"]
        is_shut = not all(passed(parent, gate) for parent, gate in ways)
        assert (number in closed) is is_shut
        assert is_open(tree, number, passed) is not is_shut


@given(standing())
def test_what_keeps_others_shut_can_be_read_itself(case):
    """Or nobody could ever open them."""
    tree, passed = case
    found = readable(tree, passed, lambda number: False)
    assert all(first in found.shared for first in found.shut.values())


@given(standing(), st.booleans())
def test_each_partition_is_shared_or_shut_or_drained(case, waits):
    tree, passed = case
    found, done = readable(tree, passed, lambda number: waits), drained(tree, passed)
    assert found.shared | found.shut.keys() | done == set(tree.numbers)
    assert not found.shared & (found.shut.keys() | done)
    assert found.waiting == (done if waits else set())


def test_a_member_has_what_its_partitions_keep_shut():
    tree = PartitionTree.equal(2).split(0, 2**30, (2, 3), 10).split(1, 3 * 2**30, (4, 5), 0)
    found = readable(tree, lambda number, gate: not gate, lambda number: number == 1)
    assert (found.shared, found.waiting) == ({0, 4, 5}, {1})
    assert found.extra([0]) == {1, 2, 3}
    assert found.extra([4]) == {1}
