"""The async live events: any number of subscribers wait without a thread, on one tail of the log.

The server's feeds follow their topics by the same `Tail`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

from penstock import wake
from penstock.aio.topic import Topic
from penstock.aio.twin import Threads, awaited, forwarded, mirrored
from penstock.errors import Closed, ConflictError, PenstockError
from penstock.events import events
from penstock.events.event import Answer, Pushed, stored_pairs
from penstock.events.event_query import Interest
from penstock.events.events import WAIT_S
from penstock.keys import Key, Match, Prefix
from penstock.log.cursor import Cursor
from penstock.message import Message
from penstock.parse import KIB, Duration, seconds
from penstock.topic.open_topic import OpenTopic
from penstock.topic.watch import DeadWriterHelp, TopicWatch

logger = logging.getLogger("penstock.aio")

_READ_MESSAGES = 1000
_READ_BYTES = 256 * KIB


class Tail:
    """The end of a topic's log, followed in an event loop: rings come in any thread, `look` in the loop's.

    A ring is only a hint: the holder of a tail also looks now and then. Opened, it stands at the end.
    """

    def __init__(self, open_topic: OpenTopic, look: Callable[[], None]) -> None:
        self._open_topic = open_topic
        self._look = look
        self._loop = asyncio.get_running_loop()
        self._is_rung = False
        bell = wake.Bell()
        bell.hearer = self.ring
        #: What rings: pause it while every write is known anyway.
        self.watch = TopicWatch(open_topic, bell.ring)
        self.watch.__enter__()
        self._cursor = self._at_end()

    @property
    def position(self) -> int:
        """The first offset that was not read."""
        return self._cursor.offset

    @position.setter
    def position(self, offset: int) -> None:
        self._cursor.offset = offset

    def ring(self) -> None:
        """Have a look soon: something was written, perhaps. From any thread."""
        if not self._is_rung:
            self._is_rung = True
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._look)

    def answered(self) -> None:
        """Note that a look begins: rings from now on ask for another one."""
        self._is_rung = False

    def read(self) -> list[Message]:
        """Some of what is new, in order; empty at the end. Raises as a cursor does, and stays where it is."""
        rows = self._cursor.read(_READ_MESSAGES, _READ_BYTES)
        return [message for each in rows for message in each.messages()]

    def skip_to_end(self) -> None:
        """Go on at the end of the log, wherever that is now."""
        self._cursor = self._at_end()

    def close(self) -> None:
        """Hear no more rings."""
        self.watch.__exit__()

    def _at_end(self) -> Cursor:
        log = self._open_topic.log(0)
        return log.cursor(log.bounds().end)


class Listener:
    """A coroutine that waits for something to be written under its keys."""

    def __init__(self, position: Callable[[], int]) -> None:
        self._position = position
        self._loop = asyncio.get_running_loop()
        #: Where it was rung first.
        self._rung: int | None = None
        self._waiter: asyncio.Future[None] | None = None

    def ring(self, offset: int) -> None:
        """Tell it that something for its keys lies at that offset or behind it. In the loop's thread."""
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
            timer = self._loop.call_later(timeout, lambda: self.ring(self._position()))
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        offset, self._rung = self._rung, None
        return 0 if offset is None else offset


class Listeners:
    """Those who wait for keys of one topic; while there are any, they share a tail of its log."""

    def __init__(self, open_topic: OpenTopic, help_out: DeadWriterHelp, threads: Threads) -> None:
        self._open_topic = open_topic
        self._help = help_out
        self._threads = threads
        self._interest: Interest[Listener] = Interest()
        self._tail: Tail | None = None
        #: How many wait now.
        self.waiting = 0

    @contextmanager
    def listener(self, asked: Match) -> Iterator[Listener]:
        """A listener that is rung when something comes for these keys, until the block is left."""
        if self._tail is None:
            self._tail = Tail(self._open_topic, self._look)
            self._timer = asyncio.get_running_loop().call_later(self._tail.watch.pause_s, self._tick)
        one = Listener(self._position)
        self._interest.add(one, asked)
        self.waiting += 1
        try:
            yield one
        finally:
            self.waiting -= 1
            self._interest.remove(one, asked)
            if not self._interest:
                self._end()

    # Inside.

    def _position(self) -> int:
        return 0 if self._tail is None else self._tail.position

    def _end(self) -> None:
        if self._tail is not None:
            tail, self._tail = self._tail, None
            self._timer.cancel()
            tail.close()

    def _tick(self) -> None:
        """Look, rung or not, and let readers see what a process that died left behind."""
        if self._tail is None:
            return
        self._look()
        if self._tail is not None:
            pause_s = self._tail.watch.pause_s
            self._timer = asyncio.get_running_loop().call_later(pause_s, self._tick)
        if self._help.is_due():
            with suppress(Closed):
                self._threads.start(self._help).add_done_callback(_log_failure)

    def _look(self) -> None:
        """Read what is new and wake those it is for; all when it cannot be read, for they find out why."""
        tail = self._tail
        if tail is None:
            return
        tail.answered()
        try:
            while messages := tail.read():
                for message in messages:
                    if message.key is not None:
                        for one in self._interest.of(message.key):
                            one.ring(message.offset)
        except (PenstockError, OSError):
            for one in self._interest.all():
                one.ring(0)
            with suppress(Closed, ConflictError, OSError):
                tail.skip_to_end()


def _log_failure(helped: asyncio.Future[None]) -> None:
    error = None if helped.cancelled() else helped.exception()
    if error is not None:
        logger.warning("what another process left behind could not be finished: %s", error)


class Events:
    """The live events of a topic; made by `Store.events`."""

    def __init__(self, blocking: events.Events, topic: Topic, threads: Threads) -> None:
        self.blocking = blocking
        self.threads = threads
        self._topic = topic
        self._listeners = Listeners(blocking.open_topic, blocking.help_out, threads)

    topic = forwarded[str](events.Events.topic)
    epoch = forwarded[str](events.Events.epoch)

    @mirrored(events.Events.push, besides="Coroutines that push at the same time share one sync.")
    async def push(self, key: Key, data: Any) -> Pushed:
        ((stored_key, value),) = stored_pairs([(key, data)])
        receipt = await self._topic.write(value, key=stored_key)
        return Pushed(self.epoch, receipt.offset + 1, receipt.offset + 1)

    push_many = awaited(events.Events.push_many)

    @mirrored(events.Events.subscribe)
    async def subscribe(
        self, keys: str | Sequence[Key] = (), cursor: str | None = None, timeout: Duration = WAIT_S, *,
        prefixes: Sequence[Prefix] = (), rewind: int | None = None, since: str | datetime | None = None,
        limit: int = 1000,
    ) -> Answer:  # fmt: skip
        deadline = time.monotonic() + seconds("timeout", timeout)
        question = await self.threads.run(
            self.blocking.question, keys, cursor, prefixes, rewind, since, limit
        )
        answer = await self.threads.run(question.look)
        if answer is not None:
            return answer
        with self._listeners.listener(question.asked) as listener:
            # What is new was written a moment ago and lies in memory: looking takes less than a thread would.
            while (answer := question.look()) is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    return question.give_up()
                question.at(max(question.next, await listener.wait(left)))
        return answer

    def __repr__(self) -> str:
        return repr(self.blocking)
