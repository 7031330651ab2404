"""One partition of a queue, as one of its readers has it: takes messages for a time, and settles them.

Who has what is in `state.db` (`penstock.state.queues`), for all readers of the consumer. Messages that wait
for another attempt lie in the files of the partition; whichever reader is the one that schedules them puts
those that are due where all can take them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from penstock.consume import retries as envelope
from penstock.consume.partition import Gap
from penstock.consume.retries import Envelope, enclosed
from penstock.delay.waiting import WaitingMessages
from penstock.errors import Corrupt, OffsetTrimmed
from penstock.log.cursor import Cursor
from penstock.message import Message, Rows
from penstock.state.queues import Lease, QueuePlace, Queues
from penstock.topic.delayed import retries_folder
from penstock.topic.open_topic import OpenTopic
from penstock.wake import watch

#: How often one looks without being told: at leases, and for a folder that another process made.
LOOK_AGAIN_S = 1.0
#: So many due messages are put where all can take them at a time.
_AT_A_TIME = 500


class Returned(NamedTuple):
    """A message that was out before, or waited."""

    message: Message[Any]
    #: Whoever had it did not settle it in time, or died.
    ran_out: bool


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
        self._ring = ring
        topic.consumers.begin(consumer, topic.record.id, partition, 0, topic.clock.now_ns())
        self._queues.begin(self._place)
        self._cursor: Cursor | None = None
        #: What had waited and is out here, by offset.
        self._waited: dict[int, Envelope] = {}
        self._folder = retries_folder(topic, consumer, partition)
        self._waiting: WaitingMessages | None = None
        self._look_at = 0.0
        self._next_due_ms = 0
        self.watch = watch(topic.log(partition).folder.name("tail"), ring)

    def close(self) -> None:
        """Let go of the files; what is out comes to others when its lease runs out, or was given back."""
        self.watch.close()
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.close()

    # Taking.

    def take_free(self, limit: int, *, skip_gaps: bool, gaps: list[Gap]) -> list[Returned]:
        """What is anybody's again, for the time of a lease: due, given back, or not settled in time."""
        self.bring_due()
        now_ms = self._now_ms()
        leases = self._queues.take_free(self._place, limit, self._member, now_ms, now_ms + self._lease_ms)
        return [
            Returned(message, lease.ran_out)
            for lease in leases
            for message in self._read_lease(lease, skip_gaps, gaps)
        ]

    def _read_lease(self, lease: Lease, skip_gaps: bool, gaps: list[Gap]) -> list[Message[Any]]:
        """The messages of a lease, each with how often it was handed out."""
        if lease.data is not None:
            found = envelope.decode(lease.data)
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
        while (begin := self._queues.next(self._place)) is not None:
            if self._cursor is None or self._cursor.offset != begin:
                self._cursor = self.topic.log(self.partition).cursor(begin)
            try:
                rows = self._cursor.read(limit, max_bytes)
            except (OffsetTrimmed, Corrupt) as error:
                behind = self._behind(error, begin)
                if not skip_gaps:
                    raise
                if self._queues.take_new(self._place, (), behind, begin, self._member, 0):
                    self.done(begin, begin)
                    gaps.append(Gap(self.topic.name, self.partition, begin, behind, str(error)))
                continue
            if not rows:
                return []
            runs = [(each.first, each.stop) for each in rows]
            until_ms = self._now_ms() + self._lease_ms
            if self._queues.take_new(self._place, runs, runs[-1][1], begin, self._member, until_ms):
                return rows
        self.topic.require_open()
        return []

    def _step_over(
        self, error: OffsetTrimmed | Corrupt, first: int, stop: int, skip_gaps: bool, gaps: list[Gap]
    ) -> int:
        """What was out and is gone from the log; it is done, and told."""
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
        """These are done; how many of them this reader still had."""
        for offset in [each for each in self._waited if first <= each < stop]:
            del self._waited[offset]
        return self._queues.done(self._place, first, stop, self._member, self.topic.clock.now_ns())

    def has(self, offset: int) -> bool:
        return self._queues.has(self._place, offset, self._member)

    def enclosed(self, message: Message[Any]) -> Envelope:
        """What is to be kept of a message."""
        found = self._waited.get(message.offset)
        return enclosed(message, self.topic.record.id) if found is None else found

    def store(self, found: Envelope, wait_s: float, attempts: int, *, fixed: bool = False) -> None:
        """Have a message wait; it is as safe as its topic's messages when this returns.

        `fixed` waits are those that other messages wait too (`WaitingMessages.store`).
        """
        identity = envelope.waiting_id(self._place.consumer, found, attempts)
        data = envelope.encoded(found)
        self._opened().store(
            id=identity, topic=self.topic.name, data=data, wait=wait_s, attempts=attempts, fixed=fixed
        )
        self._next_due_ms = min(self._next_due_ms, self._now_ms() + round(wait_s * 1000))

    def extend(self) -> None:
        self._queues.extend(self._place, self._member, self._now_ms() + self._lease_ms)

    def give_back(self, undelivered: Iterable[int]) -> None:
        """What this reader has is anybody's."""
        self._waited.clear()
        self._queues.give_back(self._place, self._member, undelivered=undelivered)

    def free_the_dead(self, is_alive: Callable[[int], bool]) -> None:
        """What readers have whose process is gone is anybody's, at once."""
        for member in self._queues.members(self._place) - {self._member}:
            if not is_alive(member):
                self._queues.end(self._place, member)

    # What waits.

    def bring_due(self) -> None:
        """Put messages whose next attempt is due where all readers can take them."""
        now_ms = self._now_ms()
        if now_ms < self._next_due_ms and time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + LOOK_AGAIN_S
        if self._waiting is None and not self.topic.files.exists(self._folder):
            self._next_due_ms = 2**63
            return
        waiting = self._opened()
        self._next_due_ms = 0  # somebody may store while we look
        taken = waiting.take(_AT_A_TIME)
        if taken:
            is_durable = self.topic.options.sync == "disk"
            due = [(envelope.decode(each.data).offset, each.attempts, each.data) for each in taken]
            self._queues.add_due(self._place, due, durable=is_durable)
            waiting.finish(taken)
            waiting.ring()
        due_ms = waiting.next_due()
        self._next_due_ms = 2**63 if due_ms is None else due_ms

    def pause_s(self) -> float:
        """How long until something may be taken here that nobody rings for."""
        free_ms = self._queues.next_free_ms(self._place)
        next_ms = min(self._next_due_ms, 2**63 if free_ms is None else free_ms)
        return min(max(next_ms - self._now_ms(), 0) / 1000, LOOK_AGAIN_S)

    def _opened(self) -> WaitingMessages:
        if self._waiting is None:
            topic = self.topic
            waiting = WaitingMessages(self._folder, topic.files, topic.clock, sync=topic.options.sync)
            waiting.listen(self._hear)
            self._waiting = waiting
        return self._waiting

    def _hear(self) -> None:
        """Somebody stored something, or made it free. Called from any thread."""
        self._next_due_ms = 0
        self._ring()

    def _now_ms(self) -> int:
        return self.topic.clock.now_ns() // 1_000_000
