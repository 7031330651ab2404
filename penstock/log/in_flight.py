"""Whether frames that an interrupt overtook are in the log.

Ctrl-C may come at any moment of an append: before the frames were written, after that and before they were
published, or after both. A caller that wants to try again must know which. `Appender.ready` adopts frames
that were written and not published; then what lies between the old end of the log and its present end is
compared with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock.locks import hold
from penstock.log.append import Appended
from penstock.log.folder import Folder
from penstock.log.frame_encode import EncodedFrame
from penstock.log.frame_header import HEADER_BYTES, Head, read_head
from penstock.log.log import Log
from penstock.log.segment import SEGMENT_HEADER_BYTES
from penstock.parse import KIB


class EndOfLog(NamedTuple):
    """Where a log ended at some moment."""

    segment: int
    byte: int


def end_of(log: Log) -> EndOfLog:
    """Where the log ends now, or ended not long ago."""
    a = log.folder.read_append()
    if a is None or a.boot != log.folder.boot:
        return EndOfLog(0, SEGMENT_HEADER_BYTES)
    return EndOfLog(a.segment, a.byte)


def appended_since(log: Log, since: EndOfLog, frames: Sequence[EncodedFrame]) -> tuple[Appended, int] | None:
    """Where the first of these frames are, and how many of them; None when none is in the log.

    They are written by one call, so a process that was overtaken by an interrupt left all of them, none, or
    (with a disk that is nearly full) the first few.
    """
    folder = log.folder
    ends = hold((folder.append,), log.appender.ready)
    found: list[Head] = []
    for head in _heads(folder, since, EndOfLog(ends.append.segment, ends.append.byte)):
        if len(found) < len(frames) and _is(head, frames[len(found)]):
            found.append(head)
        elif found:
            break
    if not found:
        return None
    return Appended(found[0].base, found[-1].stop, ends.durable.cuts), len(found)


def _is(head: Head, frame: EncodedFrame) -> bool:
    return (head.body_crc, head.count, head.created) == (frame.body_crc, frame.count, frame.created)


def _heads(folder: Folder, since: EndOfLog, until: EndOfLog) -> Iterator[Head]:
    """The headers of the frames between two ends of the log."""
    files = folder.files
    for base in folder.segments():
        if not since.segment <= base <= until.segment:
            continue
        fd = files.open(folder.segment_path(base), write=False)
        try:
            at = since.byte if base == since.segment else SEGMENT_HEADER_BYTES
            end = until.byte if base == until.segment else files.size(fd)
            while at < end and (head := read_head(files.pread(fd, _READ_BYTES, at))) is not None:
                yield head
                at += head.size
        finally:
            files.close(fd)


#: A header with the longest extensions that there are.
_READ_BYTES = HEADER_BYTES + 20 * KIB
