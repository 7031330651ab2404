"""Long poll: answered without waiting, or when something comes, or with nothing after a while."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from penstock.errors import PenstockError
from penstock.events.event import EventGap
from penstock.events.event_query import EventQuery, EventQueryStep
from penstock.keys import Match
from penstock.serve import limits
from penstock.serve.access import Grant
from penstock.serve.catch_up import CatchUpRange
from penstock.serve.encoded_event import EncodedEvent, answer_json
from penstock.serve.feed import Feed
from penstock.serve.http_connection import Connection


class LongPoll:
    """A subscriber that gets one answer."""

    __slots__ = ("_connection", "_feed", "_grant", "_limit", "_timeout", "_timer", "match", "next")

    def __init__(self, connection: Connection, feed: Feed, grant: Grant, asked: Match, limit: int) -> None:
        self._connection = connection
        self._feed = feed
        self._grant = grant
        self._limit = limit
        self._timer: asyncio.TimerHandle | None = None
        self._timeout = 0.0
        self.match = asked
        self.next = -1

    def ask(self, question: EventQuery, timeout: float) -> None:
        """Answer now, or wait; so long once everything that is there was read."""
        self._timeout = timeout
        self.next = question.next
        self._connection.await_answer(self)
        self._feed.register(self, self.match)
        if not self._feed.is_near(question):
            self._feed.wake(self)
            return
        found = question.search(self._feed.position)
        self._take(found, question.next)

    # What the feed calls.

    def deliver(self, pieces: list[EncodedEvent], position: int) -> None:
        """Answer with the events the client may see, if there are any, and end."""
        seen = self._seen(pieces)
        if seen:
            self._end()
            self._answer(seen, position)

    def wanted(self) -> CatchUpRange | None:
        """Return what to read for the client; None if it is not behind."""
        return None if self.next < 0 else CatchUpRange(self.match, self.next, self._feed.position)

    def read_on(self, wanted: CatchUpRange, found: EventQueryStep | None) -> None:
        """Take what was read: answer, or wait for live events."""
        self._take(found, wanted.stop)

    def ended(self, error: PenstockError) -> None:
        """Answer with the error: there will be no more events."""
        self._end()
        self._connection.refuse(error)

    # What the connection calls.

    def received(self, data: bytes) -> None:
        """Do nothing: the connection itself takes requests that follow."""

    def drained(self) -> None:
        """Do nothing: the answer has gone out."""

    def on_time(self, now: int) -> int:
        """Return when to be called next: the wait has a timer of its own."""
        return now + limits.PING_S

    def lost(self) -> None:
        """Unsubscribe: the connection has ended."""
        self._end()

    def let_go(self) -> None:
        """Answer without events: the server ends."""
        self._give_up()

    # Inside.

    def _take(self, found: EventQueryStep | None, stop: int) -> None:
        """Answer with what was found up to `stop`, read on, or wait."""
        if found is not None:
            seen = self._seen(map(EncodedEvent, found.messages))
            if seen or found.gap is not None or self._timeout <= 0:
                self._end()
                self._answer(seen, found.behind, found.gap)
                return
        self.next = stop if found is None else found.behind
        if self.next < self._feed.position:
            self._feed.wake(self)
        elif self._timeout <= 0:
            self._give_up()
        else:
            self.next = -1
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(self._timeout, self._give_up)

    def _seen(self, pieces: Iterable[EncodedEvent]) -> list[EncodedEvent]:
        return [piece for piece in pieces if self._grant.sees(piece.audience)]

    def _give_up(self) -> None:
        """The empty answer; its cursor has moved on all the same (B002-05)."""
        reached = self._feed.position if self.next < 0 else self.next
        self._end()
        self._answer([], reached)

    def _end(self) -> None:
        """Unsubscribe and stop the timer."""
        self._feed.unregister(self, self.match)
        self.next = -1
        if self._timer is not None:
            self._timer.cancel()

    def _answer(self, pieces: Sequence[EncodedEvent], behind: int, gap: EventGap | None = None) -> None:
        """Answer with as many events as an answer may hold; the next one goes on behind them."""
        size = count = 0
        for piece in pieces[: self._limit]:
            size += len(piece.json)
            if count and size > limits.ANSWER_BYTES:
                break
            count += 1
        if count < len(pieces):
            behind = pieces[count].offset
        told = [piece.json for piece in pieces[:count]]
        feed = self._feed
        self._connection.reply(200, answer_json(told, feed.cursor_at(behind), feed.least, gap))
