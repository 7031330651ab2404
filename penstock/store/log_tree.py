"""The partition tree of a topic as its logs tell it: from births and seals alone.

For `penstock repair`, where `state.db` and perhaps the topic's own file are lost or older than the logs.
"""

from __future__ import annotations

import os
from contextlib import closing
from typing import NamedTuple

from penstock.clock import Clock
from penstock.files import Files
from penstock.log.folder import Folder
from penstock.log.lineage import Birth, Seal, read_birth, read_seal
from penstock.log.recovery import survey
from penstock.partition_tree import PartitionTree


class ToldPartition(NamedTuple):
    """What one log tells of its partition."""

    birth: Birth | None
    seal: Seal | None
    has_messages: bool


def told_tree(parts: str, files: Files, known: PartitionTree | None) -> PartitionTree:
    """The tree that is known, with what the logs tell besides; None known: from the logs alone.

    A split counts when its seal is there. A partition that was added beside another one counts when somebody
    wrote to it: until then its donor can have the keys back.
    """
    told = {
        int(name): _told(os.path.join(parts, name), int(name), files)
        for name in sorted(files.listdir(parts))
        if name.isdecimal()
    }
    roots = [number for number, each in told.items() if each.birth is None]
    tree = known or PartitionTree.equal(max(roots, default=0) + 1)
    for number, each in sorted(told.items()):
        if number in tree or each.birth is None:
            continue
        for parent, gate in each.birth.parents.items():
            if not tree.is_active(parent):
                continue
            seal = told[parent].seal if parent in told else None
            if seal is not None and number in seal.children:
                tree = tree.split(parent, seal.cut, seal.children, gate)
            elif each.has_messages:
                tree = tree.grown(parent, number, gate, at=each.birth.low)
    return tree


def _told(path: str, number: int, files: Files) -> ToldPartition:
    folder = Folder(path, topic_id=0, partition=number, files=files, clock=Clock(), read_only=True)
    with closing(folder):
        return ToldPartition(read_birth(folder), read_seal(folder), _has_messages(folder))


def _has_messages(folder: Folder) -> bool:
    """Whether anything was ever written to a partition: a later segment says so, or a frame of the first."""
    bases = folder.segments()
    if not bases or bases[-1] > 0:
        return bool(bases)
    fd = folder.files.open(folder.segment_path(0), write=False)
    try:
        return survey(folder.files.pread(fd, folder.files.size(fd), 0), 0).next > 0
    finally:
        folder.files.close(fd)
