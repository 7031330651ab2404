"""What a partition knows of its producers: the last seqno of each, in memory, and as a checkpoint file.

The table is loaded from the newest checkpoint and brought up to date from the headers of the frames behind
it. Bodies are skipped, except where seqnos leave gaps or, in a repacked segment, producers differ.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Iterator
from struct import Struct
from typing import NamedTuple

from penstock.checksum import crc32
from penstock.clock import NANOSECONDS
from penstock.errors import Corrupt, UnknownFormat
from penstock.files import read_whole, replace
from penstock.log import frame
from penstock.log.folder import GATE_PRODUCERS, Folder
from penstock.log.folder import PRODUCERS as PRODUCERS_FILE
from penstock.log.frame import Frame
from penstock.log.frame_header import HEADER_BYTES, MAGIC_BYTES, PRODUCER, PRODUCERS, SEQNOS, Head, read_head
from penstock.log.lineage import Birth, read_birth
from penstock.log.segment import SEGMENT_HEADER_BYTES, parse_head
from penstock.parse import KIB

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


class LastSeqno(NamedTuple):
    """What is known of a pair; a seqno of -1 means that nothing is stored."""

    seqno: int = -1
    epoch: int = 0


NOTHING = LastSeqno()


class ProducerTable:
    """The pairs of one partition; a dict of places and three arrays, about 200 bytes a pair."""

    def __init__(self) -> None:
        self._places: dict[Pair, int] = {}
        self._seqnos = array("q")
        self._epochs = array("I")
        self._seen = array("q")

    def __len__(self) -> int:
        return len(self._places)

    def get(self, pair: Pair) -> LastSeqno:
        """Return the last number of a producer; `NOTHING` if it has not written."""
        place = self._places.get(pair)
        return NOTHING if place is None else LastSeqno(self._seqnos[place], self._epochs[place])

    def learn(self, pair: Pair, seqno: int, epoch: int, seen: int) -> None:
        """Take in that the pair stored `seqno`, or was taken over with this epoch."""
        place = self._places.get(pair)
        if place is None:
            place = len(self._places)
            del self._seqnos[place:], self._epochs[place:], self._seen[place:]  # of one that was interrupted
            self._seqnos.append(seqno)
            self._epochs.append(epoch)
            self._seen.append(seen)
            self._places[pair] = place  # last: another thread may look at any moment
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


def pack(facts: ProducerTable, offset: int, topic_id: int) -> bytes:
    """Return a checkpoint of the table at `offset`, as the bytes of its file."""
    parts = [_HEADER.pack(_MAGIC, 0, _VERSION, 0, offset, topic_id, len(facts))]
    for pair, seqno, epoch, seen in facts.items():
        name, group = pair.id.encode(), pair.group.encode()
        parts += (_ENTRY.pack(seqno, seen, epoch, len(name), len(group)), name, group)
    data = bytearray(b"".join(parts))
    data[8:12] = crc32(data[12:]).to_bytes(4, "little")
    return bytes(data)


def parse(data: bytes, offset: int, topic_id: int) -> ProducerTable | None:
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
    facts, at = ProducerTable(), _HEADER.size
    for _ in range(count):
        seqno, seen, epoch, id_length, group_length = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        name = data[at : at + id_length].decode()
        group = data[at + id_length : at + id_length + group_length].decode()
        facts.learn(Pair(name, group), seqno, epoch, seen)
        at += id_length + group_length
    return facts


def save(folder: Folder, facts: ProducerTable, offset: int, kind: str = PRODUCERS_FILE) -> None:
    """Store a checkpoint, durably, whole or not at all."""
    data = pack(facts, offset, folder.topic_id)
    replace(folder.files, folder.segment_path(offset, kind), data)
    folder.files.sync_dir(folder.path)


class Checkpoint(NamedTuple):
    """A checkpoint as it was found: missing, damaged (no facts), or sound."""

    path: str
    is_there: bool
    facts: ProducerTable | None


def load(folder: Folder, offset: int, kind: str = PRODUCERS_FILE) -> Checkpoint:
    """Read the checkpoint that was made at `offset`; its table is None if missing or damaged."""
    path = folder.segment_path(offset, kind)
    data = read_whole(folder.files, path)
    is_there = bool(data) or folder.files.exists(path)
    return Checkpoint(path, is_there, parse(data, offset, folder.topic_id) if data else None)


def refusal(path: str, partition: int) -> Corrupt:
    """The error for a damaged checkpoint that nothing can take the place of."""
    error = Corrupt(path, 0, "a damaged producer checkpoint", partition=partition)
    error.hint = "removing the file accepts that older seqnos may be stored again; others can write meanwhile"
    return error


logger = logging.getLogger("penstock.log")

#: Read at a time; the longest header is 17 KiB.
_CHUNK_BYTES = 64 * KIB
#: How often checkpoints are looked for before they count as missing.
_LOOK_AGAIN = 3


class FoldPoint(NamedTuple):
    """Up to where frames were folded; of a repacked segment's older generation the byte means nothing."""

    segment: int
    byte: int = SEGMENT_HEADER_BYTES
    generation: int = 0


