"""Recovery: the first writer or reader after a start of the machine finds out what survived.

The last segment is read from its start with every checksum. At the first bad frame P:

    a later sound frame, or D, says that P was durable   damage: everything stays, it is reported,
                                                         and writing goes on in a new segment
    nothing says so                                      a torn tail: the rest is copied to `.cut`
                                                         and cut off

Then what committed transactions have not appended yet is appended, at the offsets they were given; what
they staged and is gone is a loss.
The next offset is the highest of: the end found, the offsets reserved, the highest position a consumer
committed. If that leaves a gap a new segment begins there: a gap is legal, reuse is not. What of the gap
was acknowledged once is no gap but a loss, and stays known as one (`lost`).

A partition that was split stays so: its seal, the last frame, tells, or the store where that is damaged; S
alone does not.
"""

from __future__ import annotations

import logging
import os
from typing import NamedTuple

from penstock.locks import hold
from penstock.log import frame, lost, segment
from penstock.log.folder import Folder
from penstock.log.frame_columns import Buffer
from penstock.log.frame_header import MAGIC_BYTES, Head, read_head
from penstock.log.lineage import is_seal
from penstock.log.records import SEALED, AppendRecord, DurableRecord, ShownRecord
from penstock.log.segment import SEGMENT_HEADER_BYTES, parse_head
from penstock.log.staging import (
    End,
    PartitionState,
    becomes_segment,
    copy_in,
    is_missing,
    take_segment,
    total_size,
)
from penstock.options import TopicOptions

logger = logging.getLogger("penstock.log")

#: store/topics/<name>/parts/<partition>
FOLDERS_ABOVE = 4
#: Set aside when the record that would tell how many were is itself lost.
_RESERVE_UNKNOWN = 2**20


class Survey(NamedTuple):
    """What a segment's bytes hold."""

    #: Where the sound frames end, in bytes and in offsets.
    byte: int
    next: int
    last_written_at: int
    #: Sound frames behind a bad one, if there are any: (byte, header).
    beyond: tuple[tuple[int, Head], ...]
    #: Bytes that are not zero lie behind the sound frames.
    dirty: bool
    #: The segment's own header is sound.
    headed: bool
    #: Its last sound frame is a seal.
    sealed: bool = False


def recover(folder: Folder, options: TopicOptions, state: PartitionState) -> None:
    """Bring the partition into a sound state and publish A, S and D. The append lock is held."""
    a, shown, durable = folder.read_append(), folder.read_shown(), folder.read_durable()
    bases = folder.segments()
    now = folder.clock.now_ns()
    known = _known_end(folder, options, state, a, durable)
    if not bases:
        _make_reachable(folder)
        start = shown.start if shown is not None else 0
        first = max(known, state.highest_position(), a.reserved if a else 0, a.next if a else 0, start)
        is_loss = _note_losses(folder, start, known, state)
        folder.files.close(segment.create(folder, first, now, behind_gap=first > 0))
        end = _End(first, first, SEGMENT_HEADER_BYTES, now)
        floor = first
    else:
        end = _repair_last(folder, bases[-1], durable, now)
        start = shown.start if shown is not None else bases[0]
        floor = max(_reserved(a, options, end.next), state.highest_position(), known)
        is_loss = not end.shows_damage and _note_losses(folder, end.next, known, state)
    missing = _note_missing(folder, end.next, state)
    floor, is_loss = max(floor, missing), is_loss or missing > 0
    is_sealed = end.sealed or (end.damaged and state.is_split())
    end = _bring_in_all(folder, end, state, now)
    if end.damaged or (floor > end.next and not is_sealed):
        end = _begin_segment(folder, max(end.next, floor, end.segment + 1), end, now)
    cuts = durable.cuts if durable is not None else 0
    if is_loss:
        cuts = (cuts + 1) & 0xFFFF  # D passes what is lost: who waits for it must not take that for its sync
    _publish(folder, end, start, a, _flags(shown, is_sealed), cuts)


def _known_end(
    folder: Folder, options: TopicOptions, state: PartitionState, a: AppendRecord | None,
    durable: DurableRecord | None,
) -> int:  # fmt: skip
    """Up to which offset messages were acknowledged for sure, or left out on purpose.

    D says so, and A as long as the machine runs. What consumers have read was durable, except on
    sync="os" topics, where it is there as long as the machine runs. Files that go with a segment prove that
    there was one.
    """
    known = durable.end if durable is not None else 0
    is_of_boot = a is not None and a.boot == folder.boot
    if a is not None and is_of_boot and not a.rolling:
        known = max(known, a.next)
    if options.sync == "disk" or is_of_boot:
        known = max(known, state.highest_position())
    return max(known, *folder.witnessed(), 0)


