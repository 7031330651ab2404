"""`HeldPartition`: one partition under a reader. A cursor, commits in any order, and gaps."""

from __future__ import annotations

import logging
from bisect import bisect_left, insort
from collections.abc import Iterator, Set
from typing import Any, NamedTuple

from penstock.clock import NANOSECONDS
from penstock.consume.retries import PartitionRetries
from penstock.errors import Closed, Corrupt, OffsetTrimmed
from penstock.log.cursor import Cursor
from penstock.log.log import Log
from penstock.log.rows import FrameRows
from penstock.message import Message, Rows
from penstock.state.deaths import Doubt
from penstock.topic.open_topic import OpenTopic
from penstock.wake import Hearer, watch


class Commits:
    """What of a partition was delivered and what of that is done."""

    def __init__(self, position: int) -> None:
        #: Everything below is done; this is what gets stored.
        self.position = position
        #: Everything below was delivered.
        self.delivered = position
        self._done: list[tuple[int, int]] = []
        self._holes: dict[int, int] = {}
        #: Up to here nothing can be delivered behind the last message that was.
        self._skipped = position

    @property
    def is_idle(self) -> bool:
        """Whether all that was delivered is done."""
        return self.position == self.delivered

    def is_done(self, offset: int) -> bool:
        """Whether the message at an offset is done."""
        if offset < self.position:
            return True
        return bool(self._done) and any(first <= offset < stop for first, stop in self._done)

    def copy(self) -> Commits:
        """Return a copy for a trial: what the position would be if more were committed."""
        other = Commits(self.position)
        other.delivered, other._skipped = self.delivered, self._skipped
        other._done, other._holes = list(self._done), dict(self._holes)
        return other

    def deliver(self, first: int, stop: int) -> None:
        """Note that messages `first` to `stop` were delivered."""
        if first > self.delivered:
            self._holes[first] = self.delivered
        self.delivered = max(self.delivered, stop)

    def skip(self, stop: int) -> None:
        """Skip everything before `stop`: nothing there can be delivered."""
        self._skipped = max(self._skipped, stop)
        self._pass_over()

    def rewind(self, offset: int) -> None:
        """Take back messages from `offset` on: they were not delivered after all, and none may be done."""
        if offset < self.delivered:
            self.delivered = self._holes.get(offset, offset)
            self._holes = {first: since for first, since in self._holes.items() if first < offset}
            self._skipped = self.position

    def commit(self, first: int, stop: int) -> bool:
        """Note that messages `first` to `stop` are done; return whether the position moved.

        Raises `ValueError` for messages that were not delivered.
        """
        if stop > self.delivered:
            raise ValueError(f"offset {stop - 1} was not delivered by this reader")
        if self._holes:
            first = self._holes.pop(first, first)
        if stop <= self.position:
            return False
        if first > self.position:
            self._add(first, stop)
            return False
        self.position = stop
        if self._done:
            self._join()
        if self._skipped > self.position:
            self._pass_over()
        return True

    def _pass_over(self) -> None:
        if self.is_idle and self._skipped > self.position:
            self.position = self.delivered = self._skipped

    def _add(self, first: int, stop: int) -> None:
        at = bisect_left(self._done, (first, stop))
        if at == len(self._done) or self._done[at] != (first, stop):
            insort(self._done, (first, stop))

    def _join(self) -> None:
        """Take up ranges that now touch the position."""
        used = 0
        for first, stop in self._done:
            if first > self.position and self._holes.get(first, first) > self.position:
                break
            self._holes.pop(first, None)
            self.position = max(self.position, stop)
            used += 1
        del self._done[:used]


logger = logging.getLogger("penstock.reader")

#: (topic, partition)
Key = tuple[str, int]


class Gap(NamedTuple):
    """Offsets from `first` up to `stop` that were not delivered, and why."""

    topic: str
    partition: int
    first: int
    stop: int
    reason: str


class Floor(NamedTuple):
    """Messages that are too old for this reader, by the time they were written."""

    #: Nothing before this moment, in nanoseconds (B001-04).
    read_from_ns: int | None = None
    #: Nothing older than so many seconds (B001-12).
    max_lag_s: float | None = None

    def at(self, now_ns: int) -> tuple[int, str] | None:
        """The moment before which messages are skipped now, and why."""
        found = [] if self.read_from_ns is None else [(self.read_from_ns, "written before read_from")]
        if self.max_lag_s is not None:
            found.append(
                (now_ns - round(self.max_lag_s * NANOSECONDS), f"older than max_lag {self.max_lag_s:g} s")
            )
        return max(found, default=None)


