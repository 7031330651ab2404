"""Subscribers that are behind: read for them from the log by their keys, each in its turn.

The segment that is being written lies in memory and is read in the loop's thread. Older ones may lie on the
disk: threads read them, and the loop goes on meanwhile. A subscriber stays behind until the loop has what was
found; if it wants something else by then, or has no more room, that is dropped and read again later.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import Any, NamedTuple, Protocol

from penstock.errors import PenstockError, Unavailable
from penstock.events.event_query import EventQuery, EventQueryStep
from penstock.events.events import Events
from penstock.keys import Match
from penstock.serve import limits

logger = logging.getLogger("penstock.serve")

#: So many read old segments at the same time; pushes need threads too.
_FAR_MOST = 4
#: Has a call made in a thread.
StartInThread = Callable[..., asyncio.Future[Any]]


class CatchUpRange(NamedTuple):
    """What is to be read for a subscriber: these keys, from an offset up to another."""

    asked: Match
    offset: int
    stop: int


class CatchingUp(Protocol):
    """A subscriber that may be behind."""

    def wanted(self) -> CatchUpRange | None:
        """What to read for it; None when it is not behind, or has no room."""

    def read_on(self, wanted: CatchUpRange, found: EventQueryStep | None) -> None:
        """Take what was found; None is nothing up to where it was looked."""

    def ended(self, error: PenstockError) -> None:
        """End: the topic was dropped, the store closed, or the log cannot be read."""


class CatchUp:
    """Reads on for the subscribers of one feed that are behind."""

    def __init__(self, events: Events, start: StartInThread) -> None:
        self._open_topic = events.open_topic
        self._epoch = events.epoch
        self._start = start
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[CatchingUp] = deque()
        #: Those who wait for a thread, and those for whom one reads.
        self._far: deque[CatchingUp] = deque()
        self._read_for: set[CatchingUp] = set()
        self._is_scheduled = self._is_ended = False

    def add(self, subscriber: CatchingUp) -> None:
        """Read on for a subscriber that has room, in its turn."""
        self._waiting.append(subscriber)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def end(self) -> None:
        """Stop reading for all subscribers."""
        self._is_ended = True
        self._waiting.clear()
        self._far.clear()

    def is_near(self, offset: int) -> bool:
        """Whether it lies in the segment that is being written."""
        return offset >= self._open_topic.log(0).bounds().segment

    def _turn(self) -> None:
        until = monotonic() + limits.TURN_S
        while self._waiting and monotonic() < until:
            self._read(self._waiting.popleft())
        self._is_scheduled = bool(self._waiting)
        if self._is_scheduled:
            self._loop.call_soon(self._turn)

    def _read(self, subscriber: CatchingUp) -> None:
        wanted = None if subscriber in self._read_for else subscriber.wanted()
        if wanted is None:
            return
        with self._ending(subscriber):
            if self.is_near(wanted.offset):
                subscriber.read_on(wanted, self._search(wanted))
            else:
                self._far.append(subscriber)
        self._read_far()

    def _read_far(self) -> None:
        while self._far and len(self._read_for) < _FAR_MOST:
            subscriber = self._far.popleft()
            wanted = None if subscriber in self._read_for else subscriber.wanted()
            if wanted is None:
                continue
            with self._ending(subscriber):
                found = self._start(self._search, wanted)
                self._read_for.add(subscriber)
                found.add_done_callback(partial(self._was_read, subscriber, wanted))

    def _was_read(
        self, subscriber: CatchingUp, wanted: CatchUpRange, found: asyncio.Future[EventQueryStep | None]
    ) -> None:
        self._read_for.discard(subscriber)
        if self._is_ended or found.cancelled():
            return
        now = subscriber.wanted()
        with self._ending(subscriber):
            result = found.result()
            if now is not None and now[:2] == wanted[:2]:
                subscriber.read_on(wanted, result)
            elif now is not None:
                self.add(subscriber)
        self._read_far()

    def _search(self, wanted: CatchUpRange) -> EventQueryStep | None:
        asked, offset, stop = wanted
        question = EventQuery(self._open_topic, self._epoch, asked, limits.CATCH_UP_EVENTS)
        return question.at(offset).search(stop)

    @contextmanager
    def _ending(self, subscriber: CatchingUp) -> Iterator[None]:
        """Tell a subscriber that it cannot be read on; it comes back by itself."""
        try:
            yield
        except (PenstockError, OSError) as error:
            logger.error("a subscriber could not be read on: %s", error)
            told = error if isinstance(error, PenstockError) else Unavailable("the log cannot be read now")
            subscriber.ended(told)
