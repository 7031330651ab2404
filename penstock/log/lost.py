"""What was lost: offsets whose messages were acknowledged once, and that no segment holds any more.

Recovery meets them when a file was cut short or is gone (a bad copy, a failing disk, a hand that slipped)
although a record, a consumer's position or a checkpoint knows better. It goes on behind them, and keeps them
here, for ever: a strict reader gets an error, one that skips gaps counts one, and `verify` calls it damage.
Offsets that were never acknowledged are no loss, and are not named.

    lost
    0   8s   magic "PSK_LOST"
    8   u32  CRC-32 of what follows
    12  u16  version
    14  u16  0
    16  u64  topic id
    24  u64  how many ranges follow, ascending:
             u64 first offset, u64 the offset behind the last, i64 when it was noticed
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import NamedTuple

from penstock.checksum import crc32
from penstock.errors import Corrupt, UnknownFormat
from penstock.files import read_whole, replace
from penstock.log.folder import Folder

logger = logging.getLogger("penstock.log")

FILE = "lost"
_HEADER = Struct("<8sIHHQQ")
_RANGE = Struct("<QQq")
_MAGIC = b"PSK_LOST"
_VERSION = 1


class Lost(NamedTuple):
    """Offsets from `first` up to `stop`, noticed at a time in nanoseconds."""

    first: int
    stop: int
    noticed: int


def pack(ranges: Sequence[Lost], topic_id: int) -> bytes:
    """Return the file that lists these lost ranges, as bytes."""
    data = bytearray(_HEADER.pack(_MAGIC, 0, _VERSION, 0, topic_id, len(ranges)))
    for each in ranges:
        data += _RANGE.pack(*each)
    data[8:12] = crc32(data[12:]).to_bytes(4, "little")
    return bytes(data)


def parse(data: bytes) -> list[Lost] | None:
    """The ranges in a file's bytes, or None when they are not sound."""
    if len(data) < _HEADER.size:
        return None
    magic, crc, version, _, _, count = _HEADER.unpack_from(data)
    if magic != _MAGIC or crc32(data[12:]) != crc or len(data) != _HEADER.size + count * _RANGE.size:
        return None
    if version != _VERSION:
        raise UnknownFormat(
            f"a list of losses of format {version}", hint="it was written by a newer Penstock: upgrade"
        )
    return [Lost._make(fields) for fields in _RANGE.iter_unpack(data[_HEADER.size :])]


def load(folder: Folder) -> list[Lost] | None:
    """What was lost in a partition; None when the file that says so is damaged."""
    path = folder.name(FILE)
    data = read_whole(folder.files, path)
    return parse(data) if data or folder.files.exists(path) else []


def note(folder: Folder, first: int, stop: int) -> None:
    """Keep a range for ever, durably. The append lock is held."""
    known = load(folder)
    path = folder.name(FILE)
    logger.error("offsets %d to %d are lost: they were acknowledged", first, stop - 1, extra={"path": path})
    if known is None:
        logger.error("the list of losses is damaged, and kept as it is", extra={"path": path})
        return  # as long as it is, every gap counts as a loss
    news = [Lost(*each, folder.clock.now_ns()) for each in outside((first, stop), known)]
    if news:
        replace(folder.files, path, pack(sorted([*known, *news]), folder.topic_id))
        folder.files.sync_dir(folder.path)


def outside(span: tuple[int, int], ranges: Iterable[tuple[int, ...]]) -> list[tuple[int, int]]:
    """What of a span lies in none of the ranges, which are in ascending order."""
    at, stop = span
    left = []
    for first, behind, *_ in ranges:
        if at < min(first, stop):
            left.append((at, min(first, stop)))
        at = max(at, behind)
    if at < stop:
        left.append((at, stop))
    return left


def refuse(folder: Folder, first: int, stop: int) -> None:
    """Raise `Corrupt` when some of these offsets were lost."""
    ranges = load(folder)
    path = folder.name(FILE)
    if ranges is None:
        raise Corrupt(path, 0, "a damaged list of losses", partition=folder.partition, first=first, stop=stop)
    for each in ranges:
        begin, end = max(first, each.first), min(stop, each.stop)
        if begin < end:
            what = "messages that were lost"
            raise Corrupt(path, 0, what, partition=folder.partition, first=begin, stop=end)