class HeldPartition:
    """A partition under a reader."""

    def __init__(
        self, topic: OpenTopic, partition: int, position: int, *, epoch: int = 0,
        floor: Floor | None = None, hear: Hearer, retries: PartitionRetries | None = None,
        doubt: Doubt | None = None, unfinished: Set[int] = frozenset(),
    ) -> None:  # fmt: skip
        #: What is suspected of its messages, while readers died with them; None when all is well.
        self.doubt = doubt
        self.topic = topic
        self.name = topic.name
        self.partition = partition
        self.commits = Commits(position)
        #: The position that is stored.
        self.stored = position
        #: Of the lease under which it is read; who commits with an older one lost it.
        self.epoch = epoch
        #: Since when it is on its way to another member, by the monotonic clock: nothing more is fetched.
        self.leaving_since: float | None = None
        #: It is not this reader's any more.
        self.is_gone = False
        #: Up to here it was delivered before a transaction was rolled back.
        self._in_hands = 0
        #: Something was skipped since this was last looked at.
        self.passed_over = False
        self.cursor: Cursor = topic.log(partition).cursor(position)
        #: Where the last read began, until what it read is noted as delivered: an interrupt in between would
        #: leave messages that nobody got, and that look like offsets that nobody has.
        self._reads_from: int | None = None
        #: Whether all that comes before it is known to be read.
        self.is_open = False
        #: Whether the last read of it found something.
        self.had_more = False
        #: Transactions that were committed when it was taken over, and are not known to be in place:
        #: the position it was taken over with may be of one of them, whose messages must be seen first.
        self.unfinished = unfinished
        self._floor = floor if floor is not None and floor != Floor() else None
        #: What of it waits for another attempt; None without a consumer.
        self.retries = retries
        self.watch = watch(self.log.folder.name("tail"), hear)

    @property
    def key(self) -> Key:
        """The topic's name and the number of the partition."""
        return self.name, self.partition

    @property
    def log(self) -> Log:
        """The partition's log."""
        return self.topic.log(self.partition)

    @property
    def has_waited(self) -> bool:
        """Whether something is out that had waited for another attempt."""
        return self.retries is not None and self.retries.has_out

    @property
    def is_doubtful(self) -> bool:
        """Whether the next message may have killed a process: it is delivered alone."""
        return self.doubt is not None and self.cursor.offset < self.doubt.until

    @property
    def is_idle(self) -> bool:
        """Whether all that was delivered is committed and stored."""
        if self.retries is not None and not self.retries.is_idle:
            return False
        return self.commits.is_idle and self.stored >= self.commits.position

    def move(self, offset: int) -> None:
        """Go on from `offset`, and forget what was delivered before."""
        self._in_hands = 0
        self.commits = Commits(offset)
        self.stored = offset
        self._go_to(offset)

    def move_back(self, offset: int) -> None:
        """Take back what was fetched from `offset` on: it was not delivered after all."""
        self.commits.rewind(max(offset, self._in_hands))
        self._go_to(offset)

    def deliver_again(self, offset: int) -> None:
        """Deliver again from `offset` on; what was delivered before may still be committed."""
        self._in_hands = self.commits.delivered
        self._go_to(offset)

    def _go_to(self, offset: int) -> None:
        cursor = self.log.cursor(offset)
        self.cursor = cursor
        self._reads_from = None

    def close(self) -> None:
        """Stop watching the partition and close its waiting messages."""
        self.watch.close()
        if self.retries is not None:
            self.retries.close()

    # Reading.

    def read(
        self, max_messages: int, max_bytes: int, *, skip_gaps: bool, gaps: list[Gap], skipped: list[Gap]
    ) -> list[Rows]:
        """What comes next; where something is missing, raise, or note the gap and go on behind it."""
        if self._reads_from is not None:
            self._go_to(self._reads_from)
        while True:
            self._reads_from = self.cursor.offset
            try:
                rows = self.cursor.read(max_messages, max_bytes)
            except (OffsetTrimmed, Corrupt) as error:
                if not skip_gaps:
                    raise
                gaps.append(self._step_over(error))
                continue
            except (Closed, OSError):
                self.topic.require_open()  # closed or dropped under us: this says which
                raise
            if rows and self._floor is not None and (gap := self._too_old(rows[0], self._floor)) is not None:
                note(skipped, gap)
                continue
            for each in rows:
                self.commits.deliver(each.first, each.stop)
            self.had_more = bool(rows)
            self._reads_from = None
            return rows

    def _step_over(self, error: OffsetTrimmed | Corrupt) -> Gap:
        first = self.cursor.offset
        stop = error.first if isinstance(error, OffsetTrimmed) else error.stop
        if stop is None:
            stop = self.log.bounds().end  # nothing sound lies behind it yet
        if stop <= first:
            raise error
        self._go_on_behind(stop)
        logger.warning("skipped offsets %d to %d: %s", first, stop - 1, error)
        return Gap(self.topic.name, self.partition, first, stop, str(error))

    def _too_old(self, rows: Rows, floor: Floor) -> Gap | None:
        """Go on behind what is too old, if the first message read is."""
        found = floor.at(self.topic.clock.now_ns())
        if found is None or _written_at(rows) >= found[0]:
            return None
        stop = max(self.log.offset_at(found[0]), rows.first + 1)
        self._go_on_behind(stop)
        return Gap(self.topic.name, self.partition, rows.first, stop, found[1])

    def _go_on_behind(self, stop: int) -> None:
        self.cursor = self.log.cursor(stop)
        self.commits.skip(stop)
        self.passed_over = True

    def is_settled(self) -> bool:
        """Whether all that was committed before it was taken over is in place, and can be seen."""
        if self.unfinished:
            self.unfinished &= self.topic.finish_transactions()
        return not self.unfinished

    # Partitions that were split, and those that open later.

    @property
    def is_drained(self) -> bool:
        """Whether it was split and all of it was read: nothing comes any more."""
        tree = self.topic.record.rows
        if not tree.has_grown:
            return False
        end = tree.row(self.partition).end
        return end is not None and self.cursor.offset >= end


