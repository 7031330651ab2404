"""`QueuePartition`: one partition of a queue as one of its readers has it: takes, leases, settles.

Which reader has what is in `state.db` (`penstock.state.queues`), for all readers of the consumer. Messages
that wait for another attempt lie in the files of the partition; the reader that schedules them puts those
that are due where all can take them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from penstock.consume.partition import Gap
from penstock.consume.retries import Envelope, PartitionRetries, decode, enclosed
from penstock.errors import Corrupt, OffsetTrimmed
from penstock.log.cursor import Cursor
from penstock.log.rows import MessageRows
from penstock.message import Message, Rows
from penstock.state.queues import Lease, QueuePlace, Queues
from penstock.topic.open_topic import OpenTopic
from penstock.wake import watch

#: How often one looks without being told: at leases, and for a folder that another process made.
LOOK_AGAIN_S = 1.0
#: How often a reader that has enough new messages looks for those that are anybody's again.
_LOOK_FREE_MS = 20
#: So many messages are read for a reader that takes one at a time.
_AHEAD = 256
_AHEAD_BYTES = 1 << 20
#: So few messages at a time are taken one by one.
_FEW = 32
#: They are read again after so long: some may have expired.
_AHEAD_MS = 500
#: So many due messages are put where all can take them at a time.
_AT_A_TIME = 500


class Returned(NamedTuple):
    """A message that was out before, or waited."""

    message: Message[Any]
    #: The reader that had it did not settle it in time, or died.
    ran_out: bool
    #: Its process died.
    died: bool


class QueuePartition:
    """A partition under a queue's reader; used under its mutex."""

    def __init__(
        self, topic: OpenTopic, partition: int, consumer: str, member: int, lease_ms: int,
        ring: Callable[[], None],
    ) -> None:  # fmt: skip
        self.topic = topic
        self.partition = partition
        self._place = QueuePlace(consumer, topic.record.id, partition)
        self._queues: Queues = topic.consumers.queues
        self._member = member
        self._lease_ms = lease_ms
        topic.consumers.begin(consumer, topic.record.id, partition, 0, topic.clock.now_ns())
        self._queues.begin(self._place)
        #: Where the queue goes on, as far as this reader knows; None when it must ask.
        self._next: int | None = None
        self._cursor: Cursor | None = None
        #: Read and not taken, the next one last: one by one they need not be decoded again.
        self._ahead: list[Message[Any]] = []
        self._ahead_until_ms = 0
        #: What had waited and is out here, by offset.
        self._waited: dict[int, Envelope] = {}
        #: Delivered alone, since a process died that had it; None when it is settled.
        self.doubtful: int | None = None
        self._retries = PartitionRetries(topic, partition, consumer, ring, shared=True)
        self._look_free_ms = 0
        self._position_is_old = False
        self.watch = watch(topic.log(partition).folder.name("tail"), ring)

    def close(self) -> None:
        """Close the files; what is out comes to others when its lease runs out, or was given back."""
        self.watch.close()
        self._retries.close()

    # Taking.

    def take_free(self, limit: int, *, always: bool, skip_gaps: bool, gaps: list[Gap]) -> list[Returned]:
        """What is anybody's again, for the time of a lease: due, given back, or not settled in time.

        Unless `always`, one looks only now and then. What a process had that died comes one by one, so that
        the message that killed it is known.
        """
        self.bring_due()
        now_ms = self._now_ms()
        if not always and now_ms < self._look_free_ms:
            return []
        leases = self._queues.take_free(self._place, limit, self._member, now_ms, now_ms + self._lease_ms)
        if not leases:
            self._look_free_ms = now_ms + _LOOK_FREE_MS
        elif leases[0].died:
            self.doubtful = leases[0].first
        return [
            Returned(message, lease.ran_out, lease.died)
            for lease in leases
            for message in self._read_lease(lease, skip_gaps, gaps)
        ]

    def _read_lease(self, lease: Lease, skip_gaps: bool, gaps: list[Gap]) -> list[Message[Any]]:
        """The messages of a lease, each with how often it was delivered."""
        if lease.data is not None:
            found = decode(lease.data)
            self._waited[lease.first] = found
            return [found.message(self.topic.name, lease.attempts)]
        messages: list[Message[Any]] = []
        cursor = self.topic.log(self.partition).cursor(lease.first)
        while cursor.offset < lease.stop:
            try:
                rows = cursor.read(lease.stop - lease.first, 2**40, lease.stop)
            except (OffsetTrimmed, Corrupt) as error:
                behind = self._step_over(error, cursor.offset, lease.stop, skip_gaps, gaps)
                cursor = self.topic.log(self.partition).cursor(behind)
                continue
            if not rows:
                break
            messages += [message for each in rows for message in each.messages()]
        return [msgspec.structs.replace(message, attempt=lease.attempts) for message in messages]

    def take_new(self, limit: int, max_bytes: int, *, skip_gaps: bool, gaps: list[Gap]) -> list[Rows]:
        """What nobody was given yet, for the time of a lease."""
        while (begin := self._next if self._next is not None else self._find()) is not None:
            # Until they are taken: an interrupt leaves what was read ahead in front of messages nobody has.
            self._next = None
            try:
                rows = self._read(begin, limit, max_bytes)
            except (OffsetTrimmed, Corrupt) as error:
                behind = self._behind(error, begin)
                if not skip_gaps:
                    raise
                if self._queues.take_new(self._place, (), behind, begin, self._member, 0):
                    gaps.append(Gap(self.topic.name, self.partition, begin, behind, str(error)))
                continue
            if not rows:
                if self._queues.next(self._place) == begin:
                    self._next = begin
                    return []
                continue  # the consumer was moved
            runs, behind = [(each.first, each.stop) for each in rows], rows[-1].stop
            if limit <= _FEW:  # they are settled one by one: a lease each
                runs = [(offset, offset + 1) for first, stop in runs for offset in range(first, stop)]
            until_ms = self._now_ms() + self._lease_ms
            if self._queues.take_new(self._place, runs, behind, begin, self._member, until_ms):
                self._next = behind
                return rows
            # Another reader was quicker.
        self.topic.require_open()
        return []

    def _find(self) -> int | None:
        """Go where the queue goes on; None when the consumer was dropped."""
        begin = self._queues.next(self._place)
        while self._ahead and begin is not None and self._ahead[-1].offset < begin:
            self._ahead.pop()
        if begin is not None and (not self._ahead or self._ahead[-1].offset != begin):
            self._ahead.clear()
            self._cursor = self.topic.log(self.partition).cursor(begin)
        return begin

    def _read(self, begin: int, limit: int, max_bytes: int) -> list[Rows]:
        """Read what comes next; one at a time, a few more are read, which others may still take."""
        assert self._cursor is not None
        log = self.topic.log(self.partition)
        is_old = self._ahead and self._now_ms() >= self._ahead_until_ms
        if is_old or (self._ahead and begin < log.bounds().start):
            self._ahead.clear()
            self._cursor = log.cursor(begin)
        if not self._ahead and limit > _FEW:
            return self._cursor.read(limit, max_bytes)
        if not self._ahead:
            read = [
                message for rows in self._cursor.read(_AHEAD, _AHEAD_BYTES) for message in rows.messages()
            ]
            self._ahead, self._ahead_until_ms = read[::-1], self._now_ms() + _AHEAD_MS
        found: list[Message[Any]] = []
        weight = 0
        while self._ahead and len(found) < limit:
            message = self._ahead[-1]
            weight += len(message.key or b"") + len(message.stored or b"")
            if found and (weight > max_bytes or message.offset != found[-1].offset + 1):
                break
            found.append(self._ahead.pop())
        return [MessageRows(found)] if found else []

    def _step_over(
        self, error: OffsetTrimmed | Corrupt, first: int, stop: int, skip_gaps: bool, gaps: list[Gap]
    ) -> int:
        """Settle messages that were out and are gone from the log, and report the gap."""
        behind = min(self._behind(error, first), stop)
        if not skip_gaps:
            raise error
        self.done(first, behind)
        gaps.append(Gap(self.topic.name, self.partition, first, behind, str(error)))
        return behind

    def _behind(self, error: OffsetTrimmed | Corrupt, first: int) -> int:
        stop = error.first if isinstance(error, OffsetTrimmed) else error.stop
        stop = self.topic.log(self.partition).bounds().end if stop is None else stop
        if stop <= first:
            raise error
        return stop

    # Settling.

    def done(self, first: int, stop: int) -> int:
        """Settle messages that are done; return how many of them this reader still had."""
        if self._waited:
            for offset in [each for each in self._waited if first <= each < stop]:
                del self._waited[offset]
        if self.doubtful is not None and first <= self.doubtful < stop:
            self.doubtful = None
        self._position_is_old = True
        return self._queues.done(self._place, first, stop, self._member)

    def store_position(self) -> None:
        """Store how far the queue is, if something was done since."""
        if self._position_is_old:
            self._position_is_old = False
            self._queues.store_position(self._place, self.topic.clock.now_ns())

    def has(self, offset: int) -> bool:
        """Whether this reader still has the message at an offset."""
        return self._queues.has(self._place, offset, self._member)

    def enclosed(self, message: Message[Any]) -> Envelope:
        """Return what is stored of a message that waits."""
        found = self._waited.get(message.offset)
        return enclosed(message, self.topic.record.id) if found is None else found

    def store(self, found: Envelope, wait_s: float, attempts: int, *, fixed: bool = False) -> None:
        """Store a message for another attempt; it is as safe as its topic's messages when this returns.

        `fixed` waits are those that other messages wait too (`WaitingMessages.store`).
        """
        self._retries.store(found, wait_s=wait_s, attempts=attempts, fixed=fixed)

    def extend(self) -> None:
        """Extend the leases of all that this reader has here."""
        self._queues.extend(self._place, self._member, self._now_ms() + self._lease_ms)

    def give_back(self, undelivered: Iterable[int]) -> None:
        """Give back all that this reader has."""
        self._waited.clear()
        self.doubtful = None
        self._look_free_ms = 0
        self._queues.give_back(self._place, self._member, undelivered=undelivered)
        self.store_position()

    def put_back(self, undelivered: Iterable[int]) -> None:
        """Give back what this reader took and did not deliver."""
        self._look_free_ms = 0
        self._queues.put_back(self._place, self._member, undelivered)

    def free_the_dead(self, is_alive: Callable[[int], bool]) -> None:
        """Free, without waiting, what readers have whose process is gone."""
        for member in self._queues.members(self._place) - {self._member}:
            if not is_alive(member):
                self._queues.end(self._place, member)
                self._look_free_ms = 0

    # What waits.

    def bring_due(self) -> None:
        """Put messages whose next attempt is due where all readers can take them."""
        if self._retries.move_due(_AT_A_TIME, self._add_due):
            self._look_free_ms = 0

    def _add_due(self, due: list[tuple[int, int, bytes]]) -> None:
        self._queues.add_due(self._place, due, durable=self.topic.options.sync == "disk")

    def pause_s(self) -> float:
        """How long until something may be taken here that nobody rings for."""
        free_ms = self._queues.next_free_ms(self._place)
        due_s = self._retries.due_in_s()
        if free_ms is not None:
            due_s = min(due_s, max(free_ms - self._now_ms(), 0) / 1000)
        return min(due_s, LOOK_AGAIN_S)

    def _now_ms(self) -> int:
        return self.topic.clock.now_ns() // 1_000_000
