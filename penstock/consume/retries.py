"""The messages of one partition that wait for another attempt of its consumer.

Whoever has the lease of the partition hands them out, so they need no lock of their own: a member that
takes the lease takes the scheduler's post too, also from one that is stuck. A message that was handed out
lies in its file until it is done, and comes again when its reader dies.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from penstock.consume import envelope
from penstock.consume.envelope import Envelope
from penstock.delay.waiting import Waiting
from penstock.delay.window import Taken
from penstock.errors import PartitionLost, TakenElsewhere
from penstock.message import Message
from penstock.topic.delayfolders import retries_folder
from penstock.topic.partitions import Partitions

#: How often one looks without being told: for a folder that another process made, or a hint that was lost.
_LOOK_AGAIN_S = 1.0
_NEVER_MS = 2**63


class Out(NamedTuple):
    """A message that was handed out, where it lies, and what it was made of."""

    message: Message[Any]
    envelope: Envelope
    #: More than one when a crash left duplicates.
    records: list[Taken]


class Retries:
    """What waits of one partition; used under its reader's mutex, but for `close`."""

    def __init__(self, topic: Partitions, partition: int, consumer: str, ring: Callable[[], None]) -> None:
        self._topic = topic
        self._consumer = consumer
        self._ring = ring
        self._folder = retries_folder(topic, consumer, partition)
        self._key = (topic.name, partition)
        self._waiting: Waiting | None = None
        self._closed = False
        #: By offset.
        self._out: dict[int, Out] = {}
        #: Taken from the files, not yet handed out.
        self._fetched: deque[Message[Any]] = deque()
        #: Nothing is due before; as of the last look.
        self._next_due_ms = 0
        self._look_again_at = 0.0
        #: By key: offsets that wait, and when they are due. None until somebody asks for order.
        self._by_key: dict[bytes, dict[int, int]] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether all that was handed out is done."""
        return len(self._out) == len(self._fetched)

    def close(self) -> None:
        """Let go of the files; what is not done comes again to whoever has the partition then."""
        self._closed = True
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.close()

    # Handing out.

    def take(self, max_messages: int, max_bytes: int) -> list[Message[Any]]:
        """What is due now, the earliest first, within the limits but one message at least; mostly nothing."""
        if not self._fetched and not self._fetch(max_messages):
            return []
        found: list[Message[Any]] = []
        weight = 0
        while self._fetched and len(found) < max_messages:
            weight += len(self._fetched[0].key or b"") + len(self._fetched[0].stored or b"")
            if found and weight > max_bytes:
                break
            found.append(self._fetched.popleft())
            self._left(found[-1])
        return found

    def put_back(self, offsets: Sequence[int]) -> None:
        """These were not delivered after all: they come next."""
        there = [self._out[offset].message for offset in offsets if offset in self._out]
        self._fetched.extendleft(reversed(there))
        for message in there:
            self._note(message.key, message.offset, 0)

    def due_in_s(self) -> float:
        """How long until something is to be done here, as far as is known."""
        if self._fetched:
            return 0.0
        if self._waiting is None or self._next_due_ms == _NEVER_MS:
            return _LOOK_AGAIN_S
        return max(self._next_due_ms - self._now_ms(), 0) / 1000

    @property
    def seems_due(self) -> bool:
        """Whether something may be handed out now; looks into no file."""
        return bool(self._fetched) or (self._waiting is not None and self._now_ms() >= self._next_due_ms)

    @property
    def reads_files(self) -> bool:
        """Whether the next `take` looks into files, which may take a moment."""
        return self._waiting is not None and not self._fetched and self._is_worth_a_look()

    def out(self, offset: int) -> Out | None:
        """What was handed out from here and is not done, at an offset."""
        return self._out.get(offset)

    def finish(self, first: int, stop: int) -> bool:
        """Offsets `first` to `stop` are done, where they came from here; whether any did.

        Raises `PartitionLost` when another member hands them out now.
        """
        if not self._out:
            return False
        offsets = [first] if stop == first + 1 else [each for each in self._out if first <= each < stop]
        done = [self._out.pop(offset) for offset in offsets if offset in self._out]
        if not done:
            return False
        try:
            self._opened().finish([record for each in done for record in each.records])
        except TakenElsewhere as error:
            raise PartitionLost(
                f"{self._key[0]!r} partition {self._key[1]} went to another member, with what waited of it",
                hint="what was not committed comes again there: go on receiving",
            ) from error
        except BaseException:
            self._out.update({each.message.offset: each for each in done})
            raise
        return True

    # Storing.

    def store(self, enclosed: Envelope, *, wait_s: float, attempts: int) -> None:
        """Have a message wait; it is as safe as its topic's messages when this returns.

        `attempts` is how often it was tried: it comes back as the next one.
        """
        data = envelope.encoded(enclosed)
        self._opened().store(
            id=envelope.waiting_id(self._consumer, enclosed, attempts), topic=self._key[0],
            data=data, wait=wait_s, attempts=attempts,
        )  # fmt: skip
        due_ms = self._now_ms() + round(wait_s * 1000)
        self._next_due_ms = min(self._next_due_ms, due_ms)
        self._note(enclosed.key, enclosed.offset, due_ms)

    # The order of a key.

    def earlier_due_ms(self, key: bytes, offset: int) -> int | None:
        """When an earlier message of a key that waits here is due; None when none does.

        The first call reads all that waits, and from then on their keys are kept in memory.
        """
        if self._by_key is None:
            self._by_key = {}
            for record in self._opened().scan() if self._is_there() else ():
                found = envelope.decode(record.data)
                if found.offset not in self._out:
                    self._note(found.key, found.offset, record.due)
            for message in self._fetched:
                self._note(message.key, message.offset, 0)
        offsets = self._by_key.get(key)
        return None if not offsets else min((due for at, due in offsets.items() if at < offset), default=None)

    def _note(self, key: bytes | None, offset: int, due_ms: int) -> None:
        if self._by_key is not None and key is not None:
            self._by_key.setdefault(key, {})[offset] = due_ms

    def _left(self, message: Message[Any]) -> None:
        if self._by_key is not None and message.key is not None:
            offsets = self._by_key.get(message.key, {})
            offsets.pop(message.offset, None)
            if not offsets:
                self._by_key.pop(message.key, None)

    # Inside.

    def _fetch(self, limit: int) -> bool:
        """Take what is due from the files, if it is worth a look."""
        if self._closed or not self._is_worth_a_look():
            return False
        self._look_again_at = time.monotonic() + _LOOK_AGAIN_S
        if not self._is_there():
            self._next_due_ms = _NEVER_MS
            return False
        waiting = self._opened()
        self._next_due_ms = 0  # somebody may store while we look
        for record in waiting.take(limit):
            self._add(record)
        if not self._fetched:
            due_ms = waiting.next_due()
            self._next_due_ms = _NEVER_MS if due_ms is None else due_ms
        return bool(self._fetched)

    def _is_worth_a_look(self) -> bool:
        return self._now_ms() >= self._next_due_ms or time.monotonic() >= self._look_again_at

    def _add(self, record: Taken) -> None:
        found = envelope.decode(record.data)
        there = self._out.get(found.offset)
        if there is not None:  # a crash left a second record of it: done with the first
            there.records.append(record)
            return
        message = found.message(self._key[0], record.attempts + 1)
        self._out[found.offset] = Out(message, found, [record])
        self._fetched.append(message)

    def _is_there(self) -> bool:
        return self._waiting is not None or self._topic.files.exists(self._folder)

    def _opened(self) -> Waiting:
        if self._waiting is None:
            self._topic.require_open()
            if self._closed:
                raise PartitionLost(
                    f"{self._key[0]!r} partition {self._key[1]} is not read by this reader any more",
                    hint="what was not committed comes again, here or to another member: go on receiving",
                )
            waiting = Waiting(
                self._folder, self._topic.files, self._topic.clock, sync=self._topic.options.sync
            )
            waiting.listen(self._hear)
            if waiting.holder is not None:
                waiting.kick()  # it has lost the partition, and does not know, or cannot act on it
            self._waiting = waiting
        return self._waiting

    def _hear(self) -> None:
        """Somebody stored something. Called from any thread."""
        self._next_due_ms = 0
        self._ring()

    def _now_ms(self) -> int:
        return self._topic.clock.now_ns() // 1_000_000
