"""Appending: the one way frames get into a partition, by any process.

Under the append lock, in this order: finish what an earlier writer left (`mending`), roll if the
segment is full or old (`tip`), write the frames, publish A. Everything that takes time (encoding, the
body's checksum, syncing) happens outside the lock.

A crash leaves at worst frames behind A (the next writer adopts the sound ones and cuts the rest)
or a roll half done (the next writer finishes it). See docs/RECOVERY.md.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from penstock.errors import NotDurable, PenstockError
from penstock.files import refusal
from penstock.log import records
from penstock.log.folder import Folder
from penstock.log.frame_encode import EncodedFrame, control
from penstock.log.frame_header import FENCE
from penstock.log.producers import Claim, LastSeqno, Pair, Producers, TakenOver, signed
from penstock.log.records import AppendRecord
from penstock.log.repair import Repair
from penstock.log.segment import ActiveSegment
from penstock.log.staging import ADOPT_BYTES, PartitionState, PlacedPiece
from penstock.options import TopicOptions

logger = logging.getLogger("penstock.log")


class Rerouted(Exception):
    """The partition tree changed since the caller routed: nothing was written, route again."""


class Appended(NamedTuple):
    """Where frames went: the first offset, the offset behind the last, and what to wait for."""

    first: int
    next: int
    #: How many cuts D had seen; `Syncer.sync` fails if there is one more.
    cuts: int


class Appender(Repair):
    """One process's way into one partition."""

    def __init__(
        self,
        folder: Folder,
        options: TopicOptions,
        committed: Callable[[], int],
        require_topic: Callable[[], object],
        ledger: PartitionState,
    ) -> None:
        super().__init__(folder, options, committed, require_topic, ledger)
        self.producers = Producers(folder)

    def append(
        self, drafts: Sequence[EncodedFrame], *, tree: int | None = None, claim: Claim | None = None
    ) -> Appended:
        """Write frames side by side and let writers behind us see them; not yet durable.

        Raises `Rerouted` when `tree` is no longer the number of the partition tree. With a producer's
        `claim` nothing is stored twice: see `Producers.admit`. Without frames it is only checked.
        """
        try:  # as `_locked`, which costs a microsecond
            with self.folder.append:
                a = self.ready()
                if tree is not None and a.tree != tree & 0xFFFF:
                    raise Rerouted
                if claim is not None:
                    self.producers.admit(claim, a, self._durable)
                    if not drafts:
                        return Appended(a.next, a.next, self._durable.cuts)
                return self._append(a, drafts, claim)[0]
        except KeyboardInterrupt:
            self.folder.append.drop()
            raise
        except (PenstockError, FileNotFoundError):
            raise
        except OSError as error:
            raise refusal(self.folder.path, error) from error

    def append_at_once(self, drafts: Sequence[EncodedFrame], *, tree: int) -> Appended | None:
        """The same if nothing has to be waited for or done before; None when nothing was written."""
        if not self.folder.append.try_acquire():
            return None
        try:
            a = self.ready_at_once()
            if a is None or a.tree != tree & 0xFFFF:
                return None
            size = sum(draft.size for draft in drafts)
            has_room = a.byte + size <= self._segment(a).allocated
            if not has_room or self._is_full(a, size, self._written_at(a)):
                return None
            return self._append(a, drafts, None)[0]
        except (PenstockError, FileNotFoundError):
            raise
        except OSError as error:
            raise refusal(self.folder.path, error) from error
        finally:
            self.folder.append.drop()

    def fence(self, pair: Pair) -> TakenOver:
        """Take over a pair: whoever wrote for it before cannot any more. Not yet durable."""
        with self._locked():
            a = self.ready()
            seqno, epoch = self.producers.catch_up(a, self._durable).get(pair)
            producer, created = signed(pair, epoch + 1), self.folder.clock.now_ns()
            draft = control(FENCE, b"", created=created, producer=producer, seqno=seqno)
            claim = Claim(pair, epoch + 1, True, -1, seqno, seqno)
            appended, after = self._append(a, (draft,), claim)
            return TakenOver(seqno, epoch + 1, after.segment, after.byte, appended.cuts)

    def known(self, pair: Pair) -> LastSeqno:
        """What is stored of a producer's pair, by anyone, up to now."""
        with self._locked():
            return self.producers.catch_up(self.ready(), self._durable).get(pair)

    # Transactions. The append lock is held, and has been since `mark`.

    def mark(self, tx: int, tree: int, count: int, size: int) -> int:
        """Announce that a transaction is about to bring in messages; return the offset of the first.

        If it does not come to that, the next `ready` finds no record of it and forgets it. Raises
        `Rerouted` when `tree` is no longer the number of the partition tree.
        """
        a = self.ready()
        if a.tree != tree & 0xFFFF:
            raise Rerouted
        now = self._written_at(a)
        if size <= ADOPT_BYTES and self._is_full(a, size, now):
            a = self._roll(a, now)
        if self.options.sync == "os" and (a.next + count > a.reserved or a.flags & records.RESERVING):
            a = self._reserve(a, a.next + count)
        self.folder.publish_append(a._replace(pending=tx, pid=os.getpid()))
        return a.next

    def bring_in(self, pieces: Sequence[PlacedPiece]) -> Appended:
        """Append what a committed transaction staged; durable after `Syncer.sync`."""
        a = self.folder.read_append()
        assert a is not None
        return Appended(pieces[0].base, self._bring_in(a, pieces).next, self._durable.cuts)

    # The partition as a whole.

    def roll(self, a: AppendRecord) -> AppendRecord:
        """Seal the active segment and begin the next one behind it. The append lock is held."""
        return self._roll(a, self._written_at(a))

    def seal_active(self) -> None:
        """Begin a new segment behind the present end, if the active one holds anything."""
        with self.folder.append:
            a = self.ready()
            if a.next > a.segment:
                self.roll(a)

    def leave_out(self, stop: int) -> int:
        """Give no offset below `stop` to anyone: the next message gets that one, behind a gap on purpose.

        Returns the next offset, which is higher when it has passed `stop` already.
        """
        with self._locked():
            a = self.ready()
            if a.next >= stop:
                return a.next
            try:
                self.folder.files.sync(self._segment(a).fd)
            except OSError as error:
                self._poison()
                raise NotDurable(f"{self.folder.path}: the disk failed to sync: {error}") from error
            flags = a.flags | records.ROLLING | records.LEAVING_GAP
            a = a._replace(flags=flags, next=stop, last_written_at=self._written_at(a), pid=os.getpid())
            self.folder.publish_append(a)
            return self._finish_roll(a).next

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

    def save_gate(self) -> None:
        """Keep what is known of producers at this end, for those who add partitions. Locked."""
        try:
            self.producers.save_gate(self.ready(), self._durable)
        except OSError as error:
            raise refusal(self.folder.path, error) from error

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

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the append lock; what the system refuses is said in our own words."""
        try:
            with self.folder.append:
                yield
        except KeyboardInterrupt:
            self.folder.append.drop()
            raise
        except (PenstockError, FileNotFoundError):
            raise
        except OSError as error:
            raise refusal(self.folder.path, error) from error

    # What writing consists of. The append lock is held throughout.

    def _append(
        self, a: AppendRecord, drafts: Sequence[EncodedFrame], claim: Claim | None
    ) -> tuple[Appended, AppendRecord]:
        size = sum(draft.size for draft in drafts)
        now = self._written_at(a)
        if self._is_full(a, size, now):
            a = self._roll(a, now)
        appended, after = self._write(a, drafts, size, now)
        self.producers.wrote(a, after, claim)
        return appended, after

    def _write(
        self, a: AppendRecord, drafts: Sequence[EncodedFrame], size: int, now: int
    ) -> tuple[Appended, AppendRecord]:
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
        return Appended(a.next, base, durable.cuts), written

    def _take_back(self, a: AppendRecord, active: ActiveSegment) -> None:
        """Nothing of a failed write stays; if A cannot be put back, it stays whole."""
        if self.folder.read_append() != a:
            self.folder.publish_append(a)
        self.folder.files.truncate(active.fd, a.byte)
        active.allocated = 0