class Fetched:
    """Messages that were read and that the user has not got yet: they can still be taken back."""

    def __init__(self) -> None:
        #: A list's iterator, so that two threads never get the same message.
        self.messages: Iterator[Message[Any]] = iter(())
        self._source: HeldPartition | None = None
        self._waited = False

    def keep(self, messages: Iterator[Message[Any]], source: HeldPartition | None, *, waited: bool) -> None:
        """Keep these messages to be delivered next; `waited` says that they waited for another attempt."""
        self._source, self._waited = source, waited
        self.messages = messages  # last: from now on the thread that hands over may take them back

    def take_back(self) -> None:
        """Take back what is left: it was not delivered, and is read again."""
        left = list(self.messages)
        source = self._source
        if not left or source is None or source.is_gone:
            return
        if self._waited:
            assert source.retries is not None
            source.retries.put_back([message.offset for message in left])
        else:
            source.move_back(left[0].offset)

    def forget(self, source: HeldPartition) -> None:
        """Drop what is left of a partition that is delivered again from an earlier place."""
        if self._source is source and not self._waited:
            self.messages = iter(())

    def forget_if_gone(self) -> None:
        """Drop what is left of a partition that another member has now."""
        if self._source is not None and self._source.is_gone:
            self.messages, self._source = iter(()), None

    def forget_if_shut(self) -> None:
        """Take back what is left of a partition that has to wait for others again."""
        if self._source is not None and not self._source.is_open and not self._waited:
            self.take_back()
            self.messages, self._source = iter(()), None


def note(skipped: list[Gap], gap: Gap) -> None:
    """Add to the list; what lies side by side for the same reason is one gap."""
    last = skipped[-1] if skipped else None
    if last is not None and (*last[:2], last.stop, last.reason) == (*gap[:2], gap.first, gap.reason):
        skipped[-1] = last._replace(stop=gap.stop)
    else:
        skipped.append(gap)


def _written_at(rows: Rows) -> int:
    if isinstance(rows, FrameRows):
        return rows.frame.message(rows.topic, rows.partition, rows.begin).written_at
    return rows.messages()[0].written_at
