"""The door to the partition tree and the rows it is kept as."""

from penstock.log.lineage import read_birth, read_seal
from penstock.partition_tree import HASHES, PartitionRow, PartitionTree, hash_of, split_point
from penstock.state.partitions import stored_rows, tree_of
from penstock.topic.routing import by_range, tree_places

__all__ = [
    "HASHES",
    "PartitionRow",
    "PartitionTree",
    "by_range",
    "hash_of",
    "read_birth",
    "read_seal",
    "split_point",
    "stored_rows",
    "tree_of",
    "tree_places",
]
