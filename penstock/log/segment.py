"""One segment: a data file, and indexes that can always be built again.

    00000000000000001200.data        a 64-byte header, then frames back to back, only ever appended
    00000000000000001200.index       offset → byte; final, with block checksums, once sealed
    00000000000000001200.timeindex   offset → newest written time

The header:

    0   8s   magic "PENSTOCK"
    8   u32  CRC-32 of the header from byte 12 on
    12  u16  version
    14  u16  header length (64)
    16  u32  salt            repeated in each frame
    20  u32  generation      counts repackings; the offsets stay, the bytes move
    24  u64  first offset
    32  u64  topic id
    40  u32  partition
    44  u32  1: offsets were left out before this segment, on purpose
    48  i64  created         the written time the segment began at
    56       zeros

The truth is in the .data file alone. After a crash the last frame may be torn; recovery cuts it
off before anyone reads. Behind the last frame there may be zeros, reserved for frames to come.
"""

from __future__ import annotations

import secrets
from struct import Struct
from typing import NamedTuple

from penstock.checksum import crc32
from penstock.errors import UnknownFormat
from penstock.log.folder import Folder
from penstock.log.frame_columns import Buffer

SEGMENT_HEADER_BYTES = 64
_MAGIC = b"PENSTOCK"
_HEADER = Struct("<8sIHHIIQQIIq8x")
_REST = Struct("<HHIIQQIIq8x")
_VERSION = 1


class SegmentHead(NamedTuple):
    """What a segment says of itself."""

    salt: int
    generation: int
    base: int
    topic_id: int
    partition: int
    created: int
    #: Offsets before it were never given out, or cut off; without it a gap means that a file is missing.
    behind_gap: bool = False

    def pack(self) -> bytes:
        """Return the header as bytes, with its checksum."""
        rest = _REST.pack(
            _VERSION, SEGMENT_HEADER_BYTES, self.salt, self.generation,
            self.base, self.topic_id, self.partition, self.behind_gap, self.created,
        )  # fmt: skip
        return _MAGIC + crc32(rest).to_bytes(4, "little") + rest


def parse_head(data: Buffer) -> SegmentHead | None:
    """A segment's header, or None if these bytes are not a sound one."""
    if len(data) < SEGMENT_HEADER_BYTES:
        return None
    magic, crc, version, _, *rest = _HEADER.unpack_from(data)
    if magic != _MAGIC or crc32(data[12:SEGMENT_HEADER_BYTES]) != crc:
        return None
    if version != _VERSION:
        raise UnknownFormat(
            f"a segment of format {version}", hint="it was written by a newer Penstock: upgrade"
        )
    salt, generation, base, topic_id, partition, flags, created = rest
    return SegmentHead(salt, generation, base, topic_id, partition, created, bool(flags & 1))


def read_head(folder: Folder, base: int) -> SegmentHead | None:
    """The header of a segment, or None when it is not sound; raises `FileNotFoundError`."""
    fd = folder.files.open(folder.segment_path(base), write=False)
    try:
        return parse_head(folder.files.pread(fd, SEGMENT_HEADER_BYTES, 0))
    finally:
        folder.files.close(fd)


def new_salt() -> int:
    """Return a random number, never 0, that marks the frames of one segment."""
    return secrets.randbits(32) or 1


def create(folder: Folder, base: int, created: int, *, behind_gap: bool) -> int:
    """Make the segment durable and empty, and return its descriptor.

    One that an interrupted roll left behind is used again; the caller has seen that it holds no frame.
    """
    files = folder.files
    head = SegmentHead(new_salt(), 0, base, folder.topic_id, folder.partition, created, behind_gap)
    fd = files.open(folder.segment_path(base), create=True)
    try:
        files.truncate(fd, 0)
        files.pwrite(fd, head.pack(), 0)
        files.sync(fd)
        files.sync_dir(folder.path)
    except BaseException:
        files.close(fd)
        raise
    return fd
