"""A topic's identity beside its messages: `topic.json`, from which `state.db` can be rebuilt.

    {"store": "…", "id": 7, "name": "orders", "options": {…}, "tree": 0, "created": 17…, "gates": [],
     "rows": []}
    5a0c11d2                                    CRC-32 of the line above, as eight hexadecimal digits

It is written and synced when the topic is made and with each change of its options. A crash in between
leaves the one before, and the next process that opens the topic for writing writes it anew.

Before a topic is dropped, `dropped` is put into its folder. A folder that `state.db` does not know is
removed only with that mark; without it the folder is damage, kept until `penstock repair` takes it back.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from typing import Any

import msgspec

from penstock.checksum import checked_line, with_checksum
from penstock.errors import Corrupt
from penstock.files import Files, read_whole, replace
from penstock.state.partitions import StoredRow, stored_rows
from penstock.state.topics import TopicRecord, Topics

IDENTITY = "topic.json"
DROPPED = "dropped"


class TopicIdentity(msgspec.Struct, frozen=True):
    """What a topic is, as its own folder knows it."""

    store: str
    id: int
    name: str
    options: dict[str, Any]
    tree: int
    created: int
    #: (partition, parent, offset) of partitions that were added later.
    gates: list[tuple[int, int, int]]
    #: Its partitions, once they are not those that the options tell.
    rows: list[StoredRow] = []


def identity_of(record: TopicRecord, topics: Topics) -> TopicIdentity:
    """The identity of a topic as `state.db` has it now."""
    gates = [
        (partition, parent, offset)
        for partition, parents in sorted(topics.partitions.gates_before_rows(record.id).items())
        for parent, offset in sorted(parents.items())
    ]
    return TopicIdentity(
        topics.store_id, record.id, record.name, record.options.as_dict(), record.tree, record.created, gates,
        stored_rows(record.rows),
    )  # fmt: skip


def save_identity(files: Files, folder: str, identity: TopicIdentity) -> None:
    """Put the identity into a topic's folder, durably."""
    line = msgspec.json.encode(identity)
    draft = os.path.join(folder, f"{IDENTITY}.{secrets.token_hex(4)}.tmp")  # others may do it at this moment
    replace(files, draft, with_checksum(line))
    files.rename(draft, os.path.join(folder, IDENTITY))
    files.sync_dir(folder)


def load_identity(files: Files, folder: str) -> TopicIdentity | None:
    """The identity in a folder, None when there is none; raises `Corrupt` when it cannot be trusted."""
    path = os.path.join(folder, IDENTITY)
    data = read_whole(files, path)
    if not data:
        return None
    line = checked_line(data)
    if line is None:
        raise Corrupt(path, 0, "its checksum is wrong")
    try:
        return _decoder.decode(line)
    except msgspec.DecodeError as error:
        raise Corrupt(path, 0, f"it cannot be understood: {error}") from error


def keep_identity(files: Files, folder: str, record: TopicRecord, topics: Topics) -> None:
    """See that the folder of a topic that exists has its identity and no mark of a drop.

    One that knows of more partitions than `state.db` is left alone: then it is `state.db` that forgot.
    """
    with suppress(FileNotFoundError):
        files.unlink(os.path.join(folder, DROPPED))
    wanted = identity_of(record, topics)
    try:
        found = load_identity(files, folder)
    except Corrupt:
        found = None
    if found is not None:
        knows_more = found.id == wanted.id and found.tree > wanted.tree
        if knows_more or found == _plain(wanted):
            return
    save_identity(files, folder, wanted)


def mark_dropped(files: Files, folder: str, topic_id: int) -> None:
    """Mark a topic's folder as being dropped: a process that finds it without a row may remove it."""
    if files.exists(folder):
        replace(files, os.path.join(folder, DROPPED), b"%d\n" % topic_id)
        files.sync_dir(folder)


def is_dropped(files: Files, folder: str) -> bool:
    """Whether a folder was marked before its topic's rows went."""
    return files.exists(os.path.join(folder, DROPPED))


def holds_messages(files: Files, folder: str) -> bool:
    """Whether a folder holds a segment of any partition."""
    parts = os.path.join(folder, "parts")
    if not files.exists(parts):
        return False
    partitions = (os.path.join(parts, name) for name in files.listdir(parts))
    return any(name.endswith(".data") for path in partitions for name in files.listdir(path))


_decoder = msgspec.json.Decoder(TopicIdentity)


def _plain(identity: TopicIdentity) -> TopicIdentity:
    """The identity as it reads after a trip through JSON: tuples in options become lists."""
    return _decoder.decode(msgspec.json.encode(identity))
