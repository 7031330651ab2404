"""Messages on their way into a topic: written now, appended when they are due.

They wait in one folder of the store (`delay/publish`). A thread of some process that has the store open for
writing appends what is due; when that process ends, another one's goes on. When no process has the store
open, messages are late, never lost. A message is appended and synced, then it is finished where it waited: a
process that is killed in between leaves it to be appended twice.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec

from penstock.clock import NANOSECONDS, Clock
from penstock.delay.waiting import Waiting
from penstock.delay.window import Taken
from penstock.errors import Closed, InvalidOption, PenstockError, TakenElsewhere, TopicReplaced
from penstock.files import Files
from penstock.locks import forget_in_child
from penstock.message import Receipt
from penstock.options import WAIT_MAX_S, Duration, nanoseconds, wait_seconds
from penstock.topic.partitions import Outgoing, Partitions
from penstock.wake import Bell

logger = logging.getLogger("penstock.delayed")

_LOOK_AGAIN_S = 1.0
_AT_A_TIME = 1000
_END_WAIT_S = 10.0


class DelayedMessage(msgspec.Struct, frozen=True, array_like=True):
    """What is stored as the data of a waiting record (docs/FORMAT.md); fields are only ever added."""

    topic_id: int
    key: bytes | None
    value: bytes | None
    codec: int
    #: Values are text or bytes.
    headers: dict[str, Any] | None
    timestamp: int
    partition: int | None
    group: str | None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(DelayedMessage)


def decode(data: bytes) -> DelayedMessage:
    return _decoder.decode(data)


class Delayed:
    """The messages of a store that are on their way, and the thread that appends them. For all threads."""

    def __init__(self, folder: str, files: Files, clock: Clock, find: Callable[[int], Partitions]) -> None:
        self._folder = folder
        self._files = files
        self._clock = clock
        self._find = find
        self._mutex = threading.Lock()
        self._publishing = threading.Lock()
        self._bell = Bell()
        self._waiting: Waiting | None = None
        self._thread: threading.Thread | None = None
        self._ended = False
        #: Due, and could not be appended yet.
        self._left: list[Taken] = []
        forget_in_child(self)

    def add(self, topic: str, message: DelayedMessage, due_ms: int) -> None:
        """Store a message until it is due; it survives a power cut when this returns."""
        data = _encoder.encode(message)
        self._opened().store(id=secrets.token_bytes(16), topic=topic, data=data, due_ms=due_ms)
        self._start()

    def look(self) -> None:
        """Take part in appending what is due, if anything was ever delayed in this store."""
        if self._thread is None and not self._ended and self._files.exists(self._folder):
            self._start()

    def publish_due(self) -> int:
        """Append what is due now; how many there were. Another process may be the one that does so."""
        if self._waiting is None and not self._files.exists(self._folder):
            return 0
        with self._publishing:
            waiting = self._opened()
            taken, self._left = [*self._left, *waiting.take(_AT_A_TIME)], []
            by_topic: dict[int, list[tuple[Taken, DelayedMessage]]] = {}
            for each in taken:
                message = decode(each.data)
                by_topic.setdefault(message.topic_id, []).append((each, message))
            for topic_id, pairs in by_topic.items():
                records = [record for record, _ in pairs]
                try:
                    self._append(topic_id, [message for _, message in pairs])
                except TopicReplaced:
                    logger.warning("%d delayed messages of a topic that was dropped are gone", len(pairs))
                except BaseException:
                    self._left += records
                    raise
                with suppress(TakenElsewhere):  # they come again there
                    waiting.finish(records)
            return len(taken)

    def end(self) -> None:
        """Let go; another process goes on."""
        self._ended = True
        self._bell.ring()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_END_WAIT_S)
        with self._mutex:
            waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.close()

    def after_fork_in_child(self) -> None:
        self._ended = True
        self._thread = self._waiting = None
        self._mutex, self._publishing = threading.Lock(), threading.Lock()

    # Inside.

    def _append(self, topic_id: int, messages: Sequence[DelayedMessage]) -> None:
        """In the order of due times; neighbours of one codec at a time."""
        topic = self._find(topic_id)
        first = 0
        while first < len(messages):
            stop = first
            while stop < len(messages) and messages[stop].codec == messages[first].codec:
                stop += 1
            landed = list(topic.append(_outgoing(messages[first:stop])))
            topic.sync(landed)
            first = stop

    def _opened(self) -> Waiting:
        with self._mutex:
            if self._ended:
                raise Closed("the store is closed", hint="open it again")
            if self._waiting is None:
                self._waiting = Waiting(self._folder, self._files, self._clock)
                self._waiting.listen(self._bell.ring)
            return self._waiting

    def _start(self) -> None:
        with self._mutex:
            if self._thread is None and not self._ended:
                thread = threading.Thread(target=self._work, name="penstock-delayed", daemon=True)
                with suppress(RuntimeError):  # the interpreter is ending: another process goes on
                    thread.start()
                    self._thread = thread

    def _work(self) -> None:
        while not self._ended:
            try:
                if self.publish_due():
                    continue
                due_ms = self._opened().next_due()
            except Closed:
                return
            except (PenstockError, OSError) as error:
                logger.warning("delayed messages could not be appended, trying again: %s", error)
                due_ms = None
            except Exception:  # or nobody would append the rest
                logger.exception("delayed messages could not be appended, trying again")
                due_ms = None
            wait_s = _LOOK_AGAIN_S
            if due_ms is not None:
                wait_s = min(max(due_ms - self._clock.now_ns() // 1_000_000, 0) / 1000, wait_s)
            if not self._ended:
                self._bell.wait(wait_s)


def due_at(delay: Duration | None, deliver_at: int | datetime | None, now_ns: int) -> int | None:
    """When a message is to enter its topic, in nanoseconds; None for a moment that has passed."""
    if delay is not None and deliver_at is not None:
        raise InvalidOption("delay and deliver_at are both given", hint="give one of them")
    if delay is not None:
        return now_ns + round(wait_seconds("delay", delay) * NANOSECONDS)
    assert deliver_at is not None
    moment = nanoseconds("deliver_at", deliver_at)
    if moment - now_ns > WAIT_MAX_S * NANOSECONDS:
        raise InvalidOption("deliver_at is more than a year from now", hint="a year at most")
    return moment if moment > now_ns else None


def postpone(topic: Partitions, message: Outgoing, group: str, due_ns: int) -> Receipt:
    """Store one checked message until it is due."""
    delayed = DelayedMessage(
        topic.record.id,
        message.keys[0] if message.keys else None,
        message.values[0],
        message.codec,
        dict(message.headers[0] or {}) if message.headers else None,
        message.timestamps[0] if message.timestamps else topic.clock.now_ns(),
        message.partitions[0] if message.partitions else None,
        group or None,
    )
    due_ms = -(-due_ns // 1_000_000)  # never early
    topic.delayed.add(topic.name, delayed, due_ms)
    return Receipt(-1, -1, "disk", due_at=due_ms * 1_000_000)


def _outgoing(messages: Sequence[DelayedMessage]) -> Outgoing:
    return Outgoing(
        [each.value for each in messages],
        [each.key for each in messages],
        [each.headers for each in messages],
        [each.timestamp for each in messages],
        [each.partition for each in messages],
        codec=messages[0].codec,
        groups=[each.group for each in messages],
    )
