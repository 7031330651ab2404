"""A partition: frames in segments, appended by any process, read by all.

Log        what the layers above use
├─ Appender    append, adopt, roll           (append.py)
├─ Syncer      group commit                  (sync.py)
├─ Segments    bounds and open segments      (segments.py)
│  ├─ Cursor          reading forward           (cursor.py)
│  ├─ AgeRetention    what has expired by age   (age_retention.py)
│  ├─ KeyRetention    what has expired by key   (key_retention.py)
│  └─ KeySearch       reading by key            (key_search.py)
└─ trim, tidy  vacuum, indexes, repacking    (trim.py, here)
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from penstock.clock import Clock
from penstock.errors import NotDurable, TopicReplaced
from penstock.files import Files, refusal
from penstock.locks import hold, try_hold
from penstock.log import key_search, repack, segment_index, trim
from penstock.log.age_retention import AgeRetention
from penstock.log.append import Appended, Appender
from penstock.log.cursor import Cursor
from penstock.log.descriptors import AWAKE
from penstock.log.folder import Folder
from penstock.log.frame_encode import EncodedFrame
from penstock.log.key_retention import KeyRetention
from penstock.log.producers import TakenOver, tidy_checkpoints
from penstock.log.segment import read_head
from penstock.log.segments import Bounds, Segments
from penstock.log.staging import Hold, PartitionState
from penstock.log.sync import Syncer
from penstock.options import TopicOptions
from penstock.place import LATEST, Spot

logger = logging.getLogger("penstock.log")


class Log:
    """One partition of one topic, as one process has it open."""

    def __init__(
        self,
        path: str,
        *,
        topic: str,
        topic_id: int,
        partition: int,
        options: TopicOptions,
        files: Files,
        clock: Clock,
        state: PartitionState,
        read_only: bool = False,
    ) -> None:
        self.partition = partition
        self._state = state
        try:
            if not read_only:
                files.make_dirs(path)
            self.folder = Folder(
                path, topic_id=topic_id, partition=partition, files=files, clock=clock, read_only=read_only
            )
        except FileNotFoundError:
            raise  # dropped at this moment: those above know
        except OSError as error:
            raise refusal(path, error) from error
        self.appender = Appender(self.folder, options, state)
        self.appender.producers.topic = topic
        self.syncer = Syncer(self.folder)
        self.segments = Segments(self.folder, options, topic, None if read_only else self._recover_if_needed)
        #: What has expired, by age and by key.
        self._age = AgeRetention(self.segments, self.offset_at, state.holds, options)
        self.key_retention = KeyRetention(self.segments, state.options, self.offset_at, self._age)
        #: Messages by their key.
        self.keys = key_search.KeySearch(self.segments, self.key_retention)
        AWAKE.add(self, os.path.dirname(path))
        self.folder.on_wake = self._woken

    @property
    def options(self) -> TopicOptions:
        """The topic's options, as this partition obeys them."""
        return self.appender.active.options

    @options.setter
    def options(self, options: TopicOptions) -> None:
        self.appender.use(options)
        self.key_retention.use(options)

    # Writing, where it takes more than one part.

    def write_at_once(self, frames: Sequence[EncodedFrame], *, tree: int) -> Appended | None:
        """Append frames and make them durable, if nothing but the disk has to be waited for.

        None when nothing was written: a lock is held, the segment is full, or a repair is due.
        """

        def write() -> Appended | None:
            appended = self.appender.append(frames, tree=tree, wait=False)
            if appended is not None:
                self.syncer.sync_locked(appended.next, appended.cuts)
            return appended

        # The tail lock first: appended first, one would have to wait for it. That it is out of order is safe
        # where nobody waits.
        return try_hold(self.folder.tail, write)

    def sync_all(self) -> None:
        """Make everything appended so far, by anyone, durable."""
        a = self.folder.read_append()
        if a is not None and a.boot == self.folder.boot:
            self.syncer.sync(a.next)

    def sync_fence(self, taken: TakenOver) -> None:
        """Return when a pair's being taken over would survive a power cut, as far as the topic promises."""
        if self.options.sync == "disk":
            self.syncer.sync_place(taken.segment, taken.byte, taken.cuts)

    def lower_reserve(self) -> None:
        """Give back offsets that were set aside and not used."""
        if self.options.sync == "os":
            self.appender.give_back_offsets()

    def help(self) -> None:
        """Let readers see what a process that died appended and did not sync, or only committed."""
        if self.folder.read_only:
            return
        try:
            self._help_transaction()
            if self.options.sync == "disk":
                self.syncer.try_sync()
        except NotDurable as error:
            logger.error("%s", error)  # the next writer finds the mark and cuts back

    def _help_transaction(self) -> None:
        a = self.folder.read_append()
        if a is not None and a.pending and a.boot == self.folder.boot:
            self.finish_transactions()

    def finish_transactions(self) -> None:
        """Append and make durable what processes that died had committed, unless someone else is at it."""
        self.appender.finish_transactions()

    # Reading.

    def bounds(self) -> Bounds:
        """Return what of the partition can be read now: what has expired by its age cannot."""
        bounds, age = self.segments.bounds(), self._age
        return bounds if age.retention_ns is None else age.within(bounds)

    def stored(self) -> Bounds:
        """Return what lies in the partition now, also what has expired and was not removed yet."""
        return self.segments.bounds()

    def readable_from(self, offset: int) -> Bounds:
        """What can be read now; raises `TopicReplaced`, and `OffsetTrimmed` below the start."""
        bounds = self.segments.readable_from(offset)
        self._age.refuse(offset)
        return self._age.within(bounds)

    def cursor(self, offset: int, *, far: bool = False) -> Cursor:
        """A place to read from; `far` says that much will be read, over several segments.

        It skips what has expired by its key; what has by its age is gone for it.
        """
        return Cursor(self.segments, offset, self.key_retention, far=far)

    def resolve(self, spot: Spot) -> int:
        """The offset that a place means now; beyond the end and before the start are left to the reader."""
        if spot == LATEST:
            return self.stored().end
        if spot.kind == "offset":
            return spot.value
        bounds = self.bounds()
        if spot.kind == "earliest":
            return bounds.start
        if spot.kind == "last":
            return max(bounds.start, bounds.end - 1)
        return max(self.offset_at(spot.value), bounds.start)

    def offset_at(self, written_at: int, above: int = 0) -> int:
        """The first offset written at or after that time; the end when there is none.

        It is not below `above`, from where on it is looked for.
        """
        while True:
            bounds = self.stored()
            try:
                return max(self._offset_at(written_at, bounds, above), above)
            except FileNotFoundError:  # vacuumed or repacked meanwhile
                self.segments.refuse_missing_active(bounds)

    def _offset_at(self, written_at: int, bounds: Bounds, above: int) -> int:
        if above > bounds.start:
            bases = self.segments.bases_from(above, bounds)
        else:
            bases = [base for base in self.segments.bases() if base <= bounds.segment]
        for number, base in enumerate(bases):
            following = bases[number + 1] if number + 1 < len(bases) else None
            if following is not None and self._began(base) <= self._began(following) < written_at:
                continue  # all of it was written before the next segment began
            found = self._offset_in(base, bounds, written_at)
            if found is not None:
                return min(max(found, bounds.start), bounds.end)
        return bounds.end

    def _began(self, base: int) -> int:
        """When a segment began."""
        head = read_head(self.folder, base)
        return head.created if head is not None else 0

    def _offset_in(self, base: int, bounds: Bounds, written_at: int) -> int | None:
        if base == bounds.segment:
            first = self.segments.active(base).first_written_since(written_at, bounds.byte)
            return first.head.base if first is not None else None
        segment = self.segments.sealed(base)
        number = segment.index.find_time(written_at)
        if number == len(segment.index.times):
            return None
        found = segment.frame(number)
        times = found.written_times(0, found.head.count)
        return found.head.base + bisect_left(times, written_at)

    # Housekeeping.

    def holds(self) -> Sequence[Hold]:
        """Consumers that keep messages from going by their age."""
        return self._state.holds()

    def tidy(self) -> int:
        """Index and repack sealed segments that lack it, keep what is known of producers; how many were done.

        Only one process does so at a time (`Folder.housekeeping`).
        """
        bounds = self.bounds()
        done = 0
        for base, following in pairwise(self.segments.bases()):
            if base >= bounds.segment:
                break
            done += self._finish(base, following)
        tidy_checkpoints(self.folder, bounds.segment)
        self.appender.sealed.clear()
        return done

    def _finish(self, base: int, following: int) -> bool:
        try:
            done = self._index(base)
            if self.options.index == "key":
                done |= key_search.store_keys(self.segments, base, following)
        except FileNotFoundError:
            return False  # vacuumed away meanwhile
        return done

    def _index(self, base: int) -> bool:
        segment = self.segments.sealed(base)
        if segment_index.load(self.folder, base, segment.generation, segment.index.salt) is not None:
            return False
        if repack.is_worth_it(segment):
            repack.repack(self.folder, segment, compress=self.options.compress is not None)
            self.segments.forget()
            segment = self.segments.sealed(base)
        segment_index.save(self.folder, segment.index)
        return True

    def trim(self, start: int) -> trim.Trimmed:
        """Make `start` the first readable offset and remove what lies wholly below it."""
        return trim.trim(self.folder, self.appender, self.segments, start)

    def rest(self) -> bool:
        """Give all descriptors back, unless someone is at work; they are opened again when needed."""
        folder = self.folder
        if folder.read_only:
            self._give_back()
            return True
        if folder.append.is_mine() or folder.tail.is_mine():
            return False
        try:
            is_idle = folder.append.try_pause() and folder.tail.try_pause()
            if is_idle:
                self._give_back()
            return is_idle
        finally:
            folder.tail.drop()
            folder.append.drop()

    def _give_back(self) -> None:
        self.appender.close()
        self.syncer.close()
        self.folder.rest()
        self.segments.rest()

    def _woken(self) -> None:
        """The folder was opened again: meanwhile it may have become that of another topic."""
        AWAKE.add(self, os.path.dirname(self.folder.path))
        bases = self.folder.segments()
        head = read_head(self.folder, bases[-1]) if bases else None
        if head is not None and head.topic_id != self.folder.topic_id:
            self.folder.close()
            raise TopicReplaced("the topic was dropped and created anew", hint="open it anew by its name")

    def close(self) -> None:
        """Close every file of the partition."""
        AWAKE.discard(self)
        self.segments.close()
        self.syncer.close()
        self.appender.close()
        self.folder.close()

    def _recover_if_needed(self) -> None:
        hold((self.folder.append,), self.appender.ready)
