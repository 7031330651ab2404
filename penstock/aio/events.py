"""The async live events: any number of subscribers wait without a thread."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

from penstock import wake
from penstock.aio.topic import Topic
from penstock.aio.twin import Threads
from penstock.errors import Closed, ConflictError, PenstockError
from penstock.events import events
from penstock.events.event import Answer, Pushed, stored_pairs
from penstock.events.event_query import Interest
from penstock.events.events import WAIT_S
from penstock.keys import Key, Match, Prefix
from penstock.log.cursor import Cursor
from penstock.parse import KIB, Duration, seconds
from penstock.topic.open_topic import OpenTopic
from penstock.topic.watch import DeadWriterHelp, TopicWatch

logger = logging.getLogger("penstock.aio")

_READ_MESSAGES = 1000
_READ_BYTES = 256 * KIB


class Listener:
    """One who waits."""

    def __init__(self, tail: Tail) -> None:
        self._tail = tail
        self._loop = asyncio.get_running_loop()
        #: Where it was rung first.
        self._rung: int | None = None
        self._waiter: asyncio.Future[None] | None = None

    def ring(self, offset: int) -> None:
        """Something concerns it, at that offset or behind it. In the loop's thread."""
        if self._rung is None:
            self._rung = offset
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, timeout: float) -> int:
        """Return when rung, or after `timeout` seconds; a ring before the call counts.

        Before the offset it returns nothing came that concerns it, since it was noted.
        """
        if self._rung is None:
            self._waiter = self._loop.create_future()
            timer = self._loop.call_later(timeout, lambda: self.ring(self._tail.position))
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        offset, self._rung = self._rung, None
        return 0 if offset is None else offset


class Tail:
    """Follows the log of one topic while anybody waits."""

    def __init__(self, partitions: OpenTopic, help_out: DeadWriterHelp, threads: Threads) -> None:
        self._partitions = partitions
        self._help = help_out
        self._threads = threads
        self._interest: Interest[Listener] = Interest()
        self._is_rung = False
        self._waiting: TopicWatch | None = None
        #: How many wait now.
        self.waiting = 0

    @property
    def position(self) -> int:
        """The first offset that it has not read."""
        return self._cursor.offset

    @contextmanager
    def ear(self, asked: Match) -> Iterator[Listener]:
        """Have an ear rung when something comes for these keys, until the block is left."""
        ear = Listener(self)
        if self._waiting is None:
            self._begin()
        self._interest.add(ear, asked)
        self.waiting += 1
        try:
            yield ear
        finally:
            self.waiting -= 1
            self._interest.remove(ear, asked)
            if not self._interest:
                self._end()

    # Inside.

    def _begin(self) -> None:
        self._loop = asyncio.get_running_loop()
        bell = wake.Bell()
        bell.hearer = self._ring
        waiting = TopicWatch(self._partitions, bell.ring)
        waiting.__enter__()
        self._waiting = waiting
        self._cursor = self._at_end()
        self._timer = self._loop.call_later(waiting.pause_s, self._tick)

    def _end(self) -> None:
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            self._timer.cancel()
            waiting.__exit__()

    def _at_end(self) -> Cursor:
        log = self._partitions.log(0)
        return log.cursor(log.bounds().end)

    def _ring(self) -> None:
        """Something was written, perhaps. From any thread."""
        if not self._is_rung:
            self._is_rung = True
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._look)

    def _tick(self) -> None:
        """Look, rung or not, and see that what a process left behind that died is seen."""
        if self._waiting is None:
            return
        self._look()
        if self._waiting is not None:
            self._timer = self._loop.call_later(self._waiting.pause_s, self._tick)
        if self._help.is_due():
            with suppress(Closed):
                self._threads.start(self._help).add_done_callback(_log_failure)

    def _look(self) -> None:
        """Read what is new and wake those it is for; all when it cannot be read, for they find out why."""
        self._is_rung = False
        if self._waiting is None:
            return
        try:
            while rows := self._cursor.read(_READ_MESSAGES, _READ_BYTES):
                for message in (message for each in rows for message in each.messages()):
                    if message.key is not None:
                        for ear in self._interest.of(message.key):
                            ear.ring(message.offset)
        except (PenstockError, OSError):
            for ear in self._interest.all():
                ear.ring(0)
            with suppress(Closed, ConflictError, OSError):
                self._cursor = self._at_end()


def _log_failure(helped: asyncio.Future[None]) -> None:
    error = None if helped.cancelled() else helped.exception()
    if error is not None:
        logger.warning("what another process left behind could not be finished: %s", error)


class Events:
    """The live events of a topic; made by `Store.events`."""

    def __init__(self, blocking: events.Events, topic: Topic, threads: Threads) -> None:
        self._blocking = blocking
        self._topic = topic
        self._threads = threads
        self._tail = Tail(blocking.open_topic, blocking._help, threads)

    @property
    def topic(self) -> str:
        """The name of the topic they are in."""
        return self._blocking.topic

    @property
    def epoch(self) -> str:
        """Differs when the topic was dropped and made anew: ids of another epoch mean nothing."""
        return self._blocking.epoch

    async def push(self, key: Key, data: Any) -> Pushed:
        """Store an event and wake who subscribed to its key; it is on disk when this returns.

        `data` is any JSON value, None included. Coroutines that push at the same time share one sync.
        """
        ((stored_key, value),) = stored_pairs([(key, data)])
        receipt = await self._topic.write(value, key=stored_key)
        return Pushed(self.epoch, receipt.offset + 1, receipt.offset + 1)

    async def push_many(self, events: Iterable[tuple[Key, Any]]) -> Pushed:
        """Store several events, all or none, with ids one after the other."""
        return await self._threads.run(self._blocking.push_many, events)

    async def subscribe(
        self, keys: str | Sequence[Key] = (), cursor: str | None = None, timeout: Duration = WAIT_S, *,
        prefixes: Sequence[Prefix] = (), rewind: int | None = None, since: str | datetime | None = None,
        limit: int = 1000,
    ) -> Answer:  # fmt: skip
        """What is new for these keys since `cursor`; if there is nothing, wait for it up to `timeout`.

        `keys` is a list of keys, or one text; `prefixes` takes all keys that begin so. Without a cursor
        the answer comes at once: empty, or with the last `rewind` events, or those `since` a time or an
        age ("10m"). An answer has at most `limit` events; the next call gets what is left.
        """
        deadline = time.monotonic() + seconds("timeout", timeout)
        question = await self._threads.run(
            self._blocking._question, keys, cursor, prefixes, rewind, since, limit
        )
        answer = await self._threads.run(question.look)
        if answer is not None:
            return answer
        with self._tail.ear(question.asked) as ear:
            # What is new was written a moment ago and lies in memory: looking takes less than a thread would.
            while (answer := question.look()) is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    return question.give_up()
                question.at(max(question.next, await ear.wait(left)))
        return answer

    def __repr__(self) -> str:
        return repr(self._blocking)
