"""What a partition's own log says of its place in the tree: its birth at the beginning, a seal at the end.

Both are frames without messages. From them alone the tree can be built again.

    birth   {"parents": {"0": 1234}, "low": 0, "high": 2147483648}
    seal    {"children": [5, 6], "low": 0, "cut": 2147483648, "high": 4294967296}

A split that was begun twice leaves two births: the last one before the first message counts. A seal counts
only as the last frame of the last segment: behind it nobody writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from penstock.log import frame
from penstock.log.folder import Folder
from penstock.log.frame import Frame
from penstock.log.frame_encode import EncodedFrame, control
from penstock.log.frame_header import BIRTH, SEAL, Head
from penstock.log.segment import SEGMENT_HEADER_BYTES, parse_head
from penstock.parse import KIB

#: Births are at the very beginning of a log: so much of it is read for them.
_BEGINNING_BYTES = 256 * KIB


class Seal(NamedTuple):
    """Who goes on where a partition ends: two children, of which the upper one begins at hash `cut`."""

    children: tuple[int, int]
    low: int
    cut: int
    high: int

    def encode(self, now: int) -> EncodedFrame:
        """The frame that ends the parent's log."""
        return control(SEAL, json.dumps(self._asdict()).encode(), created=now)


class Birth(NamedTuple):
    """Where a partition came from: offsets of its parents behind which it opens, and its first range."""

    parents: Mapping[int, int]
    low: int
    high: int

    def encode(self, now: int) -> EncodedFrame:
        """The frame that begins the child's log."""
        return control(BIRTH, json.dumps(self._asdict()).encode(), created=now)


def is_seal(head: Head) -> bool:
    """Whether a frame is a seal."""
    return not head.count and head.codec == SEAL


def read_seal(folder: Folder) -> Seal | None:
    """The seal at the end of a log; None when there is none."""
    bases = folder.segments()
    last: Frame | None = None
    for each in _frames(folder, bases[-1], None) if bases else ():
        last = each
    if last is None or not is_seal(last.head):
        return None
    found = json.loads(bytes(last.body))
    return Seal((found["children"][0], found["children"][1]), found["low"], found["cut"], found["high"])


def read_birth(folder: Folder) -> Birth | None:
    """The birth at the beginning of a log; None where there is none, or retention took it."""
    bases = folder.segments()
    birth: Birth | None = None
    for each in _frames(folder, 0, _BEGINNING_BYTES) if bases and not bases[0] else ():
        if each.head.count:
            break
        if each.head.codec == BIRTH:
            found = json.loads(bytes(each.body))
            parents = {int(parent): int(offset) for parent, offset in found["parents"].items()}
            birth = Birth(parents, found["low"], found["high"])
    return birth


def _frames(folder: Folder, base: int, most: int | None) -> Iterator[Frame]:
    """The sound frames at the beginning of a segment, of `most` bytes of it."""
    files = folder.files
    fd = files.open(folder.segment_path(base), write=False)
    try:
        data = files.pread(fd, files.size(fd) if most is None else most, 0)
    finally:
        files.close(fd)
    head = parse_head(data)
    for _, found in frame.walk(data, SEGMENT_HEADER_BYTES):
        if head is not None and found.head.salt != head.salt:
            return
        yield found
