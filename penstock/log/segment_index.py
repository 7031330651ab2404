"""Indexes of a segment: where an offset lies, when it was written, and checksums of whole blocks.

    .index       header, then [offset | byte | size] a frame, u64 each, then a CRC-32 for each
                 1 MiB block of the data file
    .timeindex   header, then [offset | newest written time] a frame, u64 and i64

    header:  0 8s magic · 8 u32 CRC-32 of the file from byte 12 on · 12 u16 version · 14 u16 (zero)
             16 u32 generation · 20 u32 block bytes · 24 u64 first offset · 32 u64 offset behind the
             last · 40 u64 data bytes · 48 u64 frames · 56 u32 salt of the data · 60 u32 CRC-32 of the
             data up to data bytes

Both are made at the seal, from the data alone, and made again whenever they are missing, short,
damaged, of other data (by its salt), or of another generation of it. The active segment has none:
each reader lists the frames it sees (docs/decisions/0004-no-index-while-active.md).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from struct import Struct

from penstock.checksum import crc32
from penstock.files import read_whole, replace
from penstock.log import frame
from penstock.log.folder import INDEX, TIME_INDEX, Folder
from penstock.log.frame_columns import Buffer
from penstock.log.frame_header import HEADER, Head
from penstock.log.recovery import Survey, survey
from penstock.log.segment import SEGMENT_HEADER_BYTES, parse_head
from penstock.parse import MIB

BLOCK_BYTES = MIB
_HEADER = Struct("<8sIHHIIQQQQII")
_INDEX_MAGIC = b"PSKINDEX"
_TIME_MAGIC = b"PSKTIMES"
_VERSION = 1


class Index:
    """The final index of a sealed segment, in memory: three numbers a frame."""

    __slots__ = (
        "base",
        "blocks",
        "bytes",
        "data_bytes",
        "generation",
        "offsets",
        "salt",
        "sizes",
        "stop",
        "times",
        "whole",
    )

    def __init__(self, base: int, generation: int, salt: int, data_bytes: int) -> None:
        self.base = base
        self.generation = generation
        self.salt = salt
        #: Where the last sound frame ends.
        self.data_bytes = data_bytes
        self.offsets = array("Q")
        self.bytes = array("Q")
        self.sizes = array("Q")
        self.times = array("q")
        self.blocks = array("I")
        #: The checksum of all blocks together, for who checks a whole segment at once.
        self.whole = 0
        #: The offset behind the last message.
        self.stop = base

    def find(self, offset: int) -> int:
        """Which frame holds `offset`, or lies before it when none does; -1 before the first."""
        return bisect_right(self.offsets, offset) - 1

    def find_time(self, written_at: int) -> int:
        """The first frame that holds a message written at or after that time; the count when none does."""
        return bisect_left(self.times, written_at)

    def average_frame_bytes(self) -> float:
        """Return how large a frame of the segment is on average."""
        return self.data_bytes / max(1, len(self.offsets))


def build(data: Buffer, base: int, found: Survey | None = None) -> Index:
    """Make the index from the data (surveyed already, perhaps); frames that are damaged are left out."""
    head = parse_head(data)
    generation, salt = (head.generation, head.salt) if head is not None else (0, 0)
    index = Index(base, generation, salt, SEGMENT_HEADER_BYTES)
    found = found if found is not None else survey(data, base)
    at = SEGMENT_HEADER_BYTES
    while at < found.byte:
        at = _add(index, data, at)
    for at, _ in found.beyond:
        _add(index, data, at)
    for at in range(0, index.data_bytes, BLOCK_BYTES):
        index.blocks.append(crc32(data[at : min(at + BLOCK_BYTES, index.data_bytes)]))
    index.whole = crc32(data[: index.data_bytes])
    return index


def _add(index: Index, data: Buffer, at: int) -> int:
    head = Head._make(HEADER.unpack_from(data, at))
    end = at + head.size
    if head.count:
        index.offsets.append(head.base)
        index.bytes.append(at)
        index.sizes.append(head.size)
        index.times.append(frame.read_frame(data, at, head).last_written_at)
        index.stop = head.stop
    index.data_bytes = end
    return end


def load(folder: Folder, base: int, generation: int, salt: int) -> Index | None:
    """The stored index, or None when it is missing, damaged, or belongs to other data."""
    main = _load(folder, base, INDEX, _INDEX_MAGIC)
    times = _load(folder, base, TIME_INDEX, _TIME_MAGIC)
    if main is None or times is None:
        return None
    fields, rest = main
    _, _, _, _, _, block_bytes, _, stop, data_bytes, frames, _, whole = fields
    ours = all((each[4], each[10]) == (generation, salt) for each in (fields, times[0]))
    if not ours or block_bytes != BLOCK_BYTES:
        return None
    index = Index(base, generation, salt, data_bytes)
    numbers = array("Q", rest[: 24 * frames])
    index.offsets, index.bytes, index.sizes = numbers[0::3], numbers[1::3], numbers[2::3]
    index.blocks = array("I", rest[24 * frames :])
    index.times = array("q", times[1])[1::2]
    index.stop, index.whole = stop, whole
    consistent = len(index.offsets) == frames == len(index.times)
    return index if consistent and len(index.blocks) == -(-data_bytes // BLOCK_BYTES) else None


def _load(folder: Folder, base: int, kind: str, magic: bytes) -> tuple[tuple[int, ...], bytes] | None:
    data = read_whole(folder.files, folder.segment_path(base, kind))
    if len(data) < _HEADER.size:
        return None
    fields = _HEADER.unpack_from(data)
    sound = (
        fields[0] == magic and fields[2] == _VERSION and fields[6] == base and crc32(data[12:]) == fields[1]
    )
    if not sound or (len(data) - _HEADER.size) % 4:
        return None
    return fields, data[_HEADER.size :]


def save(folder: Folder, index: Index) -> None:
    """Store the index in place of hints or of an older one, whole or not at all."""
    triplets = array("Q", bytes(24 * len(index.offsets)))
    triplets[0::3], triplets[1::3], triplets[2::3] = index.offsets, index.bytes, index.sizes
    pairs = array("q", bytes(16 * len(index.offsets)))
    pairs[0::2], pairs[1::2] = array("q", index.offsets), index.times
    _save(folder, index, INDEX, _INDEX_MAGIC, triplets.tobytes() + index.blocks.tobytes())
    _save(folder, index, TIME_INDEX, _TIME_MAGIC, pairs.tobytes())


def _save(folder: Folder, index: Index, kind: str, magic: bytes, rest: bytes) -> None:
    header = _HEADER.pack(
        magic, 0, _VERSION, 0, index.generation, BLOCK_BYTES,
        index.base, index.stop, index.data_bytes, len(index.offsets), index.salt, index.whole,
    )  # fmt: skip
    data = bytearray(header + rest)
    data[8:12] = crc32(data[12:]).to_bytes(4, "little")
    replace(folder.files, folder.segment_path(index.base, kind), bytes(data))
