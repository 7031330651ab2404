"""Checking a partition: every frame, every index, the records. Reads only, and takes no lock.

The `.data` files are the truth, so what is wrong in them is *damage*: messages are lost. Indexes
and records are made again when they are missing or wrong, and a torn tail that nobody has cut off
yet holds nothing that was ever acknowledged: these are *notes*.

Writers may be at work meanwhile. What they may still change is read before what it is compared
with: the durable end before the data, the segments before the start.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress

from penstock.errors import Corrupt, UnknownFormat
from penstock.findings import Checked, Finding, damage, note
from penstock.log import lost, producer_table, segment_index
from penstock.log.folder import COMPANIONS, GATE_PRODUCERS, INDEX, KEY_INDEX, PRODUCERS, Folder
from penstock.log.frame_columns import Buffer
from penstock.log.key_index import StoredKeys
from penstock.log.lost import Lost
from penstock.log.records import DURABLE_AT, DurableRecord, ShownRecord
from penstock.log.recovery import Survey, survey
from penstock.log.segment import SEGMENT_HEADER_BYTES, SegmentHead, parse_head, read_head
from penstock.log.segment_index import Index

_NO_RECORD = (
    "no sound record: the next writer makes it anew; "
    "what retention removed from a segment that is still there may be readable again"
)
_SYNC_FAILED = "a sync failed: look at the disk; what was not acknowledged will be cut off"
_FACTS_LOST = (
    "a damaged producer checkpoint: writers with a producer_id are refused; "
    "removing the file accepts that older seqnos may be stored again"
)
_FACTS_AGAIN = "a damaged producer checkpoint: the next vacuum makes it anew"
_LOST = "messages that were acknowledged and are lost"
_LOSSES_UNKNOWN = (
    "a damaged list of losses: every gap counts as one; removing the file forgets what was lost before"
)
_MISSING = "what was known of producers when partitions were added is missing"
_MADE_AGAIN = f"{_MISSING}: it is made again from the log"
_GONE = f"{_MISSING}: what they send again may be stored twice"
_TORN = "a torn tail, never acknowledged: the next writer cuts it off"


class PartitionVerifier:
    """Checks one partition, given its folder opened with `read_only=True`."""

    def __init__(
        self, folder: Folder, checked: Checked, *, sync: str = "disk",
        progress: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._folder = folder
        self._checked = checked
        self._progress = progress
        self._shows_unsynced = sync == "os"
        self._durable: DurableRecord | None = None
        self._shown: ShownRecord | None = None
        self._lost: list[Lost] = []
        #: The offset behind the last message, once all findings were taken.
        self.end = 0

    def findings(self) -> Iterator[Finding]:
        """Everything that is wrong, segment by segment. Raises `FileNotFoundError` without the folder."""
        self._checked.partitions += 1
        folder = self._folder
        self._shown, self._durable = folder.read_shown(), folder.read_durable()
        bases = folder.segments()
        if bases:
            yield from self._records()
        yield from self._losses()
        yield from self._missing_segments(bases)
        for number, base in enumerate(bases):
            yield from self._segment(base, bases[number + 1] if number + 1 < len(bases) else None)
        names = sorted(folder.files.listdir(folder.path))
        for name in names:
            if name.endswith(".cut"):
                yield note(folder.name(name), None, "a torn tail that recovery cut off and kept")
        yield from self._checkpoints(names, bases)

    def _losses(self) -> Iterator[Finding]:
        """What recovery found missing, as long as retention would not have taken it anyway."""
        path = self._folder.name(lost.FILE)
        try:
            found = lost.load(self._folder)
        except UnknownFormat as error:
            yield damage(path, None, f"{error.args[0]}: written by a newer Penstock")
            return
        if found is None:
            yield damage(path, 0, _LOSSES_UNKNOWN)
            return
        start = self._shown.start if self._shown is not None else 0
        self._lost = [each._replace(first=max(each.first, start)) for each in found if each.stop > start]
        for each in self._lost:
            yield damage(path, None, _LOST, each.first, each.stop)

    # What is known of producers.

    def _checkpoints(self, names: list[str], bases: list[int]) -> Iterator[Finding]:
        """Damaged checkpoints: a note where an older one, or all segments there ever were, make up for it."""
        folder, sound = self._folder, bases[:1] == [0]
        for name in names:
            if not name.endswith(PRODUCERS) or not name[:20].isdecimal():
                continue
            kind = GATE_PRODUCERS if name.endswith(GATE_PRODUCERS) else PRODUCERS
            try:
                found = producer_table.load(folder, int(name[:20]), kind)
            except UnknownFormat as error:
                yield damage(folder.name(name), None, f"{error.args[0]}: written by a newer Penstock")
                continue
            if found.facts is None and found.is_there:
                lost = kind == GATE_PRODUCERS or not sound
                yield damage(found.path, 0, _FACTS_LOST) if lost else note(found.path, 0, _FACTS_AGAIN)
            sound = sound or (kind == PRODUCERS and found.facts is not None)

    # The records.

    def _records(self) -> Iterator[Finding]:
        folder = self._folder
        for name, sound in (
            ("append", folder.read_append() is not None),
            ("tail", self._shown is not None and self._durable is not None),
        ):
            if not sound:
                yield note(folder.name(name), 0, _NO_RECORD)
        if self._durable is not None and self._durable.poisoned:
            yield note(folder.name("tail"), DURABLE_AT, _SYNC_FAILED, self._durable.end)

    def _missing_segments(self, bases: list[int]) -> Iterator[Finding]:
        path, durable, shown = self._folder.path, self._durable, self._folder.read_shown()
        if shown is not None and durable is not None:
            self.end = max(durable.end, shown.end if self._is_shown(shown) else 0)
        if durable is not None and (not bases or durable.segment > bases[-1]):
            gone = self._folder.segment_path(durable.segment)
            yield damage(gone, None, "the last segment is missing", durable.segment, durable.end)
        if bases and shown is not None and shown.start < bases[0]:
            yield damage(path, None, "segments are missing at the start", shown.start, bases[0])

    # One segment.

    def _segment(self, base: int, following: int | None) -> Iterator[Finding]:
        path = self._folder.segment_path(base)
        try:
            data = self._read(base, mapped=following is not None)
            head, found = parse_head(data), survey(data, base)
        except FileNotFoundError:
            return  # vacuumed away meanwhile
        except UnknownFormat as error:
            yield damage(path, None, f"{error.args[0]}: written by a newer Penstock", base, following)
            return
        rebuilt = segment_index.build(data, base, found)
        self._count(data, rebuilt)
        if head is not None:
            yield from self._strange(path, head, base)
        if following is None:
            yield from self._last_segment(path, data, base, found)
        else:
            yield from self._sealed_segment(path, data, base, following, found, rebuilt)

    def _sealed_segment(
        self, path: str, data: Buffer, base: int, following: int, found: Survey, rebuilt: Index
    ) -> Iterator[Finding]:
        if not found.headed:
            yield damage(path, 0, "damaged segment header")
        holes = list(_holes(path, found))
        byte, stop = _sound_end(found)
        if _is_dirty(data, byte):
            holes.append(damage(path, byte, "a damaged frame", stop, following))
            stop = following
        yield from holes
        stored = segment_index.load(self._folder, base, rebuilt.generation, rebuilt.salt)
        if stored is not None and stored.stop > stop:
            yield damage(path, byte, "frames are missing at the end", stop, stored.stop)
            stop = stored.stop
        elif not holes:
            yield from self._index(base, stored, rebuilt)
            yield from self._key_index(base, data)
        if following < stop:
            yield damage(path, byte, "offsets overlap with the next segment", following, stop)
        elif following > stop:
            yield from self._gap(stop, following)

    def _gap(self, stop: int, following: int) -> Iterator[Finding]:
        """Offsets between two segments: left out on purpose, or those of a file that is missing."""
        head = read_head(self._folder, following)
        if head is not None and not head.behind_gap:
            yield damage(self._folder.segment_path(stop), None, "a missing segment", stop, following)
            return
        path = self._folder.segment_path(following)
        for first, behind in lost.outside((stop, following), self._lost):
            yield note(path, None, "offsets that were never given out", first, behind)

    def _last_segment(self, path: str, data: Buffer, base: int, found: Survey) -> Iterator[Finding]:
        byte, stop = _sound_end(found)
        end, self.end = self.end, max(self.end, stop)
        proven = self._proven(found, base)
        if not found.headed and max(proven, byte) > SEGMENT_HEADER_BYTES:
            yield damage(path, 0, "damaged segment header")
        elif not found.headed:
            yield note(path, 0, "a segment that was not begun: the next writer makes it anew")
        for hole in _holes(path, found):
            yield hole if proven > (hole.byte or 0) else _torn(hole)
        if byte < proven:
            dirty = _is_dirty(data, byte)
            yield damage(
                path, byte, "a damaged frame" if dirty else "frames are missing at the end", stop, end
            )
        elif _is_dirty(data, byte):
            yield _torn(damage(path, byte, "", stop))

    def _proven(self, found: Survey, base: int) -> int:
        """Up to which byte of the last segment there were frames that nobody may lose."""
        shown, durable = self._shown, self._durable
        proven = max((head.synced for _, head in found.beyond), default=0)
        if durable is not None and durable.segment == base:
            proven = max(proven, durable.byte)
        if shown is not None and self._is_shown(shown) and shown.segment == base:
            proven = max(proven, shown.byte)
        return proven

    def _is_shown(self, shown: ShownRecord) -> bool:
        """On sync="os" topics readers follow S; its end means nothing after a start of the machine."""
        return self._shows_unsynced and shown.boot == self._folder.boot

    def _strange(self, path: str, head: SegmentHead, base: int) -> Iterator[Finding]:
        folder = self._folder
        if head.base != base:
            yield damage(path, 24, f"the segment says that it begins with offset {head.base}", base)
        if folder.topic_id and head.topic_id != folder.topic_id:
            yield damage(path, 32, "the segment belongs to another topic", base)
        elif head.partition != folder.partition:
            yield damage(path, 40, f"the segment belongs to partition {head.partition}", base)

    def _index(self, base: int, stored: Index | None, rebuilt: Index) -> Iterator[Finding]:
        path = self._folder.segment_path(base, INDEX)
        if stored is None:
            files = self._folder.files
            there = all(files.exists(self._folder.segment_path(base, kind)) for kind in COMPANIONS)
            state = "the index is damaged or made for other data" if there else "the index is missing"
            yield note(path, None, f"{state}: readers make one for themselves, a vacuum stores it")
        elif not _equal(stored, rebuilt):
            yield note(path, None, "the index does not say what the data says: remove it, it is made anew")

    def _key_index(self, base: int, data: Buffer) -> Iterator[Finding]:
        """Only topics with an index of their keys have one; it may be missing at any time."""
        path, head = self._folder.segment_path(base, KEY_INDEX), parse_head(data)
        if head is None or not self._folder.files.exists(path):
            return
        stored = StoredKeys.open(self._folder, head)
        if stored is None or not stored.is_sound():
            what = "the key index is damaged or made for other data"
            yield note(path, None, f"{what}: readers make one for themselves, a vacuum stores it")

    def _read(self, base: int, *, mapped: bool) -> Buffer:
        """The segment's bytes. The last one is copied: it may be cut while we look at it."""
        files = self._folder.files
        fd = files.open(self._folder.segment_path(base), write=False)
        try:
            size = files.size(fd)
            if mapped and size:
                return memoryview(files.map(fd, size))
            return files.pread(fd, size, 0)
        finally:
            files.close(fd)

    def _count(self, data: Buffer, rebuilt: Index) -> None:
        checked = self._checked
        checked.segments += 1
        self._progress()
        checked.frames += len(rebuilt.offsets)
        checked.bytes += len(data)
        # A frame's count is four bytes, 24 behind its start.
        checked.messages += sum(int.from_bytes(data[at + 24 : at + 28], "little") for at in rebuilt.bytes)


