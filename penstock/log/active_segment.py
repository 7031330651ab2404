"""The end of a partition as one process writes it: the active segment, its room, its roll.

Everything here happens under the append lock. What is published, and when, is said in docs/RECOVERY.md.
"""

from __future__ import annotations

import errno
import logging
import os

from penstock.clock import NANOSECONDS
from penstock.errors import Corrupt, NotDurable
from penstock.files import DISK_REFUSE, DISK_WARN, refusal
from penstock.log import records, segment
from penstock.log.folder import Folder
from penstock.log.records import AppendRecord, DurableRecord, ShownRecord
from penstock.log.segment import SEGMENT_HEADER_BYTES, ActiveSegment
from penstock.options import TopicOptions
from penstock.parse import KIB, MIB

logger = logging.getLogger("penstock.log")

#: On sync="os" topics so many offsets are set aside at a time, so that none is given twice after a power cut.
RESERVE = 2**20
#: The clock may be set back by less than this without anyone noticing; further back begins a new segment.
STEP_BACK_NS = 3600 * NANOSECONDS
_ALLOCATE_LEAST, _ALLOCATE_MOST = 64 * KIB, 8 * MIB


class Tip:
    """Where one process appends to one partition."""

    _shown: ShownRecord
    _durable: DurableRecord

    def __init__(self, folder: Folder, options: TopicOptions) -> None:
        self.folder = folder
        self.options = options
        self._active: ActiveSegment | None = None
        #: Segments this process sealed, whose indexes are to be made.
        self.sealed: list[int] = []

    def close(self) -> None:
        self._forget_active()

    # The active segment.

    def _segment(self, a: AppendRecord) -> ActiveSegment:
        if not self._is_headed(a):
            raise Corrupt(self.folder.segment_path(a.segment), 0, "damaged segment header")
        assert self._active is not None
        return self._active

    def _is_headed(self, a: AppendRecord) -> bool:
        """Open the active segment; False when its header is damaged."""
        if self._active is None or self._active.head.base != a.segment:
            self._forget_active()
            self._active = ActiveSegment.open(self.folder, a.segment)
        return self._active is not None

    def _forget_active(self) -> None:
        active, self._active = self._active, None
        if active is not None:
            active.close()

    def _allocate(self, active: ActiveSegment, need: int) -> None:
        free = self.folder.files.free_share(self.folder.path)
        if free < DISK_REFUSE:
            raise OSError(errno.ENOSPC, "less than 2 % of the disk is free")
        if free < DISK_WARN:
            logger.warning("less than 10 %% of the disk is free", extra={"path": self.folder.path})
        step = min(max(need, _ALLOCATE_LEAST), _ALLOCATE_MOST)
        reach = max(need, min(need + step, segment_bytes(self.options)))
        self.folder.files.allocate(active.fd, 0, reach)
        if active.allocated:  # what lies there goes to the disk while we go on: the roll will wait less
            self.folder.files.start_writeback(active.fd, 0, active.allocated)
        active.allocated = reach

    def _written_at(self, a: AppendRecord) -> int:
        now = self.folder.clock.now_ns()
        if a.last_written_at > now + STEP_BACK_NS:
            return now
        return max(now, a.last_written_at)

    def _is_full(self, a: AppendRecord, size: int, now: int) -> bool:
        if a.next == a.segment:
            return False  # it holds no message, perhaps a fence; a new one would have the same name
        if a.byte + size > segment_bytes(self.options):
            return True
        if now < a.last_written_at:
            back_s = (a.last_written_at - now) / NANOSECONDS
            logger.warning(
                "the clock was set back by %.0f s: new segment", back_s, extra={"path": self.folder.path}
            )
            return True
        return now - self._segment(a).head.created > self.options.segment_age_s * NANOSECONDS

    # The roll.

    def _roll(self, a: AppendRecord, now: int) -> AppendRecord:
        """Seal the active segment and begin the next one behind it."""
        files, old = self.folder.files, self._segment(a)
        try:
            files.sync(old.fd)
        except OSError as error:
            self._poison()
            raise NotDurable(f"{self.folder.path}: the disk failed to sync: {error}") from error
        a = a._replace(flags=a.flags | records.ROLLING, last_written_at=now, pid=os.getpid())
        self.folder.publish_append(a)
        return self._finish_roll(a)

    def _finish_roll(self, a: AppendRecord) -> AppendRecord:
        files, old = self.folder.files, self._segment(a)
        files.truncate(old.fd, a.byte)
        try:
            leaves_gap = bool(a.flags & records.LEAVING_GAP)
            fd = segment.create(self.folder, a.next, a.last_written_at, behind_gap=leaves_gap)
        except OSError as error:
            raise refusal(self.folder.path, error) from error
        files.close(fd)
        self.sealed.append(a.segment)
        self._forget_active()
        a = a._replace(
            flags=a.flags & ~(records.ROLLING | records.LEAVING_GAP),
            segment=a.next, byte=SEGMENT_HEADER_BYTES, pid=os.getpid(),
        )  # fmt: skip
        self.folder.publish_append(a)
        if self.options.sync == "os":
            self._show(a)
        self._move_durable_end(a)
        return a

    # What others see of it.

    def _show(self, a: AppendRecord) -> None:
        """On sync="os" topics readers follow the writers, not the disk."""
        shown = self._shown
        self._shown = ShownRecord(shown.flags, shown.tree, shown.boot, shown.start, a.next, a.segment, a.byte)
        self.folder.publish_shown(self._shown)

    def _reserve(self, a: AppendRecord, next_offset: int) -> AppendRecord:
        """Set offsets aside, durably; the mark tells the next writer when we die or fail before they are."""
        reserved = a._replace(reserved=next_offset + RESERVE)
        self.folder.publish_append(reserved._replace(flags=a.flags | records.RESERVING))
        try:
            self.folder.files.sync(self.folder.append_fd)
        except OSError as error:
            raise refusal(self.folder.path, error) from error
        return reserved._replace(flags=a.flags & ~records.RESERVING)

    def _move_durable_end(self, a: AppendRecord) -> None:
        """After a roll all before the new segment is durable; readers may take the old one as sealed."""
        with self.folder.tail:
            durable = self.folder.read_durable()
            if durable is not None and not durable.poisoned:
                self._publish_durable_end(durable, a)

    def _publish_durable_end(self, durable: DurableRecord, a: AppendRecord) -> None:
        """All that A covers is durable. The tail lock is held."""
        self._durable = durable._replace(end=a.next, segment=a.segment, byte=a.byte)
        self.folder.publish_durable(self._durable)

    def _sync_to(self, a: AppendRecord) -> None:
        """Make all that is appended durable. The tail lock is held."""
        durable = self.folder.read_durable()
        if durable is None or durable.poisoned:
            raise NotDurable(f"{self.folder.path}: a sync failed", hint="look at the disk; then try again")
        try:
            self.folder.files.sync(self._segment(a).fd)
        except OSError as error:
            self.folder.publish_durable(durable._replace(flags=durable.flags | records.POISONED))
            raise NotDurable(f"{self.folder.path}: the disk failed to sync: {error}") from error
        self._publish_durable_end(durable, a)

    def _poison(self) -> None:
        with self.folder.tail:
            durable = self.folder.read_durable()
            if durable is not None:
                self.folder.publish_durable(durable._replace(flags=durable.flags | records.POISONED))


def segment_bytes(options: TopicOptions) -> int:
    """When to roll; a topic held to few bytes has small segments, or its newest would go with its oldest."""
    if options.max_bytes is None:
        return options.segment_bytes
    return min(options.segment_bytes, max(options.max_bytes // 4, 64 * KIB))