def _note_losses(folder: Folder, end: int, known: int, state: PartitionState) -> bool:
    """Keep for ever what was acknowledged behind the end that was found, and nobody brings back.

    Before anything else is changed: from then on nothing tells that it was there. False when nothing is lost.
    """
    pieces = [(piece.base, piece.stop) for piece in state.unfinished()]
    ranges = lost.outside((end, known), pieces)
    for first, stop in ranges:
        lost.note(folder, first, stop)
    return bool(ranges)


def _note_missing(folder: Folder, end: int, state: PartitionState) -> int:
    """Keep for ever what transactions have committed and whose files are gone; the offset behind it, or 0."""
    behind = 0
    for piece in state.unfinished():
        if piece.stop > end and is_missing(folder, piece):
            lost.note(folder, max(piece.base, end), piece.stop)
            behind = max(behind, piece.stop)
    return behind


def _begin_segment(folder: Folder, first: int, end: _End, now: int) -> _End:
    """Begin a new segment, with a gap before it."""
    created = max(now, end.last_written_at)
    folder.files.close(segment.create(folder, first, created, behind_gap=True))
    return _End(first, first, SEGMENT_HEADER_BYTES, end.last_written_at)


def _bring_in_all(folder: Folder, end: _End, state: PartitionState, now: int) -> _End:
    """Append what committed transactions lack, durably: each segment before the next one begins."""
    missing = [
        piece for piece in state.unfinished() if piece.stop > end.next and not is_missing(folder, piece)
    ]
    share = total_size(missing)
    for piece in missing:
        if end.damaged or end.next < piece.base:  # what came before it went with the power
            first = max(end.next, piece.base, end.segment + 1)
            if end.next <= piece.base < first:
                piece = piece._replace(base=first)
                state.move([piece])
            _sync_segment(folder, end.segment)
            end = _begin_segment(folder, first, end, now)
        at = End(end.next, end.segment, end.byte, max(now, end.last_written_at))
        if becomes_segment(folder, at, piece, share):
            _sync_segment(folder, end.segment)
            end = _End(*take_segment(folder, at, piece))
        else:
            end = _End(*copy_in(folder, at, piece))
    if missing:
        _sync_segment(folder, end.segment)
        logger.info(
            "brought in %d pieces of committed transactions", len(missing), extra={"path": folder.path}
        )
    return end


def _sync_segment(folder: Folder, base: int) -> None:
    fd = folder.files.open(folder.segment_path(base))
    try:
        folder.files.sync(fd)
    finally:
        folder.files.close(fd)


def _make_reachable(folder: Folder) -> None:
    """Make the folders above a new partition durable: with one of their entries all of it would be lost.

    The process that made them may have died before doing so.
    """
    path = folder.path
    for _ in range(FOLDERS_ABOVE):
        path = os.path.dirname(path)
        folder.files.sync_dir(path)


class _End(NamedTuple):
    """Where a partition ends: what A, S and D are made of."""

    next: int
    segment: int
    byte: int
    last_written_at: int
    damaged: bool = False
    #: What is damaged lies at the end of the file, for all to see.
    shows_damage: bool = False
    #: Behind a seal.
    sealed: bool = False


def _repair_last(folder: Folder, base: int, durable: DurableRecord | None, now: int) -> _End:
    """Cut a torn tail off the last segment, or leave a damaged one as it is; make it durable."""
    files = folder.files
    fd = files.open(folder.segment_path(base))
    try:
        data = files.pread(fd, files.size(fd), 0)
        found = survey(data, base)
        if is_damage(found, base, durable):
            files.sync(fd)  # what is not damaged may be in memory only, if the machine was not restarted
            return _behind_damage(folder, base, found, data)
        if found.dirty:
            _keep_cut(folder, base, data, found.byte)
        files.truncate(fd, found.byte)
        files.sync(fd)
    finally:
        files.close(fd)
    if found.byte == SEGMENT_HEADER_BYTES:
        # Its maker may have died, or failed to sync it: neither its header nor its name may be durable.
        head = parse_head(data)
        gap = head.behind_gap if head is not None else True
        files.close(segment.create(folder, base, found.last_written_at or now, behind_gap=gap))
    return _End(found.next, base, found.byte, found.last_written_at, sealed=found.sealed)


