"""What is known of the producers of a partition, in memory and as a checkpoint.

For each (producer id, group): the highest seqno stored, the epoch (how often the pair was taken over), and
when it was last seen. Facts only ever grow, so taking in the same frame twice changes nothing, and
facts are never forgotten: a seqno stays known after retention took its message (S001-45).

A checkpoint holds the facts of everything before one offset:

    0   8s   magic "PSKPRODS"
    8   u32  CRC-32 of the file from byte 12 on
    12  u16  version
    14  u16  (zero)
    16  u64  the offset
    24  u64  topic id
    32  u64  how many pairs follow
    40       for each: i64 seqno · i64 last seen · u32 epoch · u16 length of id · u16 length of group ·
             id · group

A seqno of -1 means that the pair was taken over and has stored nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from penstock.checksum import crc32
from penstock.clock import NANOSECONDS
from penstock.errors import Corrupt, UnknownFormat
from penstock.log import index
from penstock.log.folder import PRODUCERS, Folder

_HEADER = Struct("<8sIHHQQQ")
_ENTRY = Struct("<qqIHH")
_MAGIC = b"PSKPRODS"
_VERSION = 1

#: A partition should not see more producers than this within `RECENT_NS` (S001-36, S001-40).
MANY = 100_000
RECENT_NS = 14 * 86400 * NANOSECONDS


class Pair(NamedTuple):
    """A producer id and a group ("" when there is none): what seqnos belong to."""

    id: str
    group: str


class Known(NamedTuple):
    """What is known of a pair; a seqno of -1 means that nothing is stored."""

    seqno: int = -1
    epoch: int = 0


NOTHING = Known()


class Facts:
    """The pairs of one partition; a dict of places and three arrays, about 200 bytes a pair."""

    def __init__(self) -> None:
        self._places: dict[Pair, int] = {}
        self._seqnos = array("q")
        self._epochs = array("I")
        self._seen = array("q")

    def __len__(self) -> int:
        return len(self._places)

    def get(self, pair: Pair) -> Known:
        place = self._places.get(pair)
        return NOTHING if place is None else Known(self._seqnos[place], self._epochs[place])

    def learn(self, pair: Pair, seqno: int, epoch: int, seen: int) -> None:
        """Take in that the pair stored `seqno`, or was taken over with this epoch."""
        place = self._places.get(pair)
        if place is None:
            self._seqnos.append(seqno)
            self._epochs.append(epoch)
            self._seen.append(seen)
            self._places[pair] = len(self._seqnos) - 1  # last: another thread may look at any moment
            return
        if seqno > self._seqnos[place]:
            self._seqnos[place] = seqno
        if epoch > self._epochs[place]:
            self._epochs[place] = epoch
        if seen > self._seen[place]:
            self._seen[place] = seen

    def recent(self, now: int) -> int:
        """How many were seen within the last 14 days."""
        return sum(seen > now - RECENT_NS for seen in self._seen)

    def items(self) -> Iterator[tuple[Pair, int, int, int]]:
        """(pair, seqno, epoch, last seen) of each."""
        return (
            (pair, self._seqnos[place], self._epochs[place], self._seen[place])
            for pair, place in self._places.items()
        )


def pack(facts: Facts, offset: int, topic_id: int) -> bytes:
    parts = [_HEADER.pack(_MAGIC, 0, _VERSION, 0, offset, topic_id, len(facts))]
    for pair, seqno, epoch, seen in facts.items():
        name, group = pair.id.encode(), pair.group.encode()
        parts += (_ENTRY.pack(seqno, seen, epoch, len(name), len(group)), name, group)
    data = bytearray(b"".join(parts))
    data[8:12] = crc32(data[12:]).to_bytes(4, "little")
    return bytes(data)


def parse(data: bytes, offset: int, topic_id: int) -> Facts | None:
    """The facts of a checkpoint, or None when it is damaged or not the one asked for.

    A topic id of 0 accepts any. Raises `UnknownFormat` for a newer version.
    """
    if len(data) < _HEADER.size:
        return None
    magic, crc, version, _, its_offset, its_topic, count = _HEADER.unpack_from(data)
    if magic != _MAGIC or crc32(data[12:]) != crc or its_offset != offset:
        return None
    if topic_id and its_topic != topic_id:
        return None
    if version != _VERSION:
        raise UnknownFormat(
            f"a producer checkpoint of format {version}", hint="it was written by a newer Penstock: upgrade"
        )
    facts, at = Facts(), _HEADER.size
    for _ in range(count):
        seqno, seen, epoch, id_length, group_length = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        name = data[at : at + id_length].decode()
        group = data[at + id_length : at + id_length + group_length].decode()
        facts.learn(Pair(name, group), seqno, epoch, seen)
        at += id_length + group_length
    return facts


def save(folder: Folder, facts: Facts, offset: int, kind: str = PRODUCERS) -> None:
    """Store a checkpoint, durably, whole or not at all."""
    data = pack(facts, offset, folder.topic_id)
    index.replace(folder.files, folder.segment_path(offset, kind), data)
    folder.files.sync_dir(folder.path)


class Checkpoint(NamedTuple):
    """A checkpoint as it was found: missing, damaged (no facts), or sound."""

    path: str
    is_there: bool
    facts: Facts | None


def load(folder: Folder, offset: int, kind: str = PRODUCERS) -> Checkpoint:
    path = folder.segment_path(offset, kind)
    data = index.read_whole(folder.files, path)
    is_there = bool(data) or folder.files.exists(path)
    return Checkpoint(path, is_there, parse(data, offset, folder.topic_id) if data else None)


def refusal(path: str, partition: int) -> Corrupt:
    """The error for a damaged checkpoint that nothing can take the place of."""
    error = Corrupt(path, 0, "a damaged producer checkpoint", partition=partition)
    error.hint = "removing the file accepts that older seqnos may be stored again; others can write meanwhile"
    return error
