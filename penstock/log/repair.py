"""Repair the end of a partition: finish or undo what a writer that died left behind, before anyone appends.

    another boot, or damaged records     recover
    an end before consumers' positions   recover: the folder was put back to an earlier state
    a failed sync                        cut back to what is durable
    a roll half done                     finish it
    frames behind A                      adopt the sound ones, cut off the rest
    a seal that S does not show          make it durable, and show it
    S shows a seal that is not there     recover: files of different moments were put together
    a transaction announced              append it if it was committed, else forget it
    its file is gone                     recover: what was in it is known as lost

Everything here happens under the append lock.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from penstock.errors import Corrupt, NotDurable, PenstockError
from penstock.files import refusal
from penstock.locks import hold
from penstock.log import frame, records
from penstock.log.active_segment import ActiveSegment
from penstock.log.folder import Folder
from penstock.log.lineage import is_seal, read_seal
from penstock.log.records import AppendRecord, Ends
from penstock.log.recovery import recover
from penstock.log.segment import SEGMENT_HEADER_BYTES
from penstock.log.staging import (
    End,
    PartitionState,
    PlacedPiece,
    becomes_segment,
    copy_in,
    has_become_segment,
    is_missing,
    remove_file,
    take_segment,
    total_size,
)
from penstock.parse import MIB

logger = logging.getLogger("penstock.log")

#: So much is written again at a time.
_AGAIN_BYTES = 8 * MIB


class Repair:
    """Finishes what others left at the end of one partition."""

    def __init__(self, folder: Folder, active: ActiveSegment, state: PartitionState) -> None:
        self.folder = folder
        self.active = active
        self._state = state
        #: (transaction, piece) → its new first offset, of those this process moved behind a failed sync.
        self.moved: dict[tuple[int, int], int] = {}

    def run(self, ends: Ends | None) -> Ends:
        """Return A, S and D as they are when nothing is left to finish; `ends` is how they were found."""
        folder, active = self.folder, self.active
        tail = (ends.shown, ends.durable) if ends is not None else folder.read_tail()
        if tail is not None and tail[0].dropped:
            # We have the lock, so the process that dropped it is done, or died before the rows were gone.
            self._state.require_topic()
        if ends is None or not ends.published_for(folder.boot) or not self.is_whole(ends):
            ends = self._recovered()  # a damaged segment is kept as it is, and a new one begun
        if ends.shown.dropped:
            ends = ends._replace(shown=ends.shown._replace(flags=ends.shown.flags & ~records.DROPPED))
            folder.publish_shown(ends.shown)
        if ends.durable.poisoned:
            ends = self._cut_back(ends)
        if ends.append.rolling:
            ends = active.finish_roll(ends)
        if self.has_frames_behind(ends.append):
            ends = self._adopt(ends)
        if ends.append.flags & records.SEALING:
            ends = self._sealed_if_there(ends)
        if ends.append.pending:
            ends = self.finish_transactions(ends)
        if ends.shown.sealed and not self._state.is_split() and read_seal(folder) is None:
            ends = self._recovered()
        return ends

    def is_whole(self, ends: Ends) -> bool:
        """Open the active segment, if it is there with a sound header and all that consumers read is too.

        A position beyond the end is of a folder that somebody put back alone, from a copy: as after a power
        cut, what was read is not given to other messages, and what is missing is known as lost.
        """
        return self._is_there(ends) and self._state.highest_position() <= ends.append.next

    def _is_there(self, ends: Ends) -> bool:
        try:
            return self.active.open(ends.append.segment)
        except FileNotFoundError:
            if not self.folder.files.exists(self.folder.path):
                raise  # the topic was dropped meanwhile: those above know
            return False

    def has_frames_behind(self, a: AppendRecord) -> bool:
        """Whether something was written behind A: its writer died before it could publish it."""
        self.active.require(a.segment)
        return bool(self.folder.files.pread(self.active.fd, 8, a.byte).strip(b"\0"))

    def _recovered(self) -> Ends:
        self.active.close()
        try:
            recover(self.folder, self.active.options, self._state)
            self._settle(self._state.unfinished())
        except (PenstockError, FileNotFoundError):
            raise  # without its folder the topic was dropped meanwhile: those above know
        except OSError as error:
            raise refusal(self.folder.path, error) from error
        ends = self.folder.read_ends()
        assert ends is not None
        return ends

    def _adopt(self, ends: Ends) -> Ends:
        """Take over sound frames a dead writer left behind A, and cut off what is not sound."""
        files, active, a = self.folder.files, self.active, ends.append
        data = files.pread(active.fd, files.size(active.fd) - a.byte, a.byte)
        byte, stop, last, flags = 0, a.next, a.last_written_at, a.flags
        for at, found in frame.walk(data):
            head = found.head
            if head.salt != active.salt or head.base != stop:
                break
            byte, stop, last = at + head.size, head.stop, head.written_at
            if is_seal(head):
                flags |= records.SEALING
                break
        active.truncate(a.byte + byte)
        logger.info(
            "took over %d messages of a writer that died", stop - a.next, extra={"path": self.folder.path}
        )
        place = {"byte": a.byte + byte, "next": stop, "last_written_at": last}
        return active.show(active.publish(ends, flags=flags, **place))

    # A split.

    def finish_seal(self, ends: Ends) -> Ends:
        """Make the seal that A ends behind durable, and tell everyone."""
        ends = self.active.show(hold((self.folder.tail,), lambda: self.active.sync(ends)))
        shown = ends.shown._replace(flags=ends.shown.flags | records.SEALED)
        self.folder.publish_shown(shown)
        return self.active.publish(ends._replace(shown=shown), flags=ends.append.flags & ~records.SEALING)

    def _sealed_if_there(self, ends: Ends) -> Ends:
        """A process died over a split: finish it if its seal was written, else forget it."""
        if read_seal(self.folder) is not None:
            return self.finish_seal(ends)
        return self.active.publish(ends, flags=ends.append.flags & ~records.SEALING)

    # A failed sync.

    def _cut_back(self, ends: Ends) -> Ends:
        """After a failed sync: what is not durable goes, and a new segment begins behind it.

        On sync="os" topics readers have seen it, so it stays. Its offsets are not given again.
        """
        active = self.active
        if ends.shown.sealed:
            return self._publish_cut(ends)  # the seal is durable, and so is all before it
        active.require(ends.append.segment)
        if ends.append.pending:
            ends = self._with_new_segment(ends)
            active.require(ends.append.segment)
        a, durable = ends.append, ends.durable
        if active.shows:
            self._write_again(ends)
            byte, kept = a.byte, a.next
        else:
            byte, kept = _durable_byte(ends), durable.end
            active.truncate(byte)
            self._sync_cut()
            logger.error(
                "a sync failed: cut back to the durable end",
                extra={"path": self.folder.path, "first": durable.end, "stop": a.next},
            )
        first = max(a.next, a.segment + 1)  # the new segment needs a name of its own
        pending = self._move_pieces(kept, first)
        flags = a.flags & ~records.SEALING | records.ROLLING | records.LEAVING_GAP
        ends = active.publish(
            ends, byte=byte, next=first, pending=pending, flags=flags, last_written_at=active.written_at(a)
        )
        return self._publish_cut(active.finish_roll(ends))

    def _publish_cut(self, ends: Ends) -> Ends:
        """Clear the mark of the failed sync, and let those who wait across it know."""
        durable = ends.durable
        durable = durable._replace(flags=durable.flags & ~records.POISONED, cuts=(durable.cuts + 1) & 0xFFFF)
        ends = ends._replace(durable=durable)
        return hold((self.folder.tail,), lambda: self.active.publish_durable_end(ends))

    def _with_new_segment(self, ends: Ends) -> Ends:
        """A staged file that became a segment is durable: cutting begins behind it."""
        a = ends.append
        pieces = [piece for piece in self._state.unfinished() if not is_missing(self.folder, piece)]
        taken = [piece for piece in pieces if has_become_segment(self.folder, piece)]
        if taken and taken[-1].stop > a.next:
            a = _ending(a, take_segment(self.folder, End(a.next, a.segment, a.byte, 0), taken[-1]))
            durable = ends.durable._replace(end=a.next, segment=a.segment, byte=a.byte)
            ends = Ends(a, ends.shown, durable)
        return ends

    def _move_pieces(self, end: int, first: int) -> int:
        """Give what committed transactions have behind `end` new offsets, from `first` on.

        Returns the mark with which the next step finds them: not 0 if there are any.
        """
        moved: list[PlacedPiece] = []
        for piece in self._state.unfinished():
            if piece.base >= end:
                moved.append(piece._replace(base=first))
                first = moved[-1].stop
        if moved:
            self._state.move(moved)
            self.moved = {(piece.tx, piece.number): piece.base for piece in moved}
        return moved[0].tx if moved else 0

    def _write_again(self, ends: Ends) -> None:
        """What readers have seen of a committed transaction stays where it is, and must become durable.

        The sync that failed may have left it in memory only, as if it were on the disk. Written again, it
        is synced again.
        """
        a, durable = ends.append, ends.durable
        if not any(durable.end < piece.stop and piece.base < a.next for piece in self._state.unfinished()):
            return
        files, fd = self.folder.files, self.active.fd
        at = _durable_byte(ends)
        while at < a.byte:
            data = files.pread(fd, min(_AGAIN_BYTES, a.byte - at), at)
            if not data:
                raise Corrupt(self.folder.segment_path(a.segment), at, "a transaction's messages are gone")
            files.pwrite(fd, data, at)
            at += len(data)
        for length in (a.byte + 8, a.byte):  # so does its length, once it has changed
            files.truncate(fd, length)
        self._sync_cut()

    def _sync_cut(self) -> None:
        """Make a cut durable, or parts of what was cut off return with the next boot.

        This is not the sync that failed tried again: all that is left in the file was durable before.
        """
        try:
            self.folder.files.sync(self.active.fd)
        except OSError as error:
            raise NotDurable(f"{self.folder.path}: the disk failed to sync: {error}") from error

    # Transactions.

    def finish_transactions(self, ends: Ends) -> Ends:
        """A process died between announcing a transaction and forgetting it: do what it did not.

        Without a record it was not committed, and only the announcement goes.
        """
        pieces = self._state.unfinished()
        if any(piece.stop > ends.append.next and is_missing(self.folder, piece) for piece in pieces):
            return self._recovered()
        ends = self.bring_in(ends, pieces)
        if pieces:
            logger.info("finished a transaction of a process that died", extra={"path": self.folder.path})
            brought = ends
            ends = hold((self.folder.tail,), lambda: self.active.sync(brought))
            self._settle(pieces)
        return ends

    def bring_in(self, ends: Ends, pieces: Sequence[PlacedPiece]) -> Ends:
        """Append what is missing of a committed transaction; the announcement goes with it."""
        now, share = self.active.written_at(ends.append), total_size(pieces)
        for piece in pieces:
            a = ends.append
            if piece.stop <= a.next:
                continue
            end = End(a.next, a.segment, a.byte, now)
            if becomes_segment(self.folder, end, piece, share):
                ends = self._take_segment(ends, end, piece)
            else:
                ends = ends._replace(append=_ending(a, copy_in(self.folder, end, piece)))
        return self.active.show(self.active.publish(ends, pending=0))

    def _take_segment(self, ends: Ends, end: End, piece: PlacedPiece) -> Ends:
        """A staged file becomes the active segment; what came before it is durable first.

        No sync is under way meanwhile: were one to fail now, the next writer would cut off the new segment.
        """
        active = self.active

        def take() -> Ends:
            synced = active.sync(ends)
            active.truncate(ends.append.byte)
            active.sealed.append(ends.append.segment)
            after = synced._replace(append=_ending(ends.append, take_segment(self.folder, end, piece)))
            active.close()
            return active.publish_durable_end(after)

        return hold((self.folder.tail,), take)

    def _settle(self, pieces: Sequence[PlacedPiece]) -> None:
        """Pieces are durable where they belong: nobody needs what was staged any more."""
        for tx in {piece.tx for piece in pieces}:
            self._state.finish(tx)
        for piece in pieces:
            remove_file(self.folder, piece)


def _durable_byte(ends: Ends) -> int:
    """Where the durable part of the active segment ends."""
    same = ends.durable.segment == ends.append.segment
    return ends.durable.byte if same else SEGMENT_HEADER_BYTES


def _ending(a: AppendRecord, end: End) -> AppendRecord:
    return a._replace(next=end.next, segment=end.segment, byte=end.byte, last_written_at=end.last_written_at)
