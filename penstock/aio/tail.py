"""Who waits for live events on one loop: one look at the log for all, and only those are woken it concerns.

Who waits is noted first, then looks, then waits: what comes between is read by the tail afterwards, and wakes
it. So nothing concerns it before the offset of what woke it, and it need not look at what lies there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from penstock import wake
from penstock.aio.threads import Threads
from penstock.errors import Closed, ConflictError, PenstockError
from penstock.faces.interest import Interest
from penstock.faces.question import Help, Waiting
from penstock.keys import Match
from penstock.log.cursor import Cursor
from penstock.options import KIB
from penstock.topic.partitions import Partitions

logger = logging.getLogger("penstock.aio")

_READ_MESSAGES = 1000
_READ_BYTES = 256 * KIB


class Ear:
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

    def __init__(self, partitions: Partitions, help_out: Help, threads: Threads) -> None:
        self._partitions = partitions
        self._help = help_out
        self._threads = threads
        self._interest: Interest[Ear] = Interest()
        self._is_rung = False
        self._waiting: Waiting | None = None
        #: How many wait now.
        self.waiting = 0

    @property
    def position(self) -> int:
        """The first offset that it has not read."""
        return self._cursor.offset

    @contextmanager
    def ear(self, asked: Match) -> Iterator[Ear]:
        """Have an ear rung when something comes for these keys, until the block is left."""
        ear = Ear(self)
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
        waiting = Waiting(self._partitions, bell.ring)
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
