"""`Feed`: one tail of a topic's log for all its subscribers, and which of them wait for which key.

A feed reads its topic by position; a wake-up is only a hint. An event is encoded once and goes to those who
wait for its key. A subscriber is either

    live      it has everything up to the feed's position, and hears what the feed reads next
    behind    it stands at an offset of its own; when it has room it is read from the log by its keys, up to
              the feed's position, and is live again

Nobody has a queue. Everything happens in the loop's thread, so between a look at the log and the registration
of a subscriber nothing can slip through.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from time import monotonic
from typing import NamedTuple, Protocol

from penstock.aio.events import Tail
from penstock.errors import Closed, ConflictError, Corrupt, OffsetTrimmed, PenstockError
from penstock.events.cursor import cursor_text, newest_before
from penstock.events.event_query import EventQuery, Interest
from penstock.events.events import Events
from penstock.keys import Match
from penstock.message import Message
from penstock.serve import limits
from penstock.serve.catch_up import CatchingUp, CatchUp, StartInThread
from penstock.serve.encoded_event import EncodedEvent
from penstock.topic.watch import DeadWriterHelp

logger = logging.getLogger("penstock.serve")

#: When we store so many groups, each so soon after the last, each look finds what others wrote too.
_BUSY_STORES, _BUSY_S = 4, 0.01


class Start(NamedTuple):
    """Where a subscriber wants to begin; from now, if nothing is said."""

    cursor: str | None = None
    rewind: int | None = None
    since: str | datetime | None = None


class Subscriber(CatchingUp, Protocol):
    """One that waits for keys. A feed looks at these fields and sets them."""

    match: Match
    #: Where it stands while it is behind; -1 while it is live.
    next: int

    def deliver(self, pieces: list[EncodedEvent], position: int) -> None:
        """Take new events; everything before `position` is delivered then."""


class Feed:
    """The tail of one topic, and its subscribers."""

    def __init__(self, events: Events, on_end: Callable[[Feed], None], start: StartInThread) -> None:
        self.events = events
        self.topic = events.topic
        self.epoch = events.epoch
        self._open_topic = events.open_topic
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._interest: Interest[Subscriber] = Interest()
        self._behind = CatchUp(events, start)
        self.is_ended = False
        self._tail = Tail(self._open_topic, self.look)
        self._help = DeadWriterHelp(self._open_topic)
        self._stored_at = 0.0
        self._stored_often = 0
        self._hears = True
        #: A position, and when the last message before it was written.
        self._newest = (-1, 0)

    # Where it stands.

    @property
    def position(self) -> int:
        """The first offset that was not read: everything before it was delivered to all who are live."""
        return self._tail.position

    @property
    def cursor(self) -> str:
        """The feed's position as clients know it."""
        return self.cursor_at(self.position)

    def cursor_at(self, offset: int) -> str:
        """An offset as clients know it."""
        seen = max(offset, self.position)
        if self._newest[0] != seen:
            self._newest = seen, newest_before(self._open_topic.log(0), seen)
        return cursor_text(self.epoch, offset + 1, self._newest[1])

    @property
    def least(self) -> int:
        """The oldest id that is still stored."""
        return self._open_topic.log(0).bounds().start + 1

    # Who subscribes.

    def begin(self, asked: Match, start: Start, limit: int = limits.CATCH_UP_EVENTS) -> EventQuery:
        """Where a subscriber begins; the feed stands there or behind it. Raises for a cursor that is none."""
        question = self.question(asked, start, limit)
        self.reach(question.next)
        return question

    def question(self, asked: Match, start: Start, limit: int = limits.CATCH_UP_EVENTS) -> EventQuery:
        """Return where a subscriber begins, without moving the feed: safe in any thread; `reach` follows."""
        return EventQuery(self._open_topic, self.epoch, asked, limit).begin(*start)

    def reach(self, offset: int) -> None:
        """Read at least up to an offset."""
        while self.position < offset and not self.is_ended and self._read():
            pass

    def is_near(self, question: EventQuery) -> bool:
        """Whether a question is answered from memory: it asks for the segment that is being written."""
        return question.has_gap or self._behind.is_near(question.next)

    def register(self, subscriber: Subscriber, asked: Match) -> None:
        """Have a subscriber hear of the keys it wants."""
        self._interest.add(subscriber, asked)

    def unregister(self, subscriber: Subscriber, asked: Match) -> None:
        """Forget a subscriber."""
        self._interest.remove(subscriber, asked)

    def listeners(self, key: bytes) -> Collection[Subscriber]:
        """Who hears an event with that key; nobody twice."""
        return self._interest.of(key)

    def fall_behind(self, subscriber: Subscriber, offset: int) -> None:
        """Note where a subscriber without room stands; `wake` it when it has some."""
        subscriber.next = offset

    def wake(self, subscriber: Subscriber) -> None:
        """Read on for a subscriber that is behind and has room, in its turn."""
        self._behind.add(subscriber)

    # Reading.

    def stored(self) -> None:
        """Deliver what we stored ourselves.

        While we do so all the time, hints of the file are not heard: each costs a change of threads, and
        tells what we know.
        """
        self.look()
        now, before = self._loop.time(), self._stored_at
        self._stored_at = now
        self._stored_often = self._stored_often + 1 if now - before < _BUSY_S else 0
        if self._hears and self._stored_often >= _BUSY_STORES and not self.is_ended:
            self._hears = False
            self._tail.watch.pause()
            self._loop.call_later(_BUSY_S, self._hear_again)

    def _hear_again(self) -> None:
        if self.is_ended:
            return
        if self._loop.time() - self._stored_at < _BUSY_S:
            self._loop.call_later(_BUSY_S, self._hear_again)
            return
        self._hears = True
        self._tail.watch.go_on()
        self.look()

    def look(self) -> None:
        """Read what is new and deliver it."""
        self._tail.answered()
        until = monotonic() + limits.TURN_S
        while not self.is_ended and self._read():
            if monotonic() > until:
                self._tail.ring()  # others have their turn
                return

    def tick(self) -> Callable[[], None] | None:
        """Once a second: look, rung or not; returns what has to be done in a thread, if anything."""
        self.look()
        return self._help if not self.is_ended and self._help.is_due() else None

    def close(self, error: PenstockError | None = None) -> None:
        """Tell all subscribers that there is no more."""
        if self.is_ended:
            return
        self.is_ended = True
        self._behind.end()
        self._tail.close()
        self._on_end(self)
        for subscriber in self._interest.all():
            subscriber.ended(error or Closed("the server ends", hint="connect again"))
        self._interest.clear()

    def _read(self) -> bool:
        """Read some and deliver it; False at the end."""
        try:
            messages = self._tail.read()
        except OffsetTrimmed as trimmed:
            return self._skip_to(trimmed.first)
        except Corrupt as damage:
            if damage.stop is None:
                logger.error("%s", damage)
                return False
            return self._skip_to(damage.stop)
        except (Closed, ConflictError) as error:
            self.close(error)
            return False
        if not messages:
            return False
        # All at once: who subscribes anew because of one event must not hear the others twice.
        self._deliver(messages)
        return True

    def _deliver(self, messages: Sequence[Message]) -> None:
        touched: dict[Subscriber, list[EncodedEvent]] = {}
        for message in messages:
            if message.key is None:
                continue
            heard = self._interest.of(message.key)
            if not heard:
                continue
            alone = [EncodedEvent(message)]  # shared by all who hear nothing else
            for subscriber in heard:
                if subscriber.next < 0:
                    pieces = touched.setdefault(subscriber, alone)
                    if pieces is alone:
                        continue
                    if len(pieces) == 1:
                        touched[subscriber] = pieces + alone
                    else:
                        pieces += alone
        position = self.position
        self._newest = position, messages[-1].written_at
        for subscriber, pieces in touched.items():
            subscriber.deliver(pieces, position)

    def _skip_to(self, offset: int) -> bool:
        """Skip what cannot be read; each subscriber learns of the gap when it reads on."""
        missed, self._tail.position = self.position, offset
        for subscriber in self._interest.all():
            if subscriber.next < 0:
                self.fall_behind(subscriber, missed)
                self.wake(subscriber)
        return True


class Feeds:
    """The feeds of one process."""

    def __init__(self, find: Callable[[str], Events], start: StartInThread) -> None:
        self._find = find
        self._start_in_thread = start
        self._feeds: dict[str, Feed] = {}

    def feed(self, topic: str) -> Feed:
        """The feed of a topic; raises when there is none, or it cannot hold events."""
        feed = self._feeds.get(topic)
        if feed is None:
            feed = self._feeds[topic] = Feed(self._find(topic), self._forget, self._start_in_thread)
        return feed

    def stored(self, topic: str) -> None:
        """Deliver what we stored in a topic ourselves."""
        feed = self._feeds.get(topic)
        if feed is not None:
            feed.stored()

    def feeds(self) -> list[Feed]:
        """The feeds that run now."""
        return list(self._feeds.values())

    def close(self) -> None:
        """End all feeds."""
        for feed in self.feeds():
            feed.close()

    def _forget(self, feed: Feed) -> None:
        if self._feeds.get(feed.topic) is feed:
            del self._feeds[feed.topic]
