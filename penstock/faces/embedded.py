"""Streams in a topic of the store: one partition, `index="key"`; subject = key, sequence = offset + 1.

The topic is as any other: readers, Spark and `penstock read` see the same messages. Besides subject, headers
and body a message of a stream has a name for the body, which travels as a header (`streamrows.py`); where
there is none, the name is made of subject and sequence. Messages without a key are not of the stream.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Protocol, TypeVar

from penstock.clock import NANOSECONDS
from penstock.errors import OffsetTrimmed, PenstockError, TopicReplaced, Unavailable
from penstock.faces.engine import Deleted, Publication, Row, SubjectFacts, Ttl
from penstock.faces.publishing import Publisher, Writes
from penstock.faces.question import Help, Waiting
from penstock.faces.streammessage import StreamMessage
from penstock.faces.streamrows import deleted_of, message_of, row_of
from penstock.faces.subjects import EVERYTHING, Asked
from penstock.faces.ttl import lifetimes
from penstock.keys import Match, match
from penstock.log.log import Log
from penstock.log.view import Bounds
from penstock.message import Batch, Message
from penstock.options import MIB
from penstock.payloads.stores import BodyStore
from penstock.state.streams import Streams, StreamSettings

_READ_BYTES = 8 * MIB
#: How long, and how often, one tries to delete while another process tidies the topic.
_PATIENCE_S, _LOOK_AGAIN_S = 10.0, 0.01

T = TypeVar("T")


class StreamTopic(Writes, Protocol):
    """What the engine asks of its topic."""

    def alter(self, **changes: Any) -> None: ...

    def delete_before(self, place: Any) -> Batch[Any]: ...

    def expired(self, *, since: int | None = None) -> Batch[Any]: ...


class EmbeddedEngine:
    """A stream whose messages lie in a topic and whose positions lie in the state database."""

    def __init__(self, topic: StreamTopic, streams: Streams, elsewhere: BodyStore | None = None) -> None:
        self._topic = topic
        self._partitions = topic._partitions
        self._id = self._partitions.record.id
        self._streams = streams
        #: Where bodies lie that were published by their names only.
        self._elsewhere = elsewhere
        self._publisher = Publisher(topic)
        self._help = Help(self._partitions)

    @property
    def name(self) -> str:
        return self._partitions.name

    # Messages.

    def publish(self, message: Publication) -> int:
        return self._publisher.publish(message)

    def publish_many(self, messages: Sequence[Publication]) -> list[int | PenstockError]:
        return self._publisher.publish_many(messages)

    def get(self, sequence: int) -> Row | None:
        log = self._partitions.log(0)
        message = log.living.message(sequence - 1)
        if message is None:
            _refuse_dropped(log.bounds(), self.name)
            return None
        return None if message.key is None else row_of(message)

    def rows(self, asked: Asked, start: int, limit: int) -> list[Row]:
        return list(map(row_of, self._read(asked, start, limit)))

    def messages(self, asked: Asked, start: int, limit: int) -> list[StreamMessage]:
        return [message_of(each, self._elsewhere) for each in self._read(asked, start, limit)]

    def latest(self, asked: Asked) -> int:
        def newest(log: Log, bounds: Bounds) -> int:
            if asked == EVERYTHING and bounds.end > bounds.start:
                last = log.living.message(bounds.end - 1)
                if last is not None and last.key is not None:
                    return bounds.end
            found = log.keyed.newest(_match(asked), bounds.start, bounds.end, 1)
            return found[-1] + 1 if found else 0

        return self._looked(newest)

    def last(self) -> int:
        return self._looked(lambda log, bounds: bounds.end)

    def count(self, asked: Asked, after: int = 0) -> int:
        return self._looked(
            lambda log, bounds: log.keyed.count(_match(asked), max(after, bounds.start), bounds.end)
        )

    def subjects(self, asked: Asked) -> list[SubjectFacts]:
        found = self._looked(lambda log, bounds: log.keyed.spans(_match(asked), bounds.start, bounds.end))
        return [
            SubjectFacts(key.decode(errors="surrogateescape"), span.messages, span.first + 1, span.last + 1)
            for key, span in sorted(found.items())
        ]

    # Positions.

    def position(self, durable: str, subject: str) -> int:
        return self._streams.position(self._id, durable, subject)

    def set_position(self, durable: str, subject: str, sequence: int) -> None:
        self._streams.put(self._id, durable, subject, sequence)

    def advance(self, durable: str, subject: str, sequence: int) -> bool:
        return self._streams.advance(self._id, durable, subject, sequence)

    def positions(self, subject: str | None = None) -> list[tuple[str, str, int]]:
        return self._streams.positions(self._id, subject)

    def forget(self, durable: str, subject: str | None = None) -> int:
        return self._streams.forget(self._id, durable, subject)

    # What is too old.

    def delete(self, age_s: float) -> list[Deleted]:
        now = self._partitions.clock.now_ns()
        told_ns = self._streams.settings(self._id).swept_ns
        log = self._partitions.log(0)
        told = None if told_ns is None else log.living.floors(told_ns)
        # What is exactly as old goes too: it was written at this moment or before.
        place = log.offset_at(now - round(age_s * NANOSECONDS) + 1)
        gone = self._alone(lambda: self._topic.delete_before(place))
        return [
            deleted_of(each) for each in gone if each.key is not None and not (told and told.is_over(each))
        ]

    def sweep(self) -> list[Deleted]:
        now = self._partitions.clock.now_ns()
        settings = self._streams.settings(self._id)
        over = {each.offset: each for each in self._topic.expired(since=settings.swept_ns)}
        # Time goes on: what is removed may have been over only a moment, and is told all the same.
        over |= {each.offset: each for each in self._removed(settings.swept_ns)}
        self._streams.keep_settings(self._id, settings._replace(swept_ns=now))
        return [deleted_of(over[offset]) for offset in sorted(over) if over[offset].key is not None]

    def _removed(self, told_ns: int | None) -> list[Message[Any]]:
        """Remove what lies before the first message that is alive; what was not over when last told."""
        log = self._partitions.log(0)
        told = None if told_ns is None else log.living.floors(told_ns)
        bounds = log.bounds()  # what is published from here on is not looked at, so it stays
        try:
            alive = log.cursor(bounds.start).read(1, 1, bounds.end)
            gone = self._topic.delete_before(alive[0].first if alive else bounds.end)
        except (OffsetTrimmed, Unavailable):  # a vacuum is under way, and removes it
            return []
        return [each for each in gone if told is None or not told.is_over(each)]

    def ttl(self) -> Ttl:
        self._partitions.require_open()
        return Ttl(**self._streams.settings(self._id).ttl)

    def set_ttl(self, ttl: Ttl) -> None:
        lasting = lifetimes(ttl)
        changes: dict[str, Any] = {"key_retention": lasting}
        retention = self._partitions.options.retention_s
        if lasting and retention is not None and retention < max(lasting.values()):
            changes["retention"] = max(lasting.values())
        self._topic.alter(**changes)
        # Under other rules other messages are over: whoever cleans up is told of all that still lie there.
        self._streams.keep_settings(self._id, StreamSettings(ttl._asdict(), None))

    # Waiting.

    def watching(self, ring: Callable[[], None]) -> Waiting:
        return Waiting(self._partitions, ring)

    def help(self) -> None:
        if self._help.is_due():
            self._help()

    # Inside.

    def _read(self, asked: Asked, start: int, limit: int) -> list[Message[Any]]:
        def found(log: Log, bounds: Bounds) -> list[Message[Any]]:
            first = max(start - 1, bounds.start)
            if first >= bounds.end:
                return []
            if asked == EVERYTHING:
                return list(islice(_everything(log, first, bounds.end, limit), limit))
            offsets = log.keyed.oldest(_match(asked), first, bounds.end, limit)
            return [message for rows in log.keyed.rows(offsets) for message in rows.messages()]

        return self._looked(found)

    def _looked(self, look: Callable[[Log, Bounds], T]) -> T:
        """What a look finds within what can be read now; again when retention came between."""
        while True:
            log = self._partitions.log(0)
            bounds = log.bounds()
            _refuse_dropped(bounds, self.name)
            try:
                return look(log, bounds)
            except OffsetTrimmed:
                if log.bounds().start == bounds.start:
                    raise

    def _alone(self, act: Callable[[], T]) -> T:
        """Do what only one process may do at a time; wait for the others, but not for ever."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return act()
            except Unavailable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_LOOK_AGAIN_S)


def _everything(log: Log, first: int, stop: int, limit: int) -> Iterator[Message[Any]]:
    """Messages of all subjects, in order; those without one are not of the stream."""
    cursor = log.cursor(first)
    while rows := cursor.read(limit, _READ_BYTES, stop):
        for each in rows:
            yield from (message for message in each.messages() if message.key is not None)


def _match(asked: Asked) -> Match:
    return match((), (asked.text,)) if asked.is_prefix else match((asked.text,))


def _refuse_dropped(bounds: Bounds, name: str) -> None:
    if bounds.dropped:
        raise TopicReplaced(f"topic {name!r} was dropped", hint="open it anew by its name")