def begin(folder: Folder, before: int | None = None) -> tuple[ProducerTable, FoldPoint]:
    """The newest sound checkpoint, up to the segment `before`, and where folding goes on behind it.

    Without one all that is there is folded. That is all there ever was, or older segments are gone:
    then a damaged checkpoint raises `Corrupt`, and one that is missing is warned of.
    """
    for _ in range(_LOOK_AGAIN):
        bases = [base for base in folder.segments() if before is None or base <= before]
        damaged = ""
        for base in reversed(bases):
            found = load(folder, base)
            if found.facts is not None:
                return found.facts, FoldPoint(base)
            damaged = damaged or (found.path if found.is_there else "")
        first = bases[0] if bases else before or 0
        if not first:
            break
        # Older ones are removed when newer ones are there: between two looks both may have escaped us.
    birth = None if first else read_birth(folder)
    if birth is not None:
        return _inherited(folder, birth, damaged), FoldPoint(0)
    if damaged:
        logger.warning("a damaged producer checkpoint", extra={"path": damaged})
    if first and damaged:
        raise refusal(damaged, folder.partition)
    if first:
        logger.warning(
            "the producer checkpoint is missing: seqnos of messages that are gone may be stored again",
            extra={"path": folder.path},
        )
    return ProducerTable(), FoldPoint(first)


def _inherited(folder: Folder, birth: Birth, damaged: str) -> ProducerTable:
    """What a partition's parents knew of producers, from their folders: its own first checkpoint is gone."""
    logger.warning(
        "a partition's first producer checkpoint is gone: that of its parents is taken",
        extra={"path": damaged or folder.path},
    )
    facts = ProducerTable()
    for parent, offset in birth.parents.items():
        path = folder.beside(parent, offset, GATE_PRODUCERS)
        found = parse(read_whole(folder.files, path), offset, folder.topic_id)
        if found is None:
            raise refusal(damaged or folder.segment_path(0, PRODUCERS_FILE), folder.partition)
        for pair, seqno, epoch, seen in found.items():
            facts.learn(pair, seqno, epoch, seen)
    return facts


def fold_all(
    folder: Folder, facts: ProducerTable, place: FoldPoint, segment: int, byte: int | None
) -> FoldPoint:
    """Fold from `place` up to `byte` of `segment` (None: to its end); return the new place.

    Raises `FileNotFoundError` when a segment on the way was removed.
    """
    return walk_frames(folder, lambda found: learn(facts, found), place, segment, byte)


def walk_frames(
    folder: Folder, take: Callable[[Frame], None], place: FoldPoint, segment: int, byte: int | None
) -> FoldPoint:
    """Call `take` with each frame that names producers; with its body where its header does not tell all."""
    if place.segment == segment and place.byte == byte:
        return place
    bases = [segment]
    if place.segment != segment:
        bases = [base for base in folder.segments() if place.segment <= base <= segment]
        if not bases or bases[0] != place.segment:
            raise FileNotFoundError(folder.segment_path(place.segment))
    for base in bases:
        at = place if base == place.segment else FoldPoint(base)
        place = _walk_segment(folder, take, at, byte if base == segment else None)
    return place


def _walk_segment(
    folder: Folder, take: Callable[[Frame], None], place: FoldPoint, end: int | None
) -> FoldPoint:
    files = folder.files
    fd = files.open(folder.segment_path(place.segment), write=False)
    try:
        head = parse_head(files.pread(fd, SEGMENT_HEADER_BYTES, 0))
        generation = head.generation if head is not None else 0
        at = place.byte if generation == place.generation else SEGMENT_HEADER_BYTES
        end = files.size(fd) if end is None else end
        at = _Walk(folder, fd, place.segment, None if head is None else head.salt, end).walk(take, at)
        return FoldPoint(place.segment, at, generation)
    finally:
        files.close(fd)


