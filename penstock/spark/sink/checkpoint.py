"""What Spark's checkpoint says of a query's batches, beside what the store has of them.

    checkpoint/metadata     {"id": the query's}
    checkpoint/offsets/N    a version, facts of the run, then a line a source: what batch N reads
    checkpoint/commits/N    batch N is done: the sink had committed it before

Checkpoint and store may be put back to an earlier state apart from each other. A store that lacks a batch of
`commits` was put back. A checkpoint that was put back plans its next batch anew, under a number that the
store has: it is another batch when it was planned from other offsets, also when it has as many rows.
"""

from __future__ import annotations

import json
import os
from hashlib import blake2b

from penstock.spark.sink.commit import WriterCommit, commits, refuse_lost_batches
from penstock.store import Store

#: Lines of an offsets file before those of the sources; they differ whenever a batch is planned.
_HEAD = 2


def batch_mark(checkpoint: str | None, number: int) -> str:
    """A short text for what a batch was planned to read; empty where the checkpoint cannot be looked at."""
    folder = _folder(checkpoint)
    if folder is None:
        return ""
    try:
        with open(os.path.join(folder, "offsets", str(number)), encoding="utf-8") as file:
            read = file.read().splitlines()[_HEAD:]
    except (OSError, UnicodeDecodeError):
        return ""
    return blake2b("\n".join(read).encode(), digest_size=8).hexdigest() if read else ""


def refuse_put_back(store: Store, app: str | None, checkpoint: str) -> None:
    """Raise `ConflictError` when the store lacks batches that Spark has noted as done.

    A query that has nothing new to write would else end with success, and never say so.
    """
    folder = _folder(checkpoint)
    done = -1 if folder is None else _latest(os.path.join(folder, "commits"))
    query = None if folder is None else _query_id(folder)
    if done < 0 or query is None:
        return
    following = WriterCommit(query, done + 1, 0, app, is_counted=True)
    before = commits(store.transactions.names(following.series), following)
    refuse_lost_batches(following, before)


def _folder(checkpoint: str | None) -> str | None:
    """The checkpoint's folder, if it is one of this machine."""
    if checkpoint is None:
        return None
    path = checkpoint.removeprefix("file:")
    path = path if path == checkpoint else "/" + path.lstrip("/")
    return None if "://" in path or not os.path.isdir(path) else path


def _latest(folder: str) -> int:
    try:
        return max((int(name) for name in os.listdir(folder) if name.isdecimal()), default=-1)
    except OSError:
        return -1


def _query_id(folder: str) -> str | None:
    try:
        with open(os.path.join(folder, "metadata"), encoding="utf-8") as file:
            return str(json.load(file)["id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
