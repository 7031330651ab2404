"""Syncing: group commit across processes, without the append lock.

A process that wants its messages durable tries the tail lock. The one who gets it syncs everything
appended so far and publishes D; the others see D pass their own end and are done. Appending goes
on meanwhile.

A sync that fails is never tried again: the kernel may have dropped the pages, and a second try
would lie. D is marked poisoned; the next writer cuts back to what is durable.
"""

from __future__ import annotations

import os
import time

from penstock import locks
from penstock.errors import NotDurable
from penstock.log import records
from penstock.log.folder import Folder
from penstock.log.records import AppendRecord, DurableRecord

#: About as long as a sync takes: looking more often only takes the processor from those who append.
_PAUSE_FIRST_S = 200e-6
_PAUSE_MOST_S = 1e-3


class Syncer:
    """One process's way of making a partition durable."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._segment = -1
        self._fd = -1

    def sync(self, target: int, cuts: int | None = None) -> None:
        """Return when every offset below `target` would survive a power cut.

        `cuts` is what `append` returned: a cut since then may have taken the messages away.
        """
        tail = self._folder.tail
        if tail.is_mine():
            raise tail.held_here()
        try:
            # The lock first: mostly it is free, and with it D is read anyway.
            if tail.try_acquire():
                end = self.sync_locked(target, cuts)
                tail.release()
                if end >= target:
                    return
            self._wait_until_durable(target, cuts)
        except BaseException:
            tail.drop()
            raise

    def _wait_until_durable(self, target: int, cuts: int | None) -> None:
        folder, tail = self._folder, self._folder.tail
        pause, deadline = _PAUSE_FIRST_S, 0.0
        while True:
            durable = folder.read_durable()
            if durable is not None and self._is_durable(durable, target, cuts):
                return
            if tail.try_acquire():
                end = self.sync_locked(target, cuts)
                tail.release()
                if end >= target:
                    return
            else:
                deadline = deadline or time.monotonic() + locks.PATIENCE_S
                if time.monotonic() > deadline:
                    raise tail.timed_out(locks.PATIENCE_S)
                time.sleep(pause)
                pause = min(pause * 1.5, _PAUSE_MOST_S)

    def sync_locked(self, target: int, cuts: int | None) -> int:
        """Sync all that is appended, publish D and return its end. The tail lock is held."""
        a, durable = self._records()
        if self._is_durable(durable, target, cuts) or durable.end >= a.next:
            return durable.end
        return self._sync_up_to(a, durable)

    def sync_place(self, segment: int, byte: int, cuts: int) -> None:
        """Make durable a frame that takes no offset, which ends at `byte` of `segment`."""
        folder = self._folder

        def sync() -> None:
            a, durable = self._records()
            self._is_durable(durable, 0 if not durable.poisoned else a.next + 1, cuts)  # raises after a cut
            if (durable.segment, durable.byte) < (segment, byte):
                self._sync_up_to(a, durable)

        locks.hold((folder.tail,), sync)

    def try_sync(self) -> None:
        """Sync what is appended, if nobody else is at it.

        Readers see only what is durable: what a writer appended and did not live to sync would stay
        hidden until someone writes.
        """
        folder = self._folder
        a, durable = folder.read_append(), folder.read_durable()
        if a is None or durable is None or not a.boot == durable.boot == folder.boot:
            return
        if durable.end < a.next and not durable.poisoned:
            target = a.next
            locks.try_hold(folder.tail, lambda: self.sync_locked(target, None))

    def close(self) -> None:
        """Close the file that is synced."""
        self._segment = -1  # first: an interrupt leaves a descriptor that is not used, or none
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._folder.files.close(fd)

    def _sync_up_to(self, a: AppendRecord, durable: DurableRecord) -> int:
        folder = self._folder
        fd = self._descriptor(a.segment)  # what fails here says nothing of the disk
        try:
            folder.files.sync(fd)
        except OSError as error:
            folder.publish_durable(durable._replace(flags=durable.flags | records.POISONED))
            raise NotDurable(
                f"{folder.path}: the disk failed to sync ({os.strerror(error.errno or 0)}): "
                f"messages from offset {durable.end} on are not in the log",
                hint="look at the disk; then write them again",
            ) from error
        folder.publish_durable(durable._replace(end=a.next, segment=a.segment, byte=a.byte))
        return a.next

    def _records(self) -> tuple[AppendRecord, DurableRecord]:
        """A and D, whatever became of S. The tail lock is held."""
        folder = self._folder
        ends = folder.read_ends()
        if ends is not None:
            return ends.append, ends.durable
        a, durable = folder.read_append(), folder.read_durable()
        if durable is None or a is None:
            raise NotDurable(f"the records of {folder.path} are damaged", hint="penstock verify shows where")
        return a, durable

    def _is_durable(self, durable: DurableRecord, target: int, cuts: int | None) -> bool:
        """Whether D covers `target`; raises `NotDurable` when a failed sync came before it did."""
        uncut = cuts is None or durable.cuts == cuts
        if uncut and durable.end >= target:
            return True
        if durable.poisoned or not uncut:
            raise NotDurable(
                f"{self._folder.path}: a sync failed; messages that were not acknowledged are not in the log",
                hint="look at the disk; then write them again",
            )
        return False

    def _descriptor(self, segment: int) -> int:
        if segment != self._segment:
            self.close()
            try:
                self._fd = self._folder.files.open(self._folder.segment_path(segment))
            except OSError as error:
                if not self._folder.files.exists(self._folder.path):
                    raise  # the topic was dropped meanwhile: those above know
                raise NotDurable(
                    f"{self._folder.path}: messages are appended, but could not be synced: {error.strerror}",
                    hint="do not write them again: the next sync makes them durable",
                ) from error
            self._segment = segment
        return self._fd
