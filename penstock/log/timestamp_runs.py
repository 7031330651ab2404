"""What of a stretch of offsets may have timestamps within bounds: by the headers of large frames alone.

Timestamps are the producers' own, in any order, and no index has them. But a frame whose messages all have
the time of their batch says so in its header, which has a checksum of its own; so such a frame is left out
without a look at its body. All else has to be read: frames with a time for each message (among them what was
repacked), small frames, for which a look at each costs as much as reading them, and the active segment.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.log.frame_header import TIMES, read_head
from penstock.log.mapped_segment import MappedSealed
from penstock.log.segments import Segments
from penstock.parse import KIB

#: Of smaller frames nothing is looked up.
_FRAME_BYTES_LEAST = 2 * KIB


def timestamp_runs(
    view: Segments, first: int, stop: int, least: int | None, above: int | None
) -> Iterator[tuple[int, int]]:
    """Runs of offsets that hold all messages with timestamps from `least` up to `above`; None is no bound."""
    if least is None and above is None:
        yield first, stop
        return
    begin = first
    for left, right in _outside(view, first, stop, least, above):
        if begin < left:
            yield begin, left
        begin = max(begin, right)
    if begin < stop:
        yield begin, stop


def _outside(
    view: Segments, first: int, stop: int, least: int | None, above: int | None
) -> Iterator[tuple[int, int]]:
    """Offsets of frames without any such message, ascending."""
    bounds = view.bounds()
    for base in view.bases_from(first, bounds) if first < stop else ():
        if base >= min(stop, bounds.segment):
            return
        try:
            segment = view.sealed(base)
        except FileNotFoundError:  # vacuumed or repacked meanwhile: it is read as it is then
            continue
        if segment.index.average_frame_bytes() < _FRAME_BYTES_LEAST:
            continue
        for number in range(max(segment.index.find(first), 0), len(segment.index.offsets)):
            found = _outside_frame(segment, number, least, above)
            if found is not None and found[1] > first and found[0] < stop:
                yield max(found[0], first), min(found[1], stop)


def _outside_frame(
    segment: MappedSealed, number: int, least: int | None, above: int | None
) -> tuple[int, int] | None:
    """The offsets of a frame whose header says that no message is within; None for all others."""
    head = read_head(segment.data, segment.index.bytes[number])
    if head is None or head.base != segment.index.offsets[number] or head.flags & TIMES:
        return None  # a damaged one is said to be when it is read
    is_within = (least is None or head.created >= least) and (above is None or head.created < above)
    return None if is_within else (head.base, head.stop)
