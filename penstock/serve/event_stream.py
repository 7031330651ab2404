"""`EventStream`: what server-sent events and WebSockets share, a subscriber that stays connected.

It writes until its connection is full, then notes where it stands; when there is room again it is read from
the log by its keys. Nothing is kept for it meanwhile.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from penstock.errors import PenstockError
from penstock.events.event import EventGap
from penstock.events.event_query import EventQuery, EventQueryStep
from penstock.keys import Match
from penstock.serve import limits
from penstock.serve.access import Grant, has_expired
from penstock.serve.catch_up import CatchUpRange
from penstock.serve.encoded_event import EncodedEvent
from penstock.serve.feed import Feed
from penstock.serve.http_connection import Connection


class EventStream:
    """A subscriber that gets events for as long as it stays connected."""

    __slots__ = ("_extras", "_next_ping", "connection", "feed", "grant", "match", "next")

    def __init__(self, connection: Connection, feed: Feed, grant: Grant) -> None:
        self.connection = connection
        self.feed = feed
        self.grant = grant
        self.match = Match()
        self.next = -1
        #: Keys that came later with a cursor of their own, each read up to where all the others stand.
        self._extras: tuple[tuple[Match, int], ...] = ()
        self._next_ping = 0

    # How it is written; the kinds of streams differ in this.

    def frame(self, pieces: Sequence[EncodedEvent], behind: int) -> bytes:
        """Events as bytes; the client stands at `behind` then."""
        raise NotImplementedError

    def hello_frame(self, offset: int) -> bytes:
        """Return the first bytes of the stream, which say where it begins."""
        raise NotImplementedError

    def ping_frame(self) -> bytes:
        """Return the bytes that keep an idle connection alive."""
        raise NotImplementedError

    def gap_frame(self, gap: EventGap, offset: int) -> bytes:
        """Return the bytes that report events which are gone."""
        raise NotImplementedError

    def say_goodbye(self, error: PenstockError | None, *, expired: bool = False) -> None:
        """Tell why it ends, and end."""
        raise NotImplementedError

    # What the feed calls.

    def deliver(self, pieces: list[EncodedEvent], position: int) -> None:
        """Send new events; everything before `position` was delivered then."""
        connection, piece, reached = self.connection, pieces[0], position
        if len(pieces) == 1 and piece.audience is None:  # most often, so it should cost little
            connection.write(piece.alone.get(type(self)) or self._alone(piece, position))
        else:
            reached = self._send(pieces, position)
        if reached < position or connection.is_full:
            self.feed.fall_behind(self, reached)

    def wanted(self) -> CatchUpRange | None:
        """Return what to read for the client; None if it is not behind, or has no room."""
        if self.next < 0 or self.connection.is_full or not self.connection.is_open:
            return None  # `drained` comes when there is room
        if self._extras:
            return CatchUpRange(*self._extras[0], self.next)
        return CatchUpRange(self.match, self.next, self.feed.position)

    def read_on(self, wanted: CatchUpRange, found: EventQueryStep | None) -> None:
        """Write what was found, and have more read until it is live again."""
        reached = wanted.stop if found is None else self.write_found(found)
        if self._extras:
            rest = self._extras[1:]
            self._extras = rest if reached >= self.next else ((wanted.asked, reached), *rest)
        else:
            self.next = reached
        self._go_on()

    def ended(self, error: PenstockError) -> None:
        """Say goodbye with the error: there will be no more events."""
        self.say_goodbye(error)

    # What the connection calls.

    def received(self, data: bytes) -> None:
        """Ignore what a client sends on a one-way stream."""

    def drained(self) -> None:
        """Continue: what was written has gone out."""
        if self.next >= 0:
            self.feed.wake(self)

    def on_time(self, now: int) -> int:
        """Send a ping if due, end if the grant has expired; return when to be called next."""
        if has_expired(self.grant):
            self.say_goodbye(None, expired=True)
            return now + limits.PING_S
        if now >= self._next_ping:
            self._next_ping = now + limits.PING_S
            if not self.connection.is_full:
                self.connection.write(self.ping_frame())
        return self._next_time(now)

    def lost(self) -> None:
        """Unsubscribe: the connection has ended."""
        self.feed.unregister(self, self.match)

    def let_go(self) -> None:
        """Say goodbye: the server ends."""
        self.say_goodbye(None)

    # Inside.

    @property
    def place(self) -> int:
        """The offset up to which everything for it was sent."""
        own = self.feed.position if self.next < 0 else self.next
        return min([own, *(offset for _, offset in self._extras)])

    def begin(self, head: bytes, asked: Match, question: EventQuery, now: int) -> None:
        """Register, replay up to the feed's position, go live."""
        self._next_ping = now + limits.PING_S
        self.connection.become(self, head + self.hello_frame(question.next), self._next_time(now))
        self.match = asked
        self.feed.register(self, asked)
        self.next = question.next
        self.take_first_step(question)

    def take_first_step(self, question: EventQuery) -> None:
        """Write what is in memory of an answer; the rest is read from the log."""
        if self.feed.is_near(question):
            found = question.search(self.feed.position)
            self.next = question.next if found is None else self.write_found(found)
        self._go_on()

    def _go_on(self) -> None:
        """Go live, or have more read, if there is room."""
        if self.connection.is_full:
            return
        if not self._extras and self.next >= self.feed.position:
            self.next = -1
        else:
            self.feed.wake(self)

    def write_found(self, found: EventQueryStep) -> int:
        """Write what was found; the offset that was reached."""
        if found.gap is not None:
            self.connection.write(self.gap_frame(found.gap, found.behind))
        return self._send(list(map(EncodedEvent, found.messages)), found.behind)

    def _send(self, pieces: list[EncodedEvent], position: int) -> int:
        """Write events while there is room; the offset up to which it has all that is for it."""
        sees = self.grant.sees
        if any(piece.audience is not None for piece in pieces):
            pieces = [piece for piece in pieces if sees(piece.audience)]
        if not pieces:
            return position
        if len(pieces) == 1:
            piece = pieces[0]
            self.connection.write(piece.alone.get(type(self)) or self._alone(piece, position))
            return position
        first = 0
        while first < len(pieces):
            stop = _cut(pieces, first)
            behind = position if stop == len(pieces) else pieces[stop].offset
            self.connection.write(self.frame(pieces[first:stop], behind))
            first = stop
            if self.connection.is_full:
                return behind
        return position

    def _alone(self, piece: EncodedEvent, position: int) -> bytes:
        """A single event as it is written; the same for everybody who gets it alone."""
        data = piece.alone[type(self)] = self.frame((piece,), position)
        return data

    def _next_time(self, now: int) -> int:
        expires = self.grant.expires
        if expires is None:
            return self._next_ping
        return min(self._next_ping, now + max(1, math.ceil(expires - time.time())))


def _cut(pieces: Sequence[EncodedEvent], first: int) -> int:
    """How many events go into one write: as many as fit, one at least."""
    size, stop = len(pieces[first].json), first + 1
    while stop < len(pieces) and size + len(pieces[stop].json) <= limits.WRITE_BYTES:
        size += len(pieces[stop].json)
        stop += 1
    return stop
