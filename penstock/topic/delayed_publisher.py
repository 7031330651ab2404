"""The thread that appends delayed messages to their topics when they are due.

They wait in one folder of the store (`delay/publish`). A thread of some process that has the store open for
writing appends what is due; when that process ends, another one's goes on. When no process has the store
open, messages are late, never lost. A message is appended and synced, then it is finished where it waited: a
process that is killed in between leaves it to be appended twice.

A topic that cannot be appended to holds up nobody else: its messages are kept and tried again after a pause,
and when they become many they are stored again until later.

What a transaction delays is committed with it, in `state.db`, and put among the others right behind the
commit, by its process or by the next one that looks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, cast

import msgspec

from penstock.clock import Clock
from penstock.delay.records import NewRecord, RecordColumns, uuid7, uuid7s
from penstock.delay.waiting import WaitingMessages
from penstock.delay.window import TakenMessage
from penstock.errors import Closed, PenstockError, TakenElsewhere, TopicReplaced
from penstock.files import Files
from penstock.locks import forget_in_child
from penstock.log.frame_encode import MessageColumns
from penstock.log.meter import CHARGED
from penstock.state.transactions import DelayedRow, Transactions
from penstock.topic.delayed import DelayedMessage, Postponed, decode
from penstock.topic.open_topic import OpenTopic
from penstock.topic.write_batch import WriteBatch
from penstock.wake import Bell

logger = logging.getLogger("penstock.delayed")

_LOOK_AGAIN_S = 1.0
_AT_A_TIME = 1000
_END_WAIT_S = 10.0
#: So many messages of topics that fail are kept in order, and so many bytes; further ones are stored again,
#: due after a while. It is less than a window holds.
_KEPT_MAX, _KEPT_BYTES = 1000, 1024 * 1024
_STORED_AGAIN_MS = 30_000
#: A topic that failed is left alone for so long, twice as long each time, up to the most.
_PAUSE_FIRST_S, _PAUSE_MOST_S = 1.0, 60.0

#: A record that waited until it was due, and the message in it.
DueMessage = tuple[TakenMessage, DelayedMessage]


class FailingTopic(NamedTuple):
    """A topic that could not be appended to, and what is due of it."""

    due: list[DueMessage]
    pause_s: float
    #: When to try again, by the monotonic clock.
    again_at: float


class DelayedPublisher:
    """The delayed messages of a store, and the thread that appends them. For all threads."""

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
        #: By topic id.
        self._failing: dict[int, FailingTopic] = {}
        forget_in_child(self)

    def add(self, topic: str, messages: Sequence[Postponed], *, durable: bool | None = None) -> None:
        """Store messages until they are due; they are as safe as their topic's when this returns.

        `durable` overrides what their topic promises. One sync serves them all. If it raises, some may have
        been stored.
        """
        if len(messages) == 1:
            self._add_one(topic, messages[0], durable)
        else:
            self._add_many(topic, messages, durable)
        if self._thread is None:
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
        """Append what is due now; how many were appended. Another process may be the one that does so."""
        if self._waiting is None and not self._files.exists(self._folder):
            return 0
        with self._publishing:
            waiting = self._opened()
            self._transactions.hand_on_delayed(self._store_rows, _AT_A_TIME)
            by_topic = self._failing_again()
            for record in waiting.take(_AT_A_TIME):
                message = _message(record)
                if message is not None:
                    by_topic.setdefault(message.topic_id, []).append((record, message))
            published = sum(self._publish(waiting, topic_id, due) for topic_id, due in by_topic.items())
            self._store_surplus(waiting)
            return published

    def end(self) -> None:
        """Release everything; another process goes on."""
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
        """Stop in the child: its parent publishes."""
        self._ended = True
        self._thread = self._waiting = None
        self._mutex, self._publishing = threading.Lock(), threading.Lock()

    # Storing.

    def _add_one(self, topic: str, later: Postponed, durable: bool | None) -> None:
        wait, begun_ms = later.delay_ms, later.begun_ms
        is_fixed = wait is not None
        if wait is None:
            wait = max(later.at_ms - begun_ms, 0)
        self._opened().store_one(
            NewRecord(wait, uuid7(begun_ms), topic, 0, later.data), begun_ms,
            fixed=is_fixed, durable=later.is_durable if durable is None else durable,
        )  # fmt: skip

    def _add_many(self, topic: str, messages: Sequence[Postponed], durable: bool | None) -> None:
        waits = [each.delay_ms for each in messages]
        if None in waits:
            self._opened().store_until(
                NewRecord(each.at_ms, uuid7(each.begun_ms), topic, 0, each.data)
                for each in messages
                if each.delay_ms is None
            )
            delayed = [each for each in messages if each.delay_ms is not None]
            if delayed:
                self._add_many(topic, delayed, durable)
            return
        datas, begun = [each.data for each in messages], [each.begun_ms for each in messages]
        count, lengths = len(messages), list(map(len, datas))
        ids, fixed = uuid7s(begun[0], count), cast(list[int], waits)
        columns = RecordColumns(fixed, ids, [topic] * count, [0] * count, datas, lengths, begun)
        self._opened().store_columns(columns, durable=messages[0].is_durable if durable is None else durable)

    def _store_rows(self, rows: Sequence[DelayedRow]) -> None:
        self._opened().store_until(
            [NewRecord(row.due_ms, _row_id(row), row.topic, 0, row.data) for row in rows]
        )

    # Appending. `_publishing` is held.

    def _failing_again(self) -> dict[int, list[DueMessage]]:
        """Return what is left of failing topics whose pause has ended."""
        now = self._clock.monotonic()
        return {
            topic_id: list(failing.due)
            for topic_id, failing in self._failing.items()
            if failing.again_at <= now
        }

    def _publish(self, waiting: WaitingMessages, topic_id: int, due: list[DueMessage]) -> int:
        """Append messages of one topic and finish them; keep them when the topic fails."""
        failing = self._failing.get(topic_id)
        if failing is not None and failing.again_at > self._clock.monotonic():
            self._failing[topic_id] = failing._replace(due=[*failing.due, *due])
            return 0
        try:
            self._append(topic_id, [message for _, message in due])
        except TopicReplaced:
            logger.warning("%d delayed messages of a topic that was dropped are gone", len(due))
        except Closed:
            raise
        except Exception as error:
            pause_s = _PAUSE_FIRST_S if failing is None else min(2 * failing.pause_s, _PAUSE_MOST_S)
            is_known = isinstance(error, (PenstockError, OSError))
            logger.warning(
                "%d delayed messages of topic %d could not be appended, trying again in %g s: %s",
                len(due), topic_id, pause_s, error, exc_info=not is_known,
            )  # fmt: skip
            again_at = self._clock.monotonic() + pause_s
            self._failing[topic_id] = FailingTopic(due, pause_s, again_at)
            return 0
        self._failing.pop(topic_id, None)
        with suppress(TakenElsewhere):  # another process delivers them again
            waiting.finish([record for record, _ in due])
        return len(due)

    def _store_surplus(self, waiting: WaitingMessages) -> None:
        """Store again, due later, what failing topics have left and is too much to be kept.

        What is kept stays in the window of its chain; a full window would hold up others of the same delay.
        """
        topics = max(len(self._failing), 1)
        for topic_id, failing in list(self._failing.items()):
            stop = _fitting(failing.due, _KEPT_MAX // topics, _KEPT_BYTES // topics)
            kept, rest = failing.due[:stop], failing.due[stop:]
            if not rest:
                continue
            waiting.store_many(
                NewRecord(_STORED_AGAIN_MS, record.id, record.topic, record.attempts + 1, record.data)
                for record, _ in rest
            )
            self._failing[topic_id] = failing._replace(due=kept)
            with suppress(TakenElsewhere):
                waiting.finish([record for record, _ in rest])

    def _append(self, topic_id: int, messages: Sequence[DelayedMessage]) -> None:
        """Append in the order of due times. A quota is charged and not waited for: other topics come next."""
        topic = self._find(topic_id)
        topic.sync(topic.append(_outgoing(messages), terms=CHARGED))

    # The thread.

    def _opened(self) -> WaitingMessages:
        waiting = self._waiting
        if waiting is not None and not self._ended:
            return waiting
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


def _message(record: TakenMessage) -> DelayedMessage | None:
    """The message of a record; None when it cannot be read: it stays where it is, to be looked at."""
    try:
        return decode(record.data)
    except msgspec.MsgspecError as error:
        logger.error(
            "the delayed message %s cannot be read and stays where it is: %s", record.id.hex(), error
        )
        return None


def _fitting(due: Sequence[DueMessage], most: int, most_bytes: int) -> int:
    """Count how many of the first messages stay within both limits."""
    size = 0
    for place, (record, _) in enumerate(due[:most]):
        size += len(record.data)
        if size > most_bytes:
            return place
    return min(len(due), most)


def _row_id(row: DelayedRow) -> bytes:
    """The id of a transaction's message: the same should it be stored twice."""
    return uuid7(row.due_ms, row.tx << 24 | row.number)


def _outgoing(messages: Sequence[DelayedMessage]) -> WriteBatch:
    columns = MessageColumns(
        [each.value for each in messages],
        [each.key for each in messages],
        [each.headers for each in messages],
        [each.timestamp for each in messages],
        codecs=[each.codec for each in messages],
    )
    return WriteBatch(columns, [each.partition for each in messages], [each.group for each in messages])
