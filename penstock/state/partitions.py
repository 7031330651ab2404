"""The partitions of topics as `state.db` keeps them, and the splits that were begun.

A topic has no rows here until its partitions change for the first time: until then it has as many as its
options say, with equal ranges.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from penstock.errors import DataError, InvalidOption, TopicReplaced
from penstock.parse import PARTITIONS_MAX
from penstock.partition_tree import PartitionRow, PartitionTree, RowState, with_children
from penstock.state.database import Database

#: (partition, state, low, high, {parent: gate}, end), as a topic's folder keeps it.
StoredRow = tuple[int, RowState, int, int, dict[int, int], int | None]
Gates = dict[int, dict[int, int]]


class BegunSplit(NamedTuple):
    """A split whose children have their numbers; the seal in the parent's log makes it true."""

    parent: int
    low_child: int
    high_child: int
    #: The first hash of the upper child.
    cut: int

    @property
    def children(self) -> tuple[int, int]:
        """The numbers of both children."""
        return self.low_child, self.high_child


class PartitionRows:
    """The rows of all topics of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database
        #: (topic, its tree's number, partitions by its options) → its tree. Each change has another number.
        self._read: dict[int, tuple[tuple[int, int], PartitionTree]] = {}

    def tree(self, topic_id: int, number: int, partitions: int) -> PartitionTree | None:
        """The partitions of a topic at the `number` of its tree; None when that has changed meanwhile."""
        known = self._read.get(topic_id)
        if known is not None and known[0] == (number, partitions):
            return known[1]
        tree = self._load(topic_id, partitions)
        now = self._database.row("SELECT tree FROM topics WHERE id = ?", (topic_id,))
        if now is not None and now[0] != number:
            return None
        self._read[topic_id] = (number, partitions), tree
        return tree

    def forget(self, topic_id: int) -> None:
        """Read a topic's rows again when they are asked for."""
        self._read.pop(topic_id, None)

    def gates_before_rows(self, topic_id: int) -> Gates:
        """Gates of partitions that were added when keys still moved between all of them."""
        found: Gates = {}
        rows = self._database.rows(
            "SELECT partition, parent, offset FROM gates WHERE topic_id = ?", (topic_id,)
        )
        for partition, parent, offset in rows:
            found.setdefault(partition, {})[parent] = offset
        return found

    def begun(self, topic_id: int) -> list[BegunSplit]:
        """Splits that were begun and are not yet in the rows."""
        if not self._has_rows():
            return []
        rows = self._database.rows(
            "SELECT parent, low_child, high_child, cut FROM splits WHERE topic_id = ? ORDER BY parent",
            (topic_id,),
        )
        return [BegunSplit(*row) for row in rows]

    # Changes. Each is on disk when it returns.

    def begin_split(self, topic_id: int, parent: int, at: int | None, most: int | None) -> BegunSplit | None:
        """Give a split's children their numbers; one that was begun before keeps those it has.

        It is to be divided at a hash, or in the middle. None when the parent is no longer active, or when
        there would be more than `most` active partitions.
        """
        with self._database.transaction() as connection:
            tree, begun = self._now(connection, topic_id), self.begun(topic_id)
            for each in begun:
                if each.parent == parent:
                    return each
            if not tree.is_active(parent) or (most is not None and len(tree.active) + len(begun) >= most):
                return None
            first = next_number(tree, begun, 2)
            split = BegunSplit(parent, first, first + 1, tree.cut(parent, at))
            connection.execute("INSERT INTO splits VALUES (?, ?, ?, ?, ?)", (topic_id, *split))
            return split

    def finish_split(self, topic_id: int, split: BegunSplit, end: int) -> None:
        """Let the rows say what the parent's seal made true; nothing where they say so already."""
        with self._database.transaction() as connection:
            tree = self._now(connection, topic_id)
            connection.execute(
                "DELETE FROM splits WHERE topic_id = ? AND parent = ?", (topic_id, split.parent)
            )
            if tree.is_active(split.parent):
                after = tree.split(split.parent, split.cut, split.children, end)
                _change(connection, topic_id, after, (split.parent, *split.children))

    def remove(self, topic_id: int, partition: int) -> None:
        """Let the row of a split partition say that it is empty for good and has no folder."""
        with self._database.transaction() as connection:
            tree = self._now(connection, topic_id)
            if partition in tree and tree.row(partition).state == "inactive":
                _change(connection, topic_id, tree.without(partition), (partition,))

    def _now(self, connection: sqlite3.Connection, topic_id: int) -> PartitionTree:
        """The tree as it is in the transaction of a change."""
        row = connection.execute("SELECT options FROM topics WHERE id = ?", (topic_id,)).fetchone()
        if row is None:
            raise TopicReplaced("the topic was dropped", hint="open it anew by its name")
        return self._load(topic_id, int(json.loads(row[0])["partitions"]))

    def _load(self, topic_id: int, partitions: int) -> PartitionTree:
        gates = self.gates_before_rows(topic_id)
        rows = []
        if self._has_rows():
            rows = self._database.rows(
                "SELECT partition, state, low, high, parents, stop FROM partitions WHERE topic_id = ?",
                (topic_id,),
            )
        if not rows:
            return PartitionTree.equal(partitions, gates)
        return tree_of(((*row[:4], _parents(row[4]), row[5]) for row in rows), gates)

    def _has_rows(self) -> bool:
        """Whether the store's format has them; only a store that may not be written to may lack them."""
        return self._database.has_table("partitions")


