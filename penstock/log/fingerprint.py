"""Fingerprints of positions: whether what lies before an offset is still what lay there.

A position in a log is a number, and a store that was put back from a backup gives the same numbers to other
messages. A program that keeps a position outside the store (a Spark checkpoint, an archive, a mirror) keeps
with it the fingerprint of the last message before it, and compares when it comes back.

It is made of what a message is (offset, both times to the nanosecond, key, stored value) and not of where its
frame lies, so repacking and compressing a segment leave it as it is.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Literal

from penstock.errors import Corrupt, HistoryChanged
from penstock.log.segments import Segments
from penstock.message import Message

#: No fingerprint: nothing lies before the position, or it cannot be read any more.
UNKNOWN = 0
_BITS = 2**63 - 1

#: `ahead`: the log ends before the position. `changed`: another message lies before it.
Verdict = Literal["same", "ahead", "changed"]


def fingerprint(log: Segments, position: int) -> int:
    """A number from 1 on for the last message before `position`; `UNKNOWN` when there is none to read."""
    try:
        before = log.message(position - 1) if position > 0 else None
    except Corrupt:  # whoever reads there is told; it says nothing about the store's history
        return UNKNOWN
    return UNKNOWN if before is None else _of(before)


def compare(log: Segments, position: int, kept: int) -> Verdict:
    """Compare a position and the fingerprint kept with it with what the log has now.

    A message that retention took, or a position kept without a fingerprint, counts as the same.
    """
    if position > log.bounds().end:
        return "ahead"
    now = fingerprint(log, position) if kept != UNKNOWN else UNKNOWN
    return "changed" if now not in (UNKNOWN, kept) else "same"


def changed(log: Segments, position: int, verdict: Verdict, whose: str) -> HistoryChanged:
    """The error for a position that is not of this log's history; `whose` is "the query", for example."""
    where = f"{log.topic!r} partition {log.folder.partition}"
    if verdict == "ahead":
        told = f"{whose} stands at {position} of {where}, which ends at {log.bounds().end}"
    else:
        told = f"{whose} stands at {position} of {where}, where offset {position - 1} is another message now"
    return HistoryChanged(
        f"{told}: the store was put back to an earlier state", partition=log.folder.partition, offset=position
    )


def not_there(topic: str, partition: int, position: int, whose: str) -> HistoryChanged:
    """The error for a position in a partition that its topic never had: it came after the backup."""
    return HistoryChanged(
        f"{whose} stands at {position} of {topic!r} partition {partition}, which the topic does not have: "
        "the store was put back to an earlier state",
        partition=partition, offset=position,
    )  # fmt: skip


def _of(message: Message) -> int:
    digest = blake2b(digest_size=8)
    digest.update(b"%d %d %d " % (message.offset, message.written_at, message.timestamp))
    for part in (message.key, message.stored):
        digest.update(b"-" if part is None else b"%d " % len(part))
        digest.update(part or b"")
    return int.from_bytes(digest.digest(), "big") & _BITS or 1