def survey(data: Buffer, base: int) -> Survey:
    """Find the sound frames of a segment, and whether anything lies behind them."""
    head = parse_head(data)
    salt = head.salt if head is not None else None
    byte, expected, last = SEGMENT_HEADER_BYTES, base, head.created if head is not None else 0
    sealed = False
    for at, found in frame.walk(data, SEGMENT_HEADER_BYTES):
        if salt is None:
            salt = found.head.salt
        if found.head.salt != salt or found.head.base != expected:
            break
        byte, expected, last = at + found.head.size, found.head.stop, found.last_written_at
        sealed = is_seal(found.head)
    rest = bytes(data[byte:])
    dirty = bool(rest.strip(b"\0"))
    beyond = tuple(_frames_beyond(data, byte, expected, salt)) if dirty else ()
    if beyond:
        sealed = is_seal(beyond[-1][1])
    return Survey(byte, expected, last, beyond, dirty, head is not None, sealed)


def _frames_beyond(data: Buffer, byte: int, expected: int, salt: int | None) -> list[tuple[int, Head]]:
    """Sound frames of this segment behind a bad one, found by their magic at 8-byte steps."""
    found: list[tuple[int, Head]] = []
    whole = bytes(data)
    magic = MAGIC_BYTES
    at = whole.find(magic, byte)
    while at >= 0:
        head = read_head(whole, at) if at % 8 == 0 else None
        sound = (
            head is not None
            and (salt is None or head.salt == salt)
            and head.base >= expected
            and at + head.size <= len(whole)
            and frame.read_frame(whole, at, head).check_body()
        )
        if sound:
            assert head is not None
            found.append((at, head))
            salt, expected = head.salt, head.stop
            at = whole.find(magic, at + head.size)
        else:
            at = whole.find(magic, at + 4)
    return found


def is_damage(found: Survey, base: int, durable: DurableRecord | None) -> bool:
    """Whether what lies behind the sound frames was durable once, and is not a torn tail."""
    if durable is not None and durable.segment == base and durable.byte > found.byte:
        return True
    if not found.headed and (found.next > base or found.beyond):
        return True  # the segment's header was synced before any frame was written
    return any(head.synced > found.byte for _, head in found.beyond)


def _behind_damage(folder: Folder, base: int, found: Survey, data: Buffer) -> _End:
    """The end behind the last sound frame; the file stays as it is."""
    path = folder.segment_path(base)
    damaged_at = found.byte if found.headed else 0
    logger.error("damage in %s at byte %d: kept, writing goes on in a new segment", path, damaged_at)
    stop, byte, last = found.next, found.byte, found.last_written_at
    if found.beyond:
        at, head = found.beyond[-1]
        stop, byte, last = head.stop, at + head.size, head.written_at
    shows_damage = bool(bytes(data[byte:]).strip(b"\0"))
    return _End(stop, base, byte, last, damaged=True, shows_damage=shows_damage, sealed=found.sealed)


def _keep_cut(folder: Folder, base: int, data: Buffer, byte: int) -> None:
    """Keep a copy of a torn tail beside the segment."""
    files = folder.files
    rest = bytes(data[byte:]).rstrip(b"\0")
    cut = files.open(folder.segment_path(base, f".{byte}.cut"), create=True)
    try:
        files.truncate(cut, 0)
        files.pwrite(cut, rest, 0)
        files.sync(cut)
    finally:
        files.close(cut)
    logger.warning("cut %d torn bytes off %s", len(rest), folder.segment_path(base))


def _flags(shown: ShownRecord | None, is_sealed: bool) -> int:
    """S.flags: whether the topic was dropped is known from S, whether the partition was split is not."""
    flags = shown.flags & ~SEALED if shown is not None else 0
    return flags | SEALED if is_sealed else flags


def _reserved(a: AppendRecord | None, options: TopicOptions, end: int) -> int:
    if options.sync != "os":
        return 0
    return end + _RESERVE_UNKNOWN if a is None else a.reserved


def _publish(
    folder: Folder,
    end: _End,
    start: int,
    a: AppendRecord | None,
    flags: int,
    cuts: int,
) -> None:
    tree = a.tree if a is not None else 0
    a = AppendRecord(
        0, tree, folder.boot, folder.pid, end.byte, end.next, end.segment, end.next, end.last_written_at, 0
    )
    folder.publish_append(a)
    folder.publish_shown(ShownRecord(flags, tree, folder.boot, start, end.next, end.segment, end.byte))
    record = DurableRecord(0, cuts, folder.boot, end.next, end.segment, end.byte)
    hold((folder.tail,), lambda: folder.publish_durable(record))
    folder.files.sync(folder.append_fd)
    folder.sync_tail()
