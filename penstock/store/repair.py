"""Repair a store: take back topics that `state.db` forgot, or rebuild a `state.db` that cannot be read.

A repair begins as a plan: `plan_repair` looks and changes nothing. Each `RepairStep` says what is wrong, what
will be done, and what is lost for good. `apply_repair` carries the steps out while no other process has the
store open. Nothing is deleted: a damaged `state.db` is moved aside under a name of its own.

Positions of consumers, bindings and positions of streams live in `state.db` alone: where it is lost, so are
they. Damaged bytes in a log need no repair: `verify` names them, and the messages around them can be read.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import NamedTuple

from penstock.clock import Clock
from penstock.errors import Corrupt, NotAStore, PenstockError, UnknownFormat
from penstock.files import Files
from penstock.log.folder import Folder
from penstock.log.lineage import Birth, Seal, read_birth, read_seal
from penstock.log.recovery import survey
from penstock.log.segment import SEGMENT_HEADER_BYTES, parse_head
from penstock.options import TopicOptions
from penstock.partition_tree import PartitionTree
from penstock.state.consumers import Consumers
from penstock.state.database import Database
from penstock.state.partitions import StoredRow, stored_rows, tree_of
from penstock.state.topics import ForgottenRow, Topics
from penstock.store.ownership import Ownership
from penstock.topic.identity import TopicIdentity, holds_messages, is_dropped, load_identity

_STATE = "state.db"
_WITH_IT = ("", "-wal", "-shm")


class RepairStep(NamedTuple):
    """One thing to repair."""

    #: The file or folder it is about, relative to the store.
    path: str
    what: str
    doing: str
    #: What cannot be brought back; empty when nothing is lost.
    lost: str
    apply: Callable[[Database], None]


class RepairPlan(NamedTuple):
    """What is to be repaired, in order; empty when nothing is."""

    path: str
    rebuild: bool
    steps: tuple[RepairStep, ...]


def plan_repair(path: str | os.PathLike[str], files: Files | None = None) -> RepairPlan:
    """Find out what a repair would do. Nothing is changed."""
    files, root = files or Files(), os.path.abspath(path)
    if not files.exists(os.path.join(root, _STATE)) and not files.exists(os.path.join(root, "topics")):
        raise NotAStore(f"there is no store in {root}")
    trouble = _unreadable(root, files)
    if trouble is not None:
        first = RepairStep(
            _STATE, f"state.db cannot be read: {trouble}",
            "move it aside and make a new one from the topics' own folders",
            "positions of consumers, bindings of producers, positions of streams, pipelines", _nothing,
        )  # fmt: skip
        folders = tuple(_taken_back(root, name, files) for name in _topic_folders(root, files))
        return RepairPlan(root, True, (first, *folders))
    with closing(Database(os.path.join(root, _STATE), files, create=False, read_only=True)) as database:
        return RepairPlan(root, False, tuple(_differences(root, database, files)))


def apply_repair(plan: RepairPlan, files: Files | None = None) -> None:
    """Carry out a plan; raises `OwnedElsewhere` while another process has the store open."""
    files = files or Files()
    ownership = Ownership(plan.path, files, exclusive=True)
    try:
        state = os.path.join(plan.path, _STATE)
        if plan.rebuild:
            _move_aside(state, files)
        with closing(Database(state, files, create=True, read_only=False)) as database:
            if plan.rebuild and (known := _known_id(plan.path, files)):
                database.set_store_id(known)  # the same store: checkpoints, archives and bodies name its id
            for step in plan.steps:
                step.apply(database)
    finally:
        ownership.close()


def _unreadable(root: str, files: Files) -> str | None:
    """Why `state.db` cannot be used at all; None when it can."""
    path = os.path.join(root, _STATE)
    if not files.exists(path):
        return "it is missing"
    try:
        with closing(Database(path, files, create=False, read_only=True)) as database:
            Topics(database).names()
    except UnknownFormat:
        raise
    except PenstockError as error:
        return str(error.args[0])
    return None


def _differences(root: str, database: Database, files: Files) -> Iterator[RepairStep]:
    """What the folders know and the tables do not."""
    topics = Topics(database)
    if not _has_id(database):
        yield RepairStep(
            _STATE, "state.db has lost the store's id", "take it from the topics' own folders", "",
            lambda database: database.set_store_id(_known_id(root, files) or secrets.token_hex(16)),
        )  # fmt: skip
    names = set(topics.names())
    for name in _topic_folders(root, files):
        if name not in names:
            yield _taken_back(root, name, files)
            continue
        found = _identity(os.path.join(root, "topics", name), files)
        row = topics.understood(name)
        if row is None:
            yield _taken_back(root, name, files, "the options in state.db cannot be understood")
        elif found is not None and found.id == row.id and found.tree > row.tree:
            yield _taken_back(root, name, files, "state.db has forgotten partitions that were added")
    yield from _positions_beyond(root, topics, Consumers(database), files)


def _positions_beyond(root: str, topics: Topics, consumers: Consumers, files: Files) -> Iterator[RepairStep]:
    """Report rows of topics whose folder is gone: nothing can be done about them."""
    for name in topics.names():
        row = topics.understood(name)
        if row is not None and not files.exists(os.path.join(root, "topics", name)):
            stand = ", ".join(
                f"{each.consumer} at {each.position}" for each in consumers.positions(row.id) if each.position
            )
            if stand:
                yield RepairStep(
                    os.path.join("topics", name), "the topic's folder is gone",
                    "nothing: restore it from a backup", f"its messages; consumers stood at: {stand}",
                    _nothing,
                )  # fmt: skip


def _taken_back(root: str, name: str, files: Files, why: str = "") -> RepairStep:
    folder = os.path.join(root, "topics", name)
    found = _identity(folder, files)
    lost = "positions of its consumers, bindings of its producers"
    if found is None:
        found = _guessed(folder, name, files)
        lost += "; its options (retention, sync, …): the defaults are taken"
    rows = _rows(folder, found, files)
    row = ForgottenRow(
        found.id, name, found.options, found.tree, found.created, tuple(found.gates), tuple(rows)
    )
    return RepairStep(
        os.path.join("topics", name), why or "state.db has forgotten this topic",
        f"take it back with {found.options['partitions']} partitions", "" if why else lost,
        lambda database: Topics(database).take_back(row),
    )  # fmt: skip


def _rows(folder: str, found: TopicIdentity, files: Files) -> list[StoredRow]:
    """The topic's partitions as its folder knows them, with splits that only the logs tell of."""
    parts = os.path.join(folder, "parts")
    if not files.exists(parts):
        return found.rows
    known = tree_of(found.rows, {}) if found.rows else PartitionTree.equal(found.options["partitions"])
    return stored_rows(_told_tree(parts, files, known if found.store else None))


