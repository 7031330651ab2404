"""Finishing what others left: after this, the end of a partition is sound and nothing is under way.

    another boot, or damaged records     recover
    a failed sync                        cut back to what is durable
    a roll half done                     finish it
    frames behind A                      adopt the sound ones, cut off the rest
    a transaction announced              bring it in if it was committed, else forget it

Everything here happens under the append lock.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence

from penstock.errors import Corrupt, NotDurable, PenstockError
from penstock.files import refusal
from penstock.log import frame, records
from penstock.log.active_segment import Tip
from penstock.log.folder import Folder
from penstock.log.records import AppendRecord, DurableRecord, ShownRecord
from penstock.log.recovery import recover
from penstock.log.segment import SEGMENT_HEADER_BYTES, ActiveSegment
from penstock.log.staging import (
    End,
    PartitionState,
    PlacedPiece,
    becomes_segment,
    bring_in,
    has_become_segment,
    remove_file,
)
from penstock.options import TopicOptions
from penstock.parse import MIB

logger = logging.getLogger("penstock.log")

#: So much is written again at a time.
_AGAIN_BYTES = 8 * MIB


class Repair(Tip):
    """The end of a partition, mended before it is used."""

    def __init__(
        self,
        folder: Folder,
        options: TopicOptions,
        committed: Callable[[], int],
        require_topic: Callable[[], object],
        ledger: PartitionState,
    ) -> None:
        super().__init__(folder, options)
        self._committed = committed
        self._require_topic = require_topic
        self._ledger = ledger
        #: (transaction, piece) → its new first offset, of those this process moved behind a failed sync.
        self.moved: dict[tuple[int, int], int] = {}

    def ready_at_once(self) -> AppendRecord | None:
        """A, if nothing is left to finish; None if there is. The append lock is held."""
        folder = self.folder
        a, tail = folder.read_append(), folder.read_tail()
        if a is None or tail is None or not a.boot == tail[0].boot == tail[1].boot == folder.boot:
            return None
        shown, durable = tail
        if shown.dropped or durable.poisoned or a.rolling or a.pending or not self._is_headed(a):
            return None
        if folder.files.pread(self._segment(a).fd, 8, a.byte).strip(b"\0"):
            return None
        self._shown, self._durable = tail
        return a

    def ready(self) -> AppendRecord:
        """A, when nothing is left to finish. The append lock is held."""
        return self.ready_at_once() or self._mended()

    def _mended(self) -> AppendRecord:
        """A, after what was left is finished."""
        folder = self.folder
        a, tail = folder.read_append(), folder.read_tail()
        if tail is not None and tail[0].dropped:
            # We have the lock, so whoever dropped it is done, or died before the rows were gone.
            self._require_topic()
        if a is None or tail is None or not a.boot == tail[0].boot == tail[1].boot == folder.boot:
            a, tail = self._recovered()
        elif not self._is_headed(a):
            a, tail = self._recovered()  # keeps it as it is, and begins a new segment
        shown, durable = tail
        if shown.dropped:
            shown = shown._replace(flags=shown.flags & ~records.DROPPED)
            folder.publish_shown(shown)
        self._shown, self._durable = shown, durable
        if durable.poisoned:
            a = self._cut_back(a, durable)
        if a.rolling:
            a = self._finish_roll(a)
        if folder.files.pread(self._segment(a).fd, 8, a.byte).strip(b"\0"):
            a = self._adopt(a)
        if a.pending:
            a = self._finish_transactions(a)
        return a

    def finish_transactions(self) -> None:
        """See to it that all that is committed is here, durably."""
        self._finish_transactions(self.ready())

    def _recovered(self) -> tuple[AppendRecord, tuple[ShownRecord, DurableRecord]]:
        self._forget_active()
        try:
            a = recover(self.folder, self.options, self._committed, self._ledger)
            self._settle(self._ledger.unfinished())
        except (PenstockError, FileNotFoundError):
            raise  # without its folder the topic was dropped meanwhile: those above know
        except OSError as error:
            raise refusal(self.folder.path, error) from error
        tail = self.folder.read_tail()
        assert tail is not None
        return a, tail

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

    # A failed sync.

    def _cut_back(self, a: AppendRecord, durable: DurableRecord) -> AppendRecord:
        """After a failed sync: what is not durable goes, and a new segment begins behind it.

        On sync="os" topics readers have seen it, so it stays. Its offsets are not given again.
        """
        files, active = self.folder.files, self._segment(a)
        if a.pending:
            a, durable = self._with_new_segment(a, durable)
            active = self._segment(a)
        if self.options.sync == "disk":
            byte = durable.byte if durable.segment == a.segment else SEGMENT_HEADER_BYTES
            files.truncate(active.fd, byte)
            self._sync_cut(active)
            logger.error(
                "a sync failed: cut back to the durable end",
                extra={"path": self.folder.path, "first": durable.end, "stop": a.next},
            )
            a = a._replace(byte=byte)
        else:
            self._write_again(a, durable)
        flags = a.flags | records.ROLLING | records.LEAVING_GAP
        first = max(a.next, a.segment + 1)  # the new segment needs a name of its own
        pending = self._move_pieces(durable.end if self.options.sync == "disk" else a.next, first)
        a = a._replace(
            flags=flags, next=first, last_written_at=self._written_at(a), pid=os.getpid(), pending=pending
        )
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

    def _with_new_segment(
        self, a: AppendRecord, durable: DurableRecord
    ) -> tuple[AppendRecord, DurableRecord]:
        """A staged file that became a segment is durable: cutting begins behind it."""
        taken = [piece for piece in self._ledger.unfinished() if has_become_segment(self.folder, piece)]
        if taken and taken[-1].stop > a.next:
            a = _ending(a, bring_in(self.folder, End(a.next, a.segment, a.byte, 0), taken[-1]))
            durable = durable._replace(end=a.next, segment=a.segment, byte=a.byte)
        return a, durable

    def _move_pieces(self, end: int, first: int) -> int:
        """What committed transactions brought in behind `end`, or did not yet, comes from `first` on.

        Returns the mark with which the next step finds them: not 0 if there are any.
        """
        lost = [piece for piece in self._ledger.unfinished() if piece.base >= end]
        moved = []
        for piece in lost:
            moved.append(piece._replace(base=first))
            first = moved[-1].stop
        if moved:
            self._ledger.move(moved)
            self.moved = {(piece.tx, piece.number): piece.base for piece in moved}
        return moved[0].tx if moved else 0

    def _write_again(self, a: AppendRecord, durable: DurableRecord) -> None:
        """What readers have seen of a committed transaction stays where it is, and must become durable.

        The sync that failed may have left it in memory only, as if it were on the disk. Written again, it
        is synced again.
        """
        if not any(durable.end < piece.stop and piece.base < a.next for piece in self._ledger.unfinished()):
            return
        files, active = self.folder.files, self._segment(a)
        at = durable.byte if durable.segment == a.segment else SEGMENT_HEADER_BYTES
        while at < a.byte:
            data = files.pread(active.fd, min(_AGAIN_BYTES, a.byte - at), at)
            if not data:
                raise Corrupt(self.folder.segment_path(a.segment), at, "a transaction's messages are gone")
            files.pwrite(active.fd, data, at)
            at += len(data)
        for length in (a.byte + 8, a.byte):  # so does its length, once it has changed
            files.truncate(active.fd, length)
        self._sync_cut(active)

    def _sync_cut(self, active: ActiveSegment) -> None:
        """Make a cut durable, or parts of what was cut off return with the next boot.

        This is not the sync that failed tried again: all that is left in the file was durable before.
        """
        try:
            self.folder.files.sync(active.fd)
        except OSError as error:
            raise NotDurable(f"{self.folder.path}: the disk failed to sync: {error}") from error

    # Transactions.

    def _finish_transactions(self, a: AppendRecord) -> AppendRecord:
        """A process died between announcing a transaction and forgetting it: do what it did not.

        Without a record it was not committed, and only the announcement goes.
        """
        pieces = self._ledger.unfinished()
        a = self._bring_in(a, pieces)
        if pieces:
            logger.info("finished a transaction of a process that died", extra={"path": self.folder.path})
            with self.folder.tail:
                self._sync_to(a)
            self._settle(pieces)
        return a

    def _bring_in(self, a: AppendRecord, pieces: Sequence[PlacedPiece]) -> AppendRecord:
        now = self._written_at(a)
        for piece in pieces:
            if piece.stop <= a.next:
                continue
            end = End(a.next, a.segment, a.byte, now)
            if becomes_segment(self.folder, end, piece):
                a = self._take_segment(a, end, piece)
            else:
                a = _ending(a, bring_in(self.folder, end, piece))
        a = a._replace(pending=0, pid=os.getpid())
        self.folder.publish_append(a)
        if self.options.sync == "os":
            self._show(a)
        return a

    def _take_segment(self, a: AppendRecord, end: End, piece: PlacedPiece) -> AppendRecord:
        """A staged file becomes the active segment; what came before it is durable first.

        No sync is under way meanwhile: were one to fail now, the next writer would cut off the new segment.
        """
        with self.folder.tail:
            self._sync_to(a)
            self.folder.files.truncate(self._segment(a).fd, a.byte)
            self.sealed.append(a.segment)
            a = _ending(a, bring_in(self.folder, end, piece))
            self._forget_active()
            self._publish_durable_end(self._durable, a)
        return a

    def _settle(self, pieces: Sequence[PlacedPiece]) -> None:
        """Pieces are durable where they belong: nobody needs what was staged any more."""
        for tx in {piece.tx for piece in pieces}:
            self._ledger.finish(tx)
        for piece in pieces:
            remove_file(self.folder, piece)


def _ending(a: AppendRecord, end: End) -> AppendRecord:
    return a._replace(next=end.next, segment=end.segment, byte=end.byte, last_written_at=end.last_written_at)
