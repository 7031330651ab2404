"""The active segment as one process writes it: its room, its roll, and what others are shown of it.

Everything here happens under the append lock. What is published, and when, is said in docs/RECOVERY.md.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence

from penstock.clock import NANOSECONDS
from penstock.errors import Corrupt, NotDurable, TopicReplaced
from penstock.files import DISK_REFUSE, DISK_WARN, refusal
from penstock.locks import hold
from penstock.log import records, segment
from penstock.log.folder import Folder
from penstock.log.frame_encode import EncodedFrame
from penstock.log.records import AppendRecord, DurableRecord, Ends, make_append, make_ends, make_shown
from penstock.log.segment import SEGMENT_HEADER_BYTES, parse_head
from penstock.options import TopicOptions
from penstock.parse import KIB, MIB

logger = logging.getLogger("penstock.log")

#: On sync="os" topics so many offsets are set aside at a time, so that none is given twice after a power cut.
RESERVE = 2**20
#: The clock may be set back by less than this without anyone noticing; further back begins a new segment.
STEP_BACK_NS = 3600 * NANOSECONDS
_ALLOCATE_LEAST, _ALLOCATE_MOST = 64 * KIB, 8 * MIB
#: So much room is filled with zeros ahead of frames up to this size, which are synced one by one.
_FILL_BYTES, _SMALL_BYTES = 64 * KIB, 8 * KIB
_ZEROS = bytes(_FILL_BYTES)


class ActiveSegment:
    """The segment that is being appended to; opened again after each roll, whichever process did it."""

    def __init__(self, folder: Folder, options: TopicOptions) -> None:
        self.folder = folder
        self.fd = -1
        #: First offset of the segment that is open, or -1.
        self.base = -1
        self.salt = 0
        self.created = 0
        #: Up to here the file is known to reach, with zeros behind the last frame.
        self.allocated = 0
        #: Up to here its bytes are known to have been written, if only as zeros.
        self._filled = 0
        #: Segments this process sealed, whose indexes are to be made.
        self.sealed: list[int] = []
        self.use(options)

    def use(self, options: TopicOptions) -> None:
        """Go by these options from now on."""
        self.options = options
        #: On sync="os" topics readers follow the writers, not the disk.
        self.shows = options.sync == "os"
        self._limit = segment_bytes(options)
        self._age_ns = options.segment_age_s * NANOSECONDS

    # The file.

    def open(self, base: int) -> bool:
        """Open the segment unless it is open; False when its header is damaged."""
        if self.base == base:
            return True
        self.close()
        files = self.folder.files
        fd = files.open(self.folder.segment_path(base))
        try:
            head = parse_head(files.pread(fd, SEGMENT_HEADER_BYTES, 0))
            if head is not None and head.topic_id != self.folder.topic_id:
                raise TopicReplaced("the topic was dropped and created anew", hint="open it anew by its name")
        except BaseException:
            files.close(fd)
            raise
        if head is None:
            files.close(fd)
            return False
        self.fd, self.salt, self.created, self.allocated, self._filled = fd, head.salt, head.created, 0, 0
        self.base = base  # last: an interrupt before it leaves a segment that is not open
        return True

    def require(self, base: int) -> None:
        """Open the segment unless it is open; raise `Corrupt` when its header is damaged."""
        if not self.open(base):
            raise Corrupt(self.folder.segment_path(base), 0, "damaged segment header")

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        self.base = -1  # first, as in `open`
        fd, self.fd = self.fd, -1
        if fd >= 0:
            self.folder.files.close(fd)

    def truncate(self, byte: int) -> None:
        """Cut off what lies behind `byte`; what comes next allocates anew."""
        self.allocated = self._filled = 0
        self.folder.files.truncate(self.fd, byte)

    # Writing.

    def written_at(self, a: AppendRecord) -> int:
        """The time that frames written now get: times in a segment do not step back."""
        now = self.folder.clock.now_ns()
        last = a.last_written_at
        return now if now >= last or last > now + STEP_BACK_NS else last

    def is_full(self, a: AppendRecord, size: int, now: int) -> bool:
        """Whether a frame of `size` bytes belongs into a new segment."""
        if a.next == a.segment:
            return False  # it holds no message, perhaps a fence; a new one would have the same name
        if a.byte + size > self._limit:
            return True
        if now < a.last_written_at:
            back_s = (a.last_written_at - now) / NANOSECONDS
            logger.warning(
                "the clock was set back by %.0f s: new segment", back_s, extra={"path": self.folder.path}
            )
            return True
        if self.base != a.segment:
            self.require(a.segment)
        return now - self.created > self._age_ns

    def write(self, ends: Ends, frames: Sequence[EncodedFrame], size: int, now: int) -> Ends:
        """Write frames side by side behind A, and publish A. A failed write leaves nothing."""
        a, shown, durable = ends
        folder, files = self.folder, self.folder.files
        if self.base != a.segment:
            self.require(a.segment)
        synced = durable.byte if durable.segment == a.segment else 0
        parts: list[bytes | bytearray | memoryview] = []
        stop, salt = a.next, self.salt
        for frame in frames:
            parts.append(frame.header(base=stop, written_at=now, synced=synced, salt=salt))
            parts.append(frame.body)
            stop += frame.count
        if self.shows and (stop > a.reserved or a.flags & records.RESERVING):
            a = self.reserve(a, stop)
        end = a.byte + size
        try:
            if end > self.allocated:
                self._allocate(end)
            if end > self._filled and not self.shows:
                self._fill(a.byte, end)
            files.pwritev(self.fd, parts, a.byte)
            flags, tree, boot, _, _, _, base, reserved, _, pending = a
            written = make_append((flags, tree, boot, folder.pid, end, stop, base, reserved, now, pending))
            folder.publish_append(written)
            if self.shows:
                shown_flags, shown_tree, shown_boot, start, _, _, _ = shown
                shown = make_shown((shown_flags, shown_tree, shown_boot, start, stop, base, end))
                folder.publish_shown(shown)
        except OSError:
            self._take_back(a)
            raise
        return make_ends((written, shown, durable))

    def write_seal(self, ends: Ends, frame: EncodedFrame, now: int) -> Ends:
        """Write a seal, and publish A with the mark that it is one: nobody may append behind it."""
        a = ends.append
        try:
            marked = ends._replace(append=a._replace(flags=a.flags | records.SEALING, reserved=a.next))
            return self.write(marked, (frame,), frame.size, now)
        except OSError as error:
            self.folder.publish_append(a)  # the mark must not stay without a seal
            raise refusal(self.folder.path, error) from error

    def _take_back(self, a: AppendRecord) -> None:
        """Undo a failed write; if A cannot be put back, the write stays whole."""
        if self.folder.read_append() != a:
            self.folder.publish_append(a)
        self.truncate(a.byte)

    def _allocate(self, need: int) -> None:
        files = self.folder.files
        free = files.free_share(self.folder.path)
        if free < DISK_REFUSE:
            raise OSError(errno.ENOSPC, "less than 2 % of the disk is free")
        if free < DISK_WARN:
            logger.warning("less than 10 %% of the disk is free", extra={"path": self.folder.path})
        step = min(max(need, _ALLOCATE_LEAST), _ALLOCATE_MOST)
        reach = max(need, min(need + step, self._limit))
        files.allocate(self.fd, 0, reach)
        if self.allocated:  # what lies there goes to the disk while we go on: the roll will wait less
            files.start_writeback(self.fd, 0, self.allocated)
        self.allocated = reach

    def _fill(self, byte: int, need: int) -> None:
        """Write zeros ahead of small frames.

        The first write to allocated room changes what the file system knows of the file, and the sync that
        follows has to wait for its journal. So the journal is waited for once, not by each frame in turn.
        """
        self._filled = need
        if need - byte <= _SMALL_BYTES and need + _FILL_BYTES <= self.allocated:
            self.folder.files.pwrite(self.fd, _ZEROS, need)
            self._filled = need + _FILL_BYTES

    def reserve(self, a: AppendRecord, stop: int) -> AppendRecord:
        """Set offsets aside, durably; the mark tells the next writer if this process fails before that."""
        reserved = a._replace(reserved=stop + RESERVE)
        self.folder.publish_append(reserved._replace(flags=a.flags | records.RESERVING))
        try:
            self.folder.files.sync(self.folder.append_fd)
        except OSError as error:
            raise refusal(self.folder.path, error) from error
        return reserved._replace(flags=a.flags & ~records.RESERVING)

    # The roll.

    def roll(self, ends: Ends, now: int, *, first: int | None = None) -> Ends:
        """Seal the segment and begin the next one behind it; with `first` behind a gap, at that offset."""
        self.require(ends.append.segment)
        self.folder.require_place()
        try:
            self.folder.files.sync(self.fd)
        except OSError as error:
            self._poison()
            raise NotDurable(f"{self.folder.path}: the disk failed to sync: {error}") from error
        flags, behind = ends.append.flags | records.ROLLING, ends.append.next
        if first is not None:
            flags, behind = flags | records.LEAVING_GAP, first
        return self.finish_roll(self.publish(ends, flags=flags, next=behind, last_written_at=now))

    def finish_roll(self, ends: Ends) -> Ends:
        """Begin the segment that A announces; a process that began to may have died."""
        a = ends.append
        self.require(a.segment)
        self.truncate(a.byte)
        try:
            leaves_gap = bool(a.flags & records.LEAVING_GAP)
            fd = segment.create(self.folder, a.next, a.last_written_at, behind_gap=leaves_gap)
        except OSError as error:
            raise refusal(self.folder.path, error) from error
        self.folder.files.close(fd)
        self.sealed.append(a.segment)
        self.close()
        flags = a.flags & ~(records.ROLLING | records.LEAVING_GAP)
        ends = self.publish(ends, flags=flags, segment=a.next, byte=SEGMENT_HEADER_BYTES)
        return self._move_durable_end(self.show(ends))

    # What others see of it.

    def publish(self, ends: Ends, **changes: int) -> Ends:
        """Publish A with these changes, as this process."""
        a = ends.append._replace(pid=self.folder.pid, **changes)
        self.folder.publish_append(a)
        return ends._replace(append=a)

    def show(self, ends: Ends) -> Ends:
        """On sync="os" topics: let readers see all that is appended."""
        if not self.shows:
            return ends
        a = ends.append
        shown = ends.shown._replace(end=a.next, segment=a.segment, byte=a.byte)
        self.folder.publish_shown(shown)
        return ends._replace(shown=shown)

    def _move_durable_end(self, ends: Ends) -> Ends:
        """After a roll all before the new segment is durable; readers may take the old one as sealed."""

        def move() -> Ends:
            durable = self.folder.read_durable()
            if durable is None or durable.poisoned:
                return ends
            return self.publish_durable_end(ends._replace(durable=durable))

        return hold((self.folder.tail,), move)

    def publish_durable_end(self, ends: Ends) -> Ends:
        """Publish that all that A covers is durable. The tail lock is held."""
        a = ends.append
        durable = ends.durable._replace(end=a.next, segment=a.segment, byte=a.byte)
        self.folder.publish_durable(durable)
        return ends._replace(durable=durable)

    def sync(self, ends: Ends) -> Ends:
        """Make all that is appended durable. The tail lock is held."""
        durable = self.folder.read_durable()
        if durable is None or durable.poisoned:
            raise NotDurable(f"{self.folder.path}: a sync failed", hint="look at the disk; then try again")
        self.require(ends.append.segment)
        try:
            self.folder.files.sync(self.fd)
        except OSError as error:
            self.folder.publish_durable(poisoned(durable))
            raise NotDurable(f"{self.folder.path}: the disk failed to sync: {error}") from error
        return self.publish_durable_end(ends._replace(durable=durable))

    def _poison(self) -> None:
        def mark() -> None:
            durable = self.folder.read_durable()
            if durable is not None:
                self.folder.publish_durable(poisoned(durable))

        hold((self.folder.tail,), mark)


def poisoned(durable: DurableRecord) -> DurableRecord:
    """D with the mark that a sync has failed: the next writer cuts back to it."""
    return durable._replace(flags=durable.flags | records.POISONED)


def segment_bytes(options: TopicOptions) -> int:
    """The size at which to roll: small where `max_bytes` is, or the newest would go with the oldest."""
    if options.max_bytes is None:
        return options.segment_bytes
    return min(options.segment_bytes, max(options.max_bytes // 4, 64 * KIB))
