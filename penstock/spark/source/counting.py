"""How many messages a partition has, by the names and heads of its segments: no message is read."""

from __future__ import annotations

from penstock.log.log import Log
from penstock.log.segment import read_head
from penstock.spark.source.survey import segments


def count_messages(log: Log, start: int = 0) -> int:
    """The messages from `start` on, as they are now.

    Offsets follow each other but where a transaction left some out: the segment behind such a gap says so,
    and the index of the one before it knows where its messages end.
    """
    bounds, pieces = segments(log)
    first = max(start, bounds.start)
    count = 0
    for at, piece in enumerate(pieces):
        if piece.stop <= first:
            continue
        stop = piece.stop
        if at + 1 < len(pieces):
            behind = read_head(log.folder, pieces[at + 1].base)
            if behind is not None and behind.behind_gap:
                stop = log.segments.sealed(piece.base).index.stop
        count += max(0, min(stop, bounds.end) - max(piece.base, first))
    return count
