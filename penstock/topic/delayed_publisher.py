"""Messages on their way into a topic: written now, appended when they are due.

They wait in one folder of the store (`delay/publish`). A thread of some process that has the store open for
writing appends what is due; when that process ends, another one's goes on. When no process has the store
open, messages are late, never lost. A message is appended and synced, then it is finished where it waited: a
process that is killed in between leaves it to be appended twice.

What a transaction delays is committed with it, in `state.db`, and put among the others right behind the
commit, by its process or by the next one that looks.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from penstock.clock import NANOSECONDS, Clock
from penstock.delay.records import NewRecord
from penstock.delay.waiting import WaitingMessages
from penstock.delay.window import TakenMessage
from penstock.errors import Closed, InvalidOption, PenstockError, TakenElsewhere, TopicReplaced
from penstock.files import Files
from penstock.locks import forget_in_child
from penstock.log.frame import RAW
from penstock.log.frame_encode import MessageColumns
from penstock.message import Receipt
from penstock.parse import WAIT_MAX_S, Duration, nanoseconds, wait_seconds
from penstock.state.transactions import DelayedRow, Transactions
from penstock.topic.open_topic import OpenTopic
from penstock.topic.value_codec import checked_value
from penstock.topic.write_batch import WriteBatch
from penstock.topic.write_buffer import Extras
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


class Postponed(NamedTuple):
    """A message on its way, and when it is to enter its topic."""

    message: DelayedMessage
    due_ms: int
    #: Given once, so that one that was stored twice is the same twice.
    id: bytes


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(DelayedMessage)


def decode(data: bytes) -> DelayedMessage:
    return _decoder.decode(data)


class DelayedPublisher:
    """The messages of a store that are on their way, and the thread that appends them. For all threads."""

    def __init__(
        self, folder: str, files: Files, clock: Clock, find: Callable[[int], OpenTopic],
        transactions: Transactions,
    ) -> None:  # fmt: skip
        self._folder = folder
        self._transactions = transactions
        self._files = files
        self._clock = clock
        self._find = find
        self._mutex = threading.Lock()
        self._publishing = threading.Lock()
        self._bell = Bell()
        self._waiting: WaitingMessages | None = None
        self._thread: threading.Thread | None = None
        self._ended = False
        #: Due, and could not be appended yet.
        self._left: list[TakenMessage] = []
        forget_in_child(self)

    def add(self, topic: str, messages: Sequence[Postponed]) -> None:
        """Store messages until they are due; they survive a power cut when this returns.

        One sync serves them all. If it raises, some may have been stored.
        """
        entries = [
            NewRecord(each.due_ms, each.id, topic, 0, _encoder.encode(each.message)) for each in messages
        ]
        self._opened().store_until(entries)
        self._start()

    def prepare(self) -> None:
        """See that other processes look here from now on: a transaction is about to delay something."""
        self._opened()

    def bring_in(self) -> None:
        """Put what committed transactions delay among the waiting messages."""
        while self._transactions.hand_on_delayed(self._store_rows, _AT_A_TIME) == _AT_A_TIME:
            pass
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
            self._transactions.hand_on_delayed(self._store_rows, _AT_A_TIME)
            taken, self._left = [*self._left, *waiting.take(_AT_A_TIME)], []
            by_topic: dict[int, list[tuple[TakenMessage, DelayedMessage]]] = {}
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

    def _store_rows(self, rows: Sequence[DelayedRow]) -> None:
        self._opened().store_until(
            [NewRecord(row.due_ms, _row_id(row), row.topic, 0, row.data) for row in rows]
        )

    def _append(self, topic_id: int, messages: Sequence[DelayedMessage]) -> None:
        """In the order of due times."""
        topic = self._find(topic_id)
        topic.sync(topic.append(_outgoing(messages)))

    def _opened(self) -> WaitingMessages:
        with self._mutex:
            if self._ended:
                raise Closed("the store is closed", hint="open it again")
            if self._waiting is None:
                self._waiting = WaitingMessages(self._folder, self._files, self._clock)
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


def postponed(
    topic: OpenTopic, value: bytes | None, key: bytes | None, extras: Extras, due_ns: int, codec: int = RAW
) -> Postponed:
    """A checked message that is to wait; it lies in the log meanwhile, so it is no larger than that takes."""
    checked_value(value, topic.options.max_message_bytes)
    message = DelayedMessage(
        topic.record.id, key, None if value is None else bytes(value), codec,
        dict(extras.headers) if extras.headers else None,
        topic.clock.now_ns() if extras.timestamp is None else extras.timestamp, extras.partition,
        extras.group or None,
    )  # fmt: skip
    due_ms = -(-due_ns // 1_000_000)  # never early
    return Postponed(message, due_ms, secrets.token_bytes(16))


def no_body() -> InvalidOption:
    return InvalidOption(
        "what is delayed lies in the log", hint="give its bytes, without a name, or write it when it is due"
    )


def of_batch(topic: OpenTopic, message: WriteBatch, group: str, due_ns: int) -> Postponed:
    """A batch of one that is to wait."""
    columns = message.columns
    extras = Extras(
        columns.headers[0] if columns.headers else None,
        columns.timestamps[0] if columns.timestamps else None,
        message.partitions[0] if message.partitions else None,
        group,
    )
    key = columns.keys[0] if columns.keys else None
    codec = columns.codecs if isinstance(columns.codecs, int) else columns.codecs[0]
    return postponed(topic, columns.values[0], key, extras, due_ns, codec)


def rows(tx: int, delayed: Sequence[tuple[str, Postponed]]) -> list[DelayedRow]:
    """What a transaction delays, by topic, as it is committed."""
    return [
        DelayedRow(tx, number, each.due_ms, topic, _encoder.encode(each.message))
        for number, (topic, each) in enumerate(delayed)
    ]


def store(topic: OpenTopic, message: WriteBatch, group: str, due_ns: int) -> Receipt:
    """Have a batch of one wait, on disk; its receipt names no place, since it has none in its topic yet."""
    later = of_batch(topic, message, group, due_ns)
    topic.delayed.add(topic.name, [later])
    return Receipt(-1, -1, "disk", due_at=later.due_ms * 1_000_000)


def _row_id(row: DelayedRow) -> bytes:
    return row.tx.to_bytes(8, "little") + row.number.to_bytes(8, "little")


def _outgoing(messages: Sequence[DelayedMessage]) -> WriteBatch:
    columns = MessageColumns(
        [each.value for each in messages],
        [each.key for each in messages],
        [each.headers for each in messages],
        [each.timestamp for each in messages],
        codecs=[each.codec for each in messages],
    )
    return WriteBatch(columns, [each.partition for each in messages], [each.group for each in messages])
