"""Appending: the one way frames get into a partition, by any process.

Under the append lock, in this order: finish what an earlier writer left (`repair`), roll if the
segment is full or old (`active_segment`), write the frames, publish A. Everything that takes time
(encoding, the body's checksum, syncing) happens outside the lock.

A crash leaves at worst frames behind A (the next writer adopts the sound ones and cuts the rest)
or a roll half done (the next writer finishes it). See docs/RECOVERY.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar, overload

import msgspec

from penstock.errors import PenstockError
from penstock.files import refusal
from penstock.locks import hold, try_hold
from penstock.log import records
from penstock.log.active_segment import ActiveSegment
from penstock.log.folder import Folder
from penstock.log.frame_encode import EncodedFrame, control
from penstock.log.frame_header import FENCE
from penstock.log.lineage import Birth, Seal
from penstock.log.meter import HELD, QuotaTerms, WriteMeter, meter_of
from penstock.log.producer_table import ProducerTable, save
from penstock.log.producers import Claim, LastSeqno, Pair, Producers, TakenOver, signed
from penstock.log.records import DROPPED, POISONED, ROLLING, SEALING, Ends
from penstock.log.repair import Repair
from penstock.log.staging import ADOPT_BYTES, PartitionState, PlacedPiece
from penstock.options import TopicOptions

logger = logging.getLogger("penstock.log")

T = TypeVar("T")
#: What lies behind A when nobody has written there; a segment's room is allocated ahead, filled with these.
_ROOM = bytes(8)
#: A writer that died was about to do this.
_TO_FINISH = ROLLING | SEALING


class Rerouted(Exception):
    """The partition tree changed since the caller routed: nothing was written, route again."""


class Sealed(Rerouted):
    """The partition was split: nothing was written, its children go on."""


class Appended(msgspec.Struct, frozen=True, gc=False):
    """Where frames went: the first offset, the offset behind the last, and what to wait for."""

    first: int
    next: int
    #: How many cuts D had seen; `Syncer.sync` fails if there is one more.
    cuts: int
    #: For how many seconds a quota held it back.
    waited: float = 0.0


class Appender:
    """One process's way into one partition."""

    def __init__(self, folder: Folder, options: TopicOptions, state: PartitionState) -> None:
        self.folder = folder
        self.active = ActiveSegment(folder, options)
        self.repair = Repair(folder, self.active, state)
        self.producers = Producers(folder)
        #: Measures and limits what is written; None where nobody wants it.
        self.meter: WriteMeter | None = meter_of(folder, options)
        #: Whether the copy of a partition that was split elsewhere may still be filled.
        self.takes_arrivals = False

    def use(self, options: TopicOptions) -> None:
        """Go by these options from now on."""
        self.active.use(options)
        meter, self.meter = self.meter, meter_of(self.folder, options)
        if meter is not None:
            meter.close()

    @property
    def sealed(self) -> list[int]:
        """Segments this process sealed, whose indexes are to be made."""
        return self.active.sealed

    @overload
    def append(
        self, frames: Sequence[EncodedFrame], *, tree: int | None = None, claim: Claim | None = None,
        wait: Literal[True] = True, terms: QuotaTerms = HELD,
    ) -> Appended: ...  # fmt: skip
    @overload
    def append(
        self, frames: Sequence[EncodedFrame], *, tree: int | None = None, claim: Claim | None = None,
        wait: Literal[False], terms: QuotaTerms = HELD,
    ) -> Appended | None: ...  # fmt: skip
    def append(
        self, frames: Sequence[EncodedFrame], *, tree: int | None = None, claim: Claim | None = None,
        wait: bool = True, terms: QuotaTerms = HELD,
    ) -> Appended | None:  # fmt: skip
        """Write frames side by side and let writers behind us see them; not yet durable.

        Raises `Rerouted` when `tree` is no longer the number of the partition tree, `Sealed` when the
        partition was split. With a producer's `claim` nothing is stored twice: see `Producers.admit`;
        without frames it is only checked. With `wait=False` nothing is waited for: None if the lock is held,
        the segment is full or a repair is due. A quota (`write_quota`) is waited for as `terms` say; past
        their time `WriteTimeout` is raised.
        """
        lock, waited = self.folder.append, 0.0
        if lock.is_mine():
            if not wait:
                return None
            raise lock.held_here()
        if self.meter is not None and self.meter.is_limited and frames:
            size = sum(frame.size for frame in frames)
            admitted = self.meter.admit(size, terms, tree=tree, wait=wait)
            if admitted is None:
                return None
            waited = admitted
        try:  # as `hold`, which costs a microsecond
            if not lock.try_acquire():
                if not wait:
                    return None
                lock.acquire()
            appended = self._append_ready(frames, tree, claim, wait)
            lock.release()
        except BaseException as error:
            lock.drop()
            self._refuse(error)
            raise
        if waited and appended is not None:
            return msgspec.structs.replace(appended, waited=waited)
        return appended

    def take_over(self, pair: Pair) -> TakenOver:
        """Take over a pair: earlier writers of it cannot write any more. Not yet durable."""
        return self._locked(lambda: self.take_over_locked(pair))

    def take_over_locked(self, pair: Pair) -> TakenOver:
        """Take over a pair. The append lock is held."""
        ends = self.unsealed()
        seqno, epoch = self.producers.catch_up(ends.append, ends.durable).get(pair)
        producer, created = signed(pair, epoch + 1), self.folder.clock.now_ns()
        frame = control(FENCE, b"", created=created, producer=producer, seqno=seqno)
        claim = Claim(pair, epoch + 1, True, -1, seqno, seqno)
        after = self._append(ends, (frame,), claim)
        return TakenOver(seqno, epoch + 1, after.append.segment, after.append.byte, after.durable.cuts)

    def known(self, pair: Pair) -> LastSeqno:
        """What is stored of a producer's pair, by anyone, up to now."""
        return self._locked(lambda: self.known_locked(pair))

    def known_locked(self, pair: Pair) -> LastSeqno:
        """What is stored of a producer's pair, by anyone, up to now. The append lock is held."""
        ends = self.ready()
        return self.producers.catch_up(ends.append, ends.durable).get(pair)

    def finish_transactions(self) -> None:
        """Append what processes that died had committed, durably, unless another process is at it."""
        try_hold(self.folder.append, lambda: self.repair.finish_transactions(self.ready()))

    # Transactions. The append lock is held, and has been since `announce`.

    def announce(self, tx: int, tree: int, count: int, size: int) -> int:
        """Announce that a transaction is about to append messages; return the offset of the first.

        If it does not come to that, the next `ready` finds no record of it and forgets it. Raises
        `Rerouted` when `tree` is no longer the number of the partition tree, `Sealed` when it was split.
        """
        ends, active = self.unsealed(), self.active
        if ends.append.tree != tree & 0xFFFF:
            raise Rerouted
        now = active.written_at(ends.append)
        if size <= ADOPT_BYTES and active.is_full(ends.append, size, now):
            ends = active.roll(ends, now)
        a = ends.append
        if active.shows and (a.next + count > a.reserved or a.flags & records.RESERVING):
            ends = ends._replace(append=active.reserve(a, a.next + count))
        return active.publish(ends, pending=tx).append.next

    def bring_in(self, pieces: Sequence[PlacedPiece]) -> Appended:
        """Append what a committed transaction staged; durable after `Syncer.sync`."""
        ends = self.folder.read_ends()
        assert ends is not None
        after = self.repair.bring_in(ends, pieces)
        if self.meter is not None:  # its writers cannot wait with all locks held; those behind them do
            self.meter.charge(max(after.append.byte - ends.append.byte, 0))
            self.meter.appended(after.append)
        return Appended(pieces[0].base, after.append.next, ends.durable.cuts)

    # The partition as a whole.

    def ready(self) -> Ends:
        """Finish what others left; return A, S and D. The append lock is held."""
        ends = self.folder.read_ends()
        return ends if ends is not None and self._is_ready(ends) else self.repair.run(ends)

    def unsealed(self) -> Ends:
        """Finish what others left; return A, S and D, or raise `Sealed` when nobody may append any more."""
        ends = self.ready()
        if ends.shown.sealed and not self.takes_arrivals:
            raise Sealed
        return ends

    def seal(self, seal: Seal, now: int) -> Ends:
        """End the log, durably: nobody appends behind the seal. The append lock is held."""
        ends, frame = self.unsealed(), seal.encode(now)
        if self.active.is_full(ends.append, frame.size, now):
            ends = self.active.roll(ends, now)
        return self.repair.finish_seal(self.active.write_seal(ends, frame, now))

    def begin(self, birth: Birth, facts: ProducerTable, now: int) -> None:
        """Begin the log of a new partition, durably, with what its parents knew of producers.

        Doing so again does no harm, as long as nobody wrote to it. The append lock is held.
        """
        ends = self.ready()
        save(self.folder, facts, 0)
        frame = birth.encode(now)
        after = self.active.write(ends, (frame,), frame.size, max(now, self.active.written_at(ends.append)))
        hold((self.folder.tail,), lambda: self.active.sync(after))

    def roll(self, ends: Ends) -> Ends:
        """Seal the active segment and begin the next one behind it. The append lock is held."""
        return self.active.roll(ends, self.active.written_at(ends.append))

    def seal_active(self) -> None:
        """Begin a new segment behind the present end, if the active one holds anything."""

        def seal() -> None:
            ends = self.ready()
            if ends.append.next > ends.append.segment and not ends.shown.sealed:
                self.roll(ends)

        hold((self.folder.append,), seal)

    def leave_out(self, stop: int) -> int:
        """Give no offset below `stop` to anyone: the next message gets that one, behind a gap on purpose.

        Returns the next offset, which is higher when it has passed `stop` already.
        """

        def leave() -> int:
            ends = self.unsealed()
            if ends.append.next < stop:
                ends = self.active.roll(ends, self.active.written_at(ends.append), first=stop)
            return ends.append.next

        return self._locked(leave)

    def publish_start(self, start: int) -> None:
        """Move the first readable offset, durably. The append lock is held."""
        shown = self.folder.read_shown()
        assert shown is not None
        self.folder.publish_shown(shown._replace(start=start))
        try:
            self.folder.sync_tail()
        except OSError as error:
            self.folder.publish_shown(shown)  # or the next trim would take it for durable
            raise refusal(self.folder.path, error) from error

    def publish_tree(self, tree: int) -> None:
        """Tell writers that the partition tree has changed. The append lock is held."""
        self.active.publish(self.ready(), tree=tree & 0xFFFF)

    def save_gate(self) -> None:
        """Keep what is known of producers at this end, for new partitions. The append lock is held."""
        try:
            ends = self.ready()
            self.producers.save_gate(ends.append, ends.durable)
        except OSError as error:
            raise refusal(self.folder.path, error) from error

    def publish_dropped(self) -> None:
        """Tell everyone that the topic is gone. The append lock is held."""
        shown = self.ready().shown
        self.folder.publish_shown(shown._replace(flags=shown.flags | DROPPED))

    def give_back_offsets(self) -> None:
        """On a clean close: offsets set aside and not used are given back, so that no gap stays."""

        def give_back() -> None:
            a = self.ready().append
            if a.reserved <= a.next:
                return
            try:
                self.folder.publish_append(a._replace(reserved=a.next))
                self.folder.files.sync(self.folder.append_fd)
            except OSError as error:  # then a gap stays
                logger.warning("offsets set aside could not be given back: %s", error)

        hold((self.folder.append,), give_back)

    def close(self) -> None:
        """Close the active segment's file."""
        self.active.close()
        if self.meter is not None:
            self.meter.close()

    # What appending consists of. The append lock is held throughout.

    def _append_ready(
        self, frames: Sequence[EncodedFrame], tree: int | None, claim: Claim | None, wait: bool
    ) -> Appended | None:
        ends = self.folder.read_ends()
        if ends is None or not self._is_ready(ends):
            if not wait:
                return None
            ends = self.repair.run(ends)
            if ends.shown.sealed and not self.takes_arrivals:
                raise Sealed
        if tree is not None and ends.append.tree != tree & 0xFFFF:
            if not wait:
                return None
            raise Rerouted
        if claim is not None:
            self.producers.admit(claim, ends.append, ends.durable)
            if not frames:
                if ends.shown.end < ends.append.next:  # who wrote it may have died before it told readers
                    self.active.show(ends)
                return Appended(ends.append.next, ends.append.next, ends.durable.cuts)
        if not wait and not self._has_room(ends, frames):
            return None
        first = ends.append.next
        after = self._append(ends, frames, claim)
        return Appended(first, after.append.next, after.durable.cuts)

    def _append(self, ends: Ends, frames: Sequence[EncodedFrame], claim: Claim | None) -> Ends:
        active, a = self.active, ends.append
        size = 0
        for frame in frames:
            size += frame.size
        now = active.written_at(a)
        if active.is_full(a, size, now):
            ends = active.roll(ends, now)
        after = active.write(ends, frames, size, now)
        if self.producers.table is not None:
            self.producers.wrote(ends.append, after.append, claim)
        if self.meter is not None:
            self.meter.appended(after.append)
        return after

    def _is_ready(self, ends: Ends) -> bool:
        """Whether nothing is left to finish: no mark is set, and nothing lies behind A."""
        a, shown, durable = ends
        boot = self.folder.boot
        if a.flags & _TO_FINISH or a.pending or shown.flags or durable.flags & POISONED:
            return False
        if a.boot != boot or shown.boot != boot or durable.boot != boot:
            return False
        active = self.active
        if active.base != a.segment and not self.repair.is_whole(ends):
            return False
        behind = self.folder.files.pread(active.fd, 8, a.byte)
        return behind == _ROOM or not behind.strip(b"\0")

    def _has_room(self, ends: Ends, frames: Sequence[EncodedFrame]) -> bool:
        """Whether frames can be written without allocating or rolling first."""
        a, size = ends.append, sum(frame.size for frame in frames)
        if a.byte + size > self.active.allocated:
            return False
        return not self.active.is_full(a, size, self.active.written_at(a))

    def _locked(self, section: Callable[[], T]) -> T:
        """Call `section` with the append lock held; errors of the system become errors of Penstock."""
        try:
            return hold((self.folder.append,), section)
        except OSError as error:
            self._refuse(error)
            raise

    def _refuse(self, error: BaseException) -> None:
        """Raise an error of the system as one of Penstock; a missing folder is explained by the caller."""
        if isinstance(error, OSError) and not isinstance(error, (PenstockError, FileNotFoundError)):
            raise refusal(self.folder.path, error) from error