def tree_of(rows: Iterable[StoredRow], gates: Mapping[int, Mapping[int, int]]) -> PartitionTree:
    """The tree of rows as they are kept; `gates` are those of partitions added before there were rows."""
    made = [
        PartitionRow(
            number, state, low, high, tuple(sorted(parents)), (), parents or gates.get(number, {}), end
        )
        for number, state, low, high, parents, end in rows
    ]
    return PartitionTree(with_children(made))


def stored_rows(tree: PartitionTree) -> list[StoredRow]:
    """The rows of a tree as they are kept; none for one that its topic's options tell."""
    if tree.even and not any(row.parents for row in tree):
        return []
    return [
        (row.partition, row.state, row.low, row.high, _own_gates(row), row.end) for row in tree
    ]  # fmt: skip


def save_rows(
    connection: sqlite3.Connection, topic_id: int, tree: PartitionTree, changed: Iterable[int] = ()
) -> None:
    """Keep the rows of a topic, or those that changed, in a transaction of the caller's."""
    there = "SELECT 1 FROM partitions WHERE topic_id = ? LIMIT 1"
    chosen = set(changed) if connection.execute(there, (topic_id,)).fetchone() is not None else None
    connection.executemany(
        "INSERT OR REPLACE INTO partitions VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (topic_id, number, state, low, high, json.dumps(parents), end)
            for number, state, low, high, parents, end in stored_rows(tree)
            if not chosen or number in chosen
        ],
    )


def _change(
    connection: sqlite3.Connection, topic_id: int, tree: PartitionTree, changed: Iterable[int]
) -> None:
    """Keep rows that changed, under the next number of the tree."""
    save_rows(connection, topic_id, tree, changed)
    connection.execute("UPDATE topics SET tree = tree + 1 WHERE id = ?", (topic_id,))


def next_number(tree: PartitionTree, begun: Sequence[BegunSplit], count: int) -> int:
    """The first of `count` numbers that no partition ever had."""
    used = [tree.rows[-1].partition, *(each.high_child for each in begun)]
    first = max(used) + 1
    if first + count > PARTITIONS_MAX:
        raise InvalidOption(
            f"no more than {PARTITIONS_MAX} partitions can be made in a topic's life",
            hint="create a topic anew and copy the messages",
        )
    return first


def _own_gates(row: PartitionRow) -> dict[int, int]:
    """A row's gates on its parents; those from before there were rows are kept in their own table."""
    return {parent: row.gates[parent] for parent in row.parents}


def _parents(text: str) -> dict[int, int]:
    try:
        return {int(parent): int(offset) for parent, offset in json.loads(text).items()}
    except (ValueError, AttributeError) as error:
        raise DataError(
            f"state.db: a partition's parents cannot be understood: {error}",
            hint="penstock repair takes them from the topic's folder",
        ) from error
