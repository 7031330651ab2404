"""Which partitions of a topic may be read: parents before their children. Plain functions, no files.

A partition that took its range from others has gates: it opens to whoever is done with each of those up to an
offset, and with all that those had to wait for themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from penstock.partition_tree import PartitionTree

#: Whether a partition, by its number, was passed up to an offset; one that is gone mostly was.
Passed = Callable[[int, int], bool]


def is_open(tree: PartitionTree, partition: int, passed: Passed) -> bool:
    """Whether all that comes before a partition was passed."""
    left, seen = [partition], {partition}
    while left:
        for parent, gate in tree.row(left.pop()).gates.items():
            if parent not in tree:
                continue
            if not passed(parent, gate):
                return False
            if parent not in seen:
                seen.add(parent)
                left.append(parent)
    return True


def shut(tree: PartitionTree, passed: Passed) -> dict[int, int]:
    """The partitions that are not open, each with the first one that has to be passed before it."""
    found: dict[int, int] = {}
    for row in tree:  # by number: parents come first
        for parent, gate in sorted(row.gates.items()):
            first = found.get(parent)
            if first is None and parent in tree:
                first = None if passed(parent, gate) else parent
            if first is not None:
                found[row.partition] = first
                break
    return {number: first for number, first in found.items() if tree.row(number).state != "removed"}


def drained(tree: PartitionTree, passed: Passed) -> set[int]:
    """The partitions that were split and have nothing left to read."""
    return {
        row.partition
        for row in tree
        if row.state == "inactive" and row.end is not None and passed(row.partition, row.end)
    }


class Readable(NamedTuple):
    """The partitions of a topic as the members of a consumer share them."""

    #: Those that can be read now: these are shared out.
    shared: frozenset[int]
    #: Those that open later, each with the one whose reader has them until then.
    shut: Mapping[int, int]
    #: Those that are drained, but for messages that wait for another attempt: any member has them.
    waiting: frozenset[int]

    def extra(self, mine: Collection[int]) -> set[int]:
        """What a member that has these should have besides its share."""
        return {number for number, first in self.shut.items() if first in mine} | self.waiting


def readable(tree: PartitionTree, passed: Passed, waits: Callable[[int], bool]) -> Readable:
    """What can be read, by what the consumer has committed; `waits` says where messages are tried again."""
    closed, done = shut(tree, passed), drained(tree, passed)
    return Readable(
        frozenset(number for number in tree.numbers if number not in closed and number not in done),
        closed,
        frozenset(filter(waits, done)),
    )
