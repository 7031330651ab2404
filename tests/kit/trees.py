"""The door to the partition tree, the rows it is kept as, and layouts as splits leave them."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import penstock
from penstock.locks import hold
from penstock.partition_tree import HASHES, PartitionRow, PartitionTree, hash_of
from penstock.state.partitions import save_rows, stored_rows, tree_of
from penstock.topic.open_topic import OpenTopic
from penstock.topic.routing import by_range, tree_places

__all__ = [
    "HASHES",
    "PartitionRow",
    "PartitionTree",
    "by_range",
    "hash_of",
    "remove_row",
    "split_rows",
    "stored_rows",
    "tree_of",
    "tree_places",
]


def split_rows(path: Path, name: str, partition: int, at: int | None = None) -> tuple[int, int]:
    """Have a topic's rows say that a partition was split; its children, which can be written to."""
    children = (0, 0)

    def split(topic: OpenTopic) -> PartitionTree:
        nonlocal children
        tree, end = topic.tree, topic.log(partition).stored().end
        first = tree.rows[-1].partition + 1
        children = first, first + 1
        return tree.split(partition, tree.cut(partition, at), children, end)

    _change(path, name, split)
    return children


def remove_row(path: Path, name: str, partition: int) -> None:
    """Have a topic's rows say that a split partition is gone."""
    _change(path, name, lambda topic: topic.tree.without(partition))


def _change(path: Path, name: str, change: Callable[[OpenTopic], PartitionTree]) -> None:
    with penstock.open(path) as store:
        topic = store.topic(name).open_topic
        topic.refresh()
        tree, topic_id = change(topic), topic.record.id
        with topic.topics.partitions._database.transaction() as connection:
            save_rows(connection, topic_id, tree)
            connection.execute("UPDATE topics SET tree = tree + 1 WHERE id = ?", (topic_id,))
        topic.refresh()
        for log in topic.logs():
            hold((log.folder.append,), partial(log.appender.publish_tree, topic.record.tree))
