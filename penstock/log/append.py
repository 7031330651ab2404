"""Appending: the one way frames get into a partition, by any process.

Under the append lock, in this order: finish what an earlier writer left (recover, adopt, a failed
sync, a roll), roll if the segment is full or old, write the frames, publish A. Everything that
takes time (encoding, the body's checksum, syncing) happens outside the lock.

A crash leaves at worst frames behind A (the next writer adopts the sound ones and cuts the rest)
or a roll half done (the next writer finishes it). See docs/RECOVERY.md.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.clock import NANOSECONDS
from penstock.errors import Corrupt, DiskFull, NotDurable, PenstockError, ReadOnly
from penstock.log import frame, records, segment
from penstock.log.encode import Draft
from penstock.log.folder import Folder
from penstock.log.records import AppendRecord, DurableRecord, ShownRecord
from penstock.log.recovery import recover
from penstock.log.segment import SEGMENT_HEADER_BYTES, ActiveSegment
from penstock.options import KIB, MIB, TopicOptions

logger = logging.getLogger("penstock.log")

#: On sync="os" topics so many offsets are set aside at a time, so that none is given twice after a power cut.
RESERVE = 2**20
#: The clock may be set back by less than this without anyone noticing; further back begins a new segment.
STEP_BACK_NS = 3600 * NANOSECONDS
_ALLOCATE_LEAST, _ALLOCATE_MOST = 64 * KIB, 8 * MIB
#: Below this share of free disk writes are refused; below the other one they are logged as a warning.
DISK_REFUSE, DISK_WARN = 0.02, 0.10


class Rerouted(Exception):
    """The partition tree changed since the caller routed: nothing was written, route again."""


class Appended(NamedTuple):
    """Where frames went: the first offset, the offset behind the last, and what to wait for."""

    first: int
    next: int
    #: How many cuts D had seen; `Syncer.sync` fails if there is one more.
    cuts: int


class Appender:
    """One process's way into one partition."""

    def __init__(
        self,
        folder: Folder,
        options: TopicOptions,
        committed: Callable[[], int],
        require_topic: Callable[[], object],
    ) -> None:
        self.folder = folder
        self.options = options
        self._committed = committed
        self._require_topic = require_topic
        self._active: ActiveSegment | None = None
        #: Segments this process sealed, whose indexes are to be made.
        self.sealed: list[int] = []

    def append(self, drafts: Sequence[Draft], *, tree: int | None = None) -> Appended:
        """Write frames side by side and let writers behind us see them; not yet durable.

        Raises `Rerouted` when `tree` is no longer the number of the partition tree.
        """
        try:
            with self.folder.append:
                a = self.ready()
                if tree is not None and a.tree != tree & 0xFFFF:
                    raise Rerouted
                size = sum(draft.size for draft in drafts)
                now = self._written_at(a)
                if self._is_full(a, size, now):
                    a = self._roll(a, now)
                return self._write(a, drafts, size, now)
        except (PenstockError, FileNotFoundError):
            raise
        except OSError as error:
            raise refusal(self.folder.path, error) from error
        except KeyboardInterrupt:
            self.folder.append.drop()
            raise

    def ready(self) -> AppendRecord:
        """A, when nothing is left to finish. The append lock is held."""
        folder = self.folder
        a, tail = folder.read_append(), folder.read_tail()
        if a is None or tail is None or not a.boot == tail[0].boot == tail[1].boot == folder.boot:
            a, tail = self._recovered()
        elif not self._is_headed(a):
            a, tail = self._recovered()  # keeps it as it is, and begins a new segment
        shown, durable = tail
        if shown.dropped:
            # We have the lock, so whoever dropped it is done, or died before the rows were gone.
            self._require_topic()
            shown = shown._replace(flags=shown.flags & ~records.DROPPED)
            folder.publish_shown(shown)
        self._shown, self._durable = shown, durable
        if durable.poisoned:
            a = self._cut_back(a, durable)
        if a.rolling:
            a = self._finish_roll(a)
        if folder.files.pread(self._segment(a).fd, 8, a.byte).strip(b"\0"):
            a = self._adopt(a)
        return a

    def _recovered(self) -> tuple[AppendRecord, tuple[ShownRecord, DurableRecord]]:
        self._forget_active()
        try:
            a = recover(self.folder, self.options, self._committed)
        except (PenstockError, FileNotFoundError):
            raise  # without its folder the topic was dropped meanwhile: those above know
        except OSError as error:
            raise refusal(self.folder.path, error) from error
        tail = self.folder.read_tail()
        assert tail is not None
        return a, tail

    def roll(self, a: AppendRecord) -> AppendRecord:
        """Seal the active segment and begin the next one behind it. The append lock is held."""
        return self._roll(a, self._written_at(a))

    def seal_active(self) -> None:
        """Begin a new segment behind the present end, if the active one holds anything."""
        with self.folder.append:
            a = self.ready()
            if a.byte > SEGMENT_HEADER_BYTES:
                self.roll(a)

    def publish_start(self, start: int) -> None:
        """Move the first readable offset, durably. The append lock is held."""
        shown = self.folder.read_shown()
        assert shown is not None
        self.folder.publish_shown(shown._replace(start=start))
        try:
            self.folder.files.sync(self.folder.tail_fd)
        except OSError as error:
            self.folder.publish_shown(shown)  # or the next trim would take it for durable
            raise refusal(self.folder.path, error) from error

    def publish_tree(self, tree: int) -> None:
        """Tell writers that the partition tree has changed. The append lock is held."""
        a = self.ready()
        self.folder.publish_append(a._replace(tree=tree & 0xFFFF, pid=os.getpid()))

    def publish_dropped(self) -> None:
        """Tell everyone that the topic is gone. The append lock is held."""
        self.ready()
        self.folder.publish_shown(self._shown._replace(flags=self._shown.flags | records.DROPPED))

    def lower_reserve(self) -> None:
        """On a clean close: offsets set aside and not used are given back, so that no gap stays."""
        with self.folder.append:
            a = self.ready()
            if a.reserved <= a.next:
                return
            try:
                self.folder.publish_append(a._replace(reserved=a.next))
                self.folder.files.sync(self.folder.append_fd)
            except OSError as error:  # then a gap stays
                logger.warning("offsets set aside could not be given back: %s", error)

    def close(self) -> None:
        self._forget_active()

    # What writing consists of. The append lock is held throughout.

    def _write(self, a: AppendRecord, drafts: Sequence[Draft], size: int, now: int) -> Appended:
        files, active = self.folder.files, self._segment(a)
        next_offset = a.next + sum(draft.count for draft in drafts)
        if self.options.sync == "os" and (next_offset > a.reserved or a.flags & records.RESERVING):
            a = self._reserve(a, next_offset)
        durable = self._durable
        synced = durable.byte if durable.segment == a.segment else 0
        parts: list[bytes | bytearray | memoryview] = []
        base = a.next
        for draft in drafts:
            parts.append(draft.header(base=base, written_at=now, synced=synced, salt=active.head.salt))
            parts.append(draft.body)
            base += draft.count
        try:
            if a.byte + size > active.allocated:
                self._allocate(active, a.byte + size)
            files.pwritev(active.fd, parts, a.byte)
            written = AppendRecord(
                a.flags,
                a.tree,
                a.boot,
                os.getpid(),
                a.byte + size,
                base,
                a.segment,
                a.reserved,
                now,
                a.pending,
            )
            self.folder.publish_append(written)
            if self.options.sync == "os":
                self._show(written)
        except OSError:
            self._take_back(a, active)
            raise
        return Appended(a.next, base, durable.cuts)

    def _take_back(self, a: AppendRecord, active: ActiveSegment) -> None:
        """Nothing of a failed write stays; if A cannot be put back, it stays whole."""
        if self.folder.read_append() != a:
            self.folder.publish_append(a)
        self.folder.files.truncate(active.fd, a.byte)
        active.allocated = 0

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

    def _written_at(self, a: AppendRecord) -> int:
        now = self.folder.clock.now_ns()
        if a.last_written_at > now + STEP_BACK_NS:
            return now
        return max(now, a.last_written_at)

    def _is_full(self, a: AppendRecord, size: int, now: int) -> bool:
        if a.byte <= SEGMENT_HEADER_BYTES:
            return False
        if a.byte + size > segment_bytes(self.options):
            return True
        if now < a.last_written_at:
            back_s = (a.last_written_at - now) / NANOSECONDS
            logger.warning(
                "the clock was set back by %.0f s: new segment", back_s, extra={"path": self.folder.path}
            )
            return True
        return now - self._segment(a).head.created > self.options.segment_age_s * NANOSECONDS

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

    # Finishing what others left.

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

    def _move_durable_end(self, a: AppendRecord) -> None:
        """After a roll all before the new segment is durable; readers may take the old one as sealed."""
        with self.folder.tail:
            durable = self.folder.read_durable()
            if durable is not None and not durable.poisoned:
                self._durable = durable._replace(end=a.next, segment=a.segment, byte=a.byte)
                self.folder.publish_durable(self._durable)

    def _adopt(self, a: AppendRecord) -> AppendRecord:
        """Take over sound frames a dead writer left behind A, and cut off what is not sound."""
        files, active = self.folder.files, self._segment(a)
        size = files.size(active.fd)
        data = files.pread(active.fd, size - a.byte, a.byte)
        byte, next_offset, last = 0, a.next, a.last_written_at
        for at, found in frame.walk(data):
            head = found.head
            if head.salt != active.head.salt or head.base != next_offset:
                break
            byte, next_offset, last = at + head.size, head.stop, head.written_at
        files.truncate(active.fd, a.byte + byte)
        active.allocated = 0
        logger.info(
            "took over %d messages of a writer that died",
            next_offset - a.next,
            extra={"path": self.folder.path},
        )
        a = a._replace(byte=a.byte + byte, next=next_offset, last_written_at=last, pid=os.getpid())
        self.folder.publish_append(a)
        if self.options.sync == "os":
            self._show(a)
        return a

    def _cut_back(self, a: AppendRecord, durable: DurableRecord) -> AppendRecord:
        """After a failed sync: what is not durable goes, and a new segment begins behind it.

        On sync="os" topics readers have seen it, so it stays. Its offsets are not given again.
        """
        files, active = self.folder.files, self._segment(a)
        if self.options.sync == "disk":
            byte = durable.byte if durable.segment == a.segment else SEGMENT_HEADER_BYTES
            files.truncate(active.fd, byte)
            self._sync_cut(active)
            logger.error(
                "a sync failed: cut back to the durable end",
                extra={"path": self.folder.path, "first": durable.end, "stop": a.next},
            )
            a = a._replace(byte=byte)
        flags = a.flags | records.ROLLING | records.LEAVING_GAP
        a = a._replace(flags=flags, last_written_at=self._written_at(a), pid=os.getpid())
        if a.next == a.segment:
            a = a._replace(next=a.next + 1)  # the new segment needs a name of its own
        self.folder.publish_append(a)
        a = self._finish_roll(a)
        with self.folder.tail:
            durable = durable._replace(
                flags=durable.flags & ~records.POISONED,
                cuts=(durable.cuts + 1) & 0xFFFF,
                end=a.next,
                segment=a.segment,
                byte=a.byte,
            )
            self.folder.publish_durable(durable)
        self._durable = durable
        return a

    def _sync_cut(self, active: ActiveSegment) -> None:
        """Make a cut durable, or parts of what was cut off return with the next boot.

        This is not the sync that failed tried again: all that is left in the file was durable before.
        """
        try:
            self.folder.files.sync(active.fd)
        except OSError as error:
            raise NotDurable(f"{self.folder.path}: the disk failed to sync: {error}") from error

    def _poison(self) -> None:
        with self.folder.tail:
            durable = self.folder.read_durable()
            if durable is not None:
                self.folder.publish_durable(durable._replace(flags=durable.flags | records.POISONED))

    def _forget_active(self) -> None:
        active, self._active = self._active, None
        if active is not None:
            active.close()


def segment_bytes(options: TopicOptions) -> int:
    """When to roll; a topic held to few bytes has small segments, or its newest would go with its oldest."""
    if options.max_bytes is None:
        return options.segment_bytes
    return min(options.segment_bytes, max(options.max_bytes // 4, 64 * KIB))


def refusal(path: str, error: OSError) -> PenstockError:
    """What the system's error means for whoever wanted to write to a partition."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return DiskFull(
            f"{path}: {error.strerror or error}; nothing of this write stays",
            hint="free space, lower the retention and vacuum, then try again",
        )
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return ReadOnly(f"{path} cannot be written: {error.strerror}")
    return NotDurable(f"{path}: the write failed and was cut back: {error}")
