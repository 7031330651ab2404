"""Which seqnos of a producer's group a partition holds, one by one: read from its frames.

The table of producers knows only the highest seqno. That is not enough for a message that would go to another
partition now than before: which of the lower seqnos are stored here must be read.
"""

from __future__ import annotations

from penstock.log.append import Appended
from penstock.log.folder import Folder
from penstock.log.frame import Frame
from penstock.log.frame_header import PRODUCERS, SEQNOS
from penstock.log.log import Log
from penstock.log.producer_table import FoldPoint, Pair, walk_frames
from penstock.log.records import AppendRecord

#: How often the segments are looked through when some are removed meanwhile.
_LOOK_AGAIN = 3


class SeqnoSearch:
    """The seqnos of a pair, from the lowest that is of interest on, of messages that lie in a partition."""

    def __init__(self, log: Log, pair: Pair, lowest: int) -> None:
        self.partition = log.partition
        self.found: set[int] = set()
        #: How far the partition must be synced for all of them to be durable.
        self.end = Appended(-1, 0, 0)
        self._folder: Folder = log.folder
        self._pair = pair
        self._lowest = lowest
        self._place: FoldPoint | None = None

    def look(self, a: AppendRecord, cuts: int) -> None:
        """Take in what was appended since the last look, up to `a`; all that there is, the first time."""
        for left in reversed(range(_LOOK_AGAIN)):
            place = self._place or FoldPoint(min(self._folder.segments(), default=a.segment))
            try:
                self._place = walk_frames(self._folder, self._take, place, a.segment, a.byte)
                break
            except FileNotFoundError:
                self._place = None
                if not left:
                    raise
        self.end = Appended(-1, a.next, cuts)

    def _take(self, frame: Frame) -> None:
        self.found.update(seqno for seqno in _seqnos(frame, self._pair) if seqno >= self._lowest)


def _seqnos(frame: Frame, pair: Pair) -> list[int] | range:
    """What a frame holds of a pair. Where its seqnos leave no gap the header tells it, without the body."""
    count = frame.head.count
    if frame.head.flags & PRODUCERS:
        listed = zip(frame.producers(0, count), frame.seqnos(0, count), strict=True)
        return [
            seqno
            for who, seqno in listed
            if who is not None and (who.id, who.group or "") == pair and seqno is not None
        ]
    named = frame.producer()
    if named is None or (named[0].id, named[0].group or "") != pair:
        return []
    if frame.head.flags & SEQNOS:
        return [seqno for seqno in frame.seqnos(0, count) if seqno is not None]
    return range(named[1], named[1] + count)