class _Walk:
    """A pass over the frames of one file."""

    def __init__(self, folder: Folder, fd: int, base: int, salt: int | None, end: int) -> None:
        self._folder = folder
        self._fd = fd
        self._base = base
        self._salt = salt
        self._end = end
        self._chunk = b""
        self._chunk_at = 0

    def walk(self, take: Callable[[Frame], None], at: int) -> int:
        """Take every frame from `at` to the end; return the end."""
        while at < self._end:
            head = self._head(at)
            if head is None:
                if not self._read(at, 8).strip(b"\0"):
                    break  # zeros reserved for frames to come
                at = self._next_sound(at)
                continue
            if head.flags & (PRODUCER | PRODUCERS):
                self._take(take, at, head)
            at += head.size
        return self._end

    def _head(self, at: int) -> Head | None:
        """The sound header at `at`, within the chunk that was read, or in a new one that begins there."""
        begin = at - self._chunk_at
        if not 0 <= begin <= len(self._chunk) - HEADER_BYTES or not self._holds_header(begin):
            self._chunk, self._chunk_at, begin = self._read(at, _CHUNK_BYTES), at, 0
        head = read_head(self._chunk, begin)
        if head is not None and self._salt is None:
            self._salt = head.salt  # the segment's own header is damaged: the frames tell
        return head if head is not None and head.salt == self._salt else None

    def _holds_header(self, begin: int) -> bool:
        length = int.from_bytes(self._chunk[begin + 16 : begin + 18], "little")
        return begin + length <= len(self._chunk)

    def _read(self, at: int, most: int) -> bytes:
        return self._folder.files.pread(self._fd, min(most, self._end - at), at)

    def _take(self, take: Callable[[Frame], None], at: int, head: Head) -> None:
        begin = at - self._chunk_at
        if not head.flags & (SEQNOS | PRODUCERS):
            extension = self._chunk[begin + HEADER_BYTES : begin + head.header_length]
            take(Frame(head, extension, b""))
            return
        found = frame.read_frame(self._read(at, head.size), 0, head)
        if not found.check_body():
            logger.error(
                "damage hides which seqnos were stored",
                extra={"path": self._folder.segment_path(self._base), "byte": at},
            )
            return
        take(found)

    def _next_sound(self, at: int) -> int:
        """Where the next sound header behind damage is."""
        logger.error(
            "damage may hide which seqnos were stored",
            extra={"path": self._folder.segment_path(self._base), "byte": at},
        )
        data = self._read(at, self._end - at)
        found = data.find(MAGIC_BYTES, 8)
        while found >= 0:
            head = read_head(data, found) if found % 8 == 0 else None
            if head is not None and (self._salt is None or head.salt == self._salt):
                return at + found
            found = data.find(MAGIC_BYTES, found + 4)
        return self._end


def learn(facts: ProducerTable, found: Frame) -> None:
    """Take in what one frame says of its producers."""
    head = found.head
    if head.flags & PRODUCERS:
        _learn_each(facts, found)
        return
    named = found.producer()
    if named is None or not named[0].id:
        return  # a group without a producer has no seqnos
    who, seqno = named
    if head.flags & SEQNOS:
        seqno = found.seqnos(head.count - 1, head.count)[0] or 0
    elif head.count:
        seqno += head.count - 1
    facts.learn(Pair(who.id, who.group or ""), seqno, who.epoch, head.written_at)


def _learn_each(facts: ProducerTable, found: Frame) -> None:
    """A repacked frame: the last message of each producer tells."""
    count = found.head.count
    last = dict(zip(found.producers(0, count), range(count), strict=True))
    seqnos, written = found.seqnos(0, count), found.written_times(0, count)
    for who, place in last.items():
        if who is not None and who.id:
            facts.learn(Pair(who.id, who.group or ""), seqnos[place] or 0, who.epoch, written[place])


def facts_before(folder: Folder, base: int) -> ProducerTable:
    """The facts of everything before the sealed end of the log at `base`, a segment's first offset."""
    while True:
        facts, place = begin(folder, base)
        if place.segment >= base:
            return facts
        try:
            older = max(each for each in folder.segments() if each < base)
            fold_all(folder, facts, place, older, None)
            return facts
        except (FileNotFoundError, ValueError):
            if place.segment in folder.segments():
                raise


def facts_at(folder: Folder, offset: int) -> ProducerTable | None:
    """The facts of everything before an offset, read from the log; None when it does not tell any more."""
    bases = [base for base in folder.segments() if base <= offset]
    facts, first = ProducerTable(), 0
    for base in reversed(bases):
        found = load(folder, base)
        if found.facts is not None:
            facts, first = found.facts, base
            break
    if first not in bases:
        return None if offset else facts
    walk_frames(folder, lambda found: _learn_before(facts, found, offset), FoldPoint(first), bases[-1], None)
    return facts


def _learn_before(facts: ProducerTable, found: Frame, offset: int) -> None:
    """Take in what a frame says of offsets before another; a repacked one may reach beyond it."""
    head, count = found.head, offset - found.head.base
    if count >= max(head.count, 1):
        learn(facts, found)
    elif count > 0 and head.flags & PRODUCERS:
        for who, seqno in zip(found.producers(0, count), found.seqnos(0, count), strict=True):
            if who is not None and who.id:
                facts.learn(Pair(who.id, who.group or ""), seqno or 0, who.epoch, head.written_at)
    elif count > 0 and (named := found.producer()) is not None and named[0].id:
        who, first = named
        seqno = found.seqnos(count - 1, count)[0] or 0 if head.flags & SEQNOS else first + count - 1
        facts.learn(Pair(who.id, who.group or ""), seqno, who.epoch, head.written_at)


def keep_checkpoint(folder: Folder, base: int) -> None:
    """See that a sound checkpoint of everything before `base` lies on disk; raises `Corrupt`."""
    if load(folder, base).facts is not None:
        return
    save(folder, facts_before(folder, base), base)
    if load(folder, base).facts is None:
        raise Corrupt(folder.segment_path(base, PRODUCERS_FILE), 0, "what was just written")


def keep_later_checkpoint(folder: Folder, base: int) -> None:
    """See that a sound checkpoint lies at `base` or a later segment: then what lies before it may go."""
    for later in reversed([each for each in folder.segments() if each >= base]):
        if load(folder, later).facts is not None:
            return
    keep_checkpoint(folder, base)