def _holes(path: str, found: Survey) -> Iterator[Finding]:
    """Bytes between sound frames that are none, with the offsets lost in them."""
    byte, offset = found.byte, found.next
    for at, head in found.beyond:
        if at > byte or head.base > offset:
            what = "a damaged frame" if at > byte else "frames are missing"
            yield damage(path, byte, what, offset, head.base)
        byte, offset = at + head.size, head.stop


def _sound_end(found: Survey) -> tuple[int, int]:
    """The byte and the offset behind the last sound frame."""
    if not found.beyond:
        return found.byte, found.next
    at, head = found.beyond[-1]
    return at + head.size, head.stop


def _is_dirty(data: Buffer, byte: int) -> bool:
    """Whether anything but zeros lies behind `byte`."""
    return bool(bytes(data[byte:]).strip(b"\0"))


def _torn(hole: Finding) -> Finding:
    return hole._replace(severity="note", what=_TORN, first=None, stop=None)


def _equal(stored: Index, rebuilt: Index) -> bool:
    return all(getattr(stored, name) == getattr(rebuilt, name) for name in Index.__slots__)


def missing_gates(folder: Folder, gates: Collection[int]) -> Iterator[Finding]:
    """Tables that were kept where the partition ended at those moments, and are not there."""
    for offset in sorted(gates):
        path = folder.segment_path(offset, GATE_PRODUCERS)
        if folder.files.exists(path):
            continue
        known = producer_table.facts_at(folder, offset)
        if known is not None and len(known):
            yield note(path, None, _MADE_AGAIN)
        elif known is None and _has_producers(folder):
            yield damage(path, None, _GONE)


def _has_producers(folder: Folder) -> bool:
    with suppress(Corrupt):  # said elsewhere
        return len(producer_table.begin(folder)[0]) > 0
    return True