def _guessed(folder: str, name: str, files: Files) -> TopicIdentity:
    """What the segments tell of a topic whose folder has no identity."""
    parts = os.path.join(folder, "parts")
    numbers = sorted(int(each) for each in files.listdir(parts) if each.isdecimal())
    topic_id, created = _told_by_segments(parts, files)
    least = len(_told_tree(parts, files, None).active) if numbers else 1
    options = TopicOptions(partitions=least).as_dict()
    return TopicIdentity("", topic_id, name, options, 0, created, [])


def _told_by_segments(parts: str, files: Files) -> tuple[int, int]:
    for part in sorted(files.listdir(parts)):
        for each in sorted(files.listdir(os.path.join(parts, part))):
            if not each.endswith(".data"):
                continue
            fd = files.open(os.path.join(parts, part, each), write=False)
            try:
                head = parse_head(files.pread(fd, SEGMENT_HEADER_BYTES, 0))
            finally:
                files.close(fd)
            if head is not None:
                return head.topic_id, head.created
    raise Corrupt(parts, 0, "no segment has a sound header: this topic cannot be taken back")


def _identity(folder: str, files: Files) -> TopicIdentity | None:
    try:
        return load_identity(files, folder)
    except Corrupt:
        return None


def _topic_folders(root: str, files: Files) -> list[str]:
    """Folders that hold a topic's messages and were not dropped."""
    topics = os.path.join(root, "topics")
    names = sorted(files.listdir(topics)) if files.exists(topics) else []
    return [
        name
        for name in names
        if not name.startswith(".")
        and holds_messages(files, os.path.join(topics, name))
        and not is_dropped(files, os.path.join(topics, name))
    ]


def _move_aside(state: str, files: Files) -> None:
    """Keep a damaged database, with what SQLite has beside it, under a name of its own."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    for ending in _WITH_IT:
        if files.exists(state + ending):
            files.rename(state + ending, f"{state}.damaged-{stamp}{ending}")
    files.sync_dir(os.path.dirname(state))


def _has_id(database: Database) -> bool:
    try:
        return bool(database.store_id)
    except PenstockError:
        return False


def _known_id(root: str, files: Files) -> str:
    """The store's id as a topic's folder tells it; empty when none does."""
    for name in _topic_folders(root, files):
        found = _identity(os.path.join(root, "topics", name), files)
        if found is not None and found.store:
            return found.store
    return ""


def _nothing(database: Database) -> None:
    """Write nothing: the step only reports a loss."""


# The partition tree as births and seals in the logs tell it, for when `state.db` is lost or older than these.


class _ToldPartition(NamedTuple):
    """What one log tells of its partition."""

    birth: Birth | None
    seal: Seal | None
    has_messages: bool


def _told_tree(parts: str, files: Files, known: PartitionTree | None) -> PartitionTree:
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


def _told(path: str, number: int, files: Files) -> _ToldPartition:
    folder = Folder(path, topic_id=0, partition=number, files=files, clock=Clock(), read_only=True)
    with closing(folder):
        return _ToldPartition(read_birth(folder), read_seal(folder), _has_messages(folder))


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
