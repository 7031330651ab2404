"""Which seqnos of a producer's group a partition holds, one by one: read from its frames.

The table of producers knows the highest only. Of a message that is sent again to another partition that says
nothing: those that were stored here may be any below it.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.locks import hold
from penstock.log.append import Appended
from penstock.log.frame import Frame
from penstock.log.frame_header import PRODUCERS, SEQNOS
from penstock.log.log import Log
from penstock.log.producer_table import FoldPoint, Pair, walk_frames
from penstock.log.records import Ends

#: How often the segments are looked through when some are removed or repacked meanwhile.
_LOOK_AGAIN = 3


class StoredSeqnos(NamedTuple):
    """Seqnos that a partition holds, and how far it must be synced for all of them to be durable."""

    partition: int
    seqnos: frozenset[int]
    end: Appended


def stored_seqnos(log: Log, pair: Pair, lowest: int) -> StoredSeqnos:
    """The seqnos of a pair, from `lowest` on, of messages that lie in a partition now."""
    ends: Ends = hold((log.folder.append,), log.appender.ready)
    a = ends.append
    for left in reversed(range(_LOOK_AGAIN)):
        found: set[int] = set()

        def take(frame: Frame, found: set[int] = found) -> None:
            found.update(seqno for seqno in _seqnos(frame, pair) if seqno >= lowest)

        try:
            bases = log.folder.segments()
            walk_frames(log.folder, take, FoldPoint(min(bases, default=a.segment)), a.segment, a.byte)
            break
        except FileNotFoundError:
            if not left:
                raise
    return StoredSeqnos(log.partition, frozenset(found), Appended(-1, a.next, ends.durable.cuts))


def _seqnos(frame: Frame, pair: Pair) -> list[int] | range:
    """What a frame holds of a pair. Where its seqnos leave no gap the header tells it, without the body."""
    count = frame.head.count
    if frame.head.flags & PRODUCERS:
        listed = zip(frame.producers(0, count), frame.seqnos(0, count), strict=True)
        return [
            seqno for who, seqno in listed
            if who is not None and (who.id, who.group or "") == pair and seqno is not None
        ]  # fmt: skip
    named = frame.producer()
    if named is None or (named[0].id, named[0].group or "") != pair:
        return []
    if frame.head.flags & SEQNOS:
        return [seqno for seqno in frame.seqnos(0, count) if seqno is not None]
    return range(named[1], named[1] + count)
