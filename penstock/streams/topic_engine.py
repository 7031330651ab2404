"""The engine of a stream in a topic of the store: subjects are keys, a sequence is an offset plus one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from itertools import islice
from typing import Any, BinaryIO, Protocol, TypeVar

from penstock.clock import NANOSECONDS
from penstock.errors import (
    OffsetTrimmed,
    PenstockError,
    TopicReplaced,
    Unavailable,
)
from penstock.keys import Match, match
from penstock.log.log import Log
from penstock.log.segments import Bounds
from penstock.message import Batch, Message
from penstock.parse import MIB
from penstock.payloads.store import BodyStore
from penstock.state.streams import Streams, StreamSettings
from penstock.streams.engine import Deleted, Publication, Row, StreamMessage, SubjectFacts, Ttl
from penstock.streams.message_rows import (
    deleted_of,
    message_of,
    row_of,
    rows_of,
)
from penstock.streams.named_bodies import NamedBodies
from penstock.streams.publisher import Publisher, Writes
from penstock.streams.subjects import EVERYTHING, SubjectQuery
from penstock.streams.ttl import lifetimes
from penstock.topic.left_messages import LeftMessage, LeftMessages
from penstock.topic.watch import DeadWriterHelp, TopicWatch

_READ_BYTES = 8 * MIB
#: How long, and how often, one tries to delete while another process tidies the topic.
_PATIENCE_S, _LOOK_AGAIN_S = 10.0, 0.01

T = TypeVar("T")


class StreamTopic(Writes, Protocol):
    """What the engine asks of its topic."""

    def alter(self, **changes: Any) -> None: ...

    def delete_before(self, place: Any) -> Batch[Any]: ...

    def expired(self, *, since: int | None = None) -> Batch[Any]: ...


class TopicStreamEngine:
    """A stream whose messages lie in a topic and whose positions lie in the state database."""

    def __init__(self, topic: StreamTopic, streams: Streams, elsewhere: BodyStore | None = None) -> None:
        self._topic = topic
        self.open_topic = topic.open_topic
        self._id = self.open_topic.record.id
        self._streams = streams
        #: Where bodies lie that were published by their names only.
        self._elsewhere = elsewhere
        self._named = NamedBodies(self, elsewhere)
        self._publisher = Publisher(topic)
        self._help = DeadWriterHelp(self.open_topic)
        self._left = LeftMessages(self.open_topic.log(0))
        if not self.open_topic.read_only:
            self._left.begin()

    @property
    def name(self) -> str:
        """The stream's name."""
        return self.open_topic.name

    # Messages.

    def publish(self, message: Publication) -> int:
        """Store the body, then the message, and return its sequence."""
        if self._elsewhere is not None:
            message = self._named.placed(message)
        return self._publisher.publish(message)

    def publish_many(self, messages: Sequence[Publication]) -> list[int | PenstockError]:
        """Store several messages; return of each its sequence, or why it was not stored."""
        results: list[int | PenstockError | None] = [None] * len(messages)
        ready: list[tuple[int, Publication]] = []
        for place, message in enumerate(messages):
            try:
                ready.append((place, self._named.placed(message)))
            except PenstockError as error:
                results[place] = error
        stored = self._publisher.publish_many([message for _, message in ready])
        for (place, _), result in zip(ready, stored, strict=True):
            results[place] = result
        return [result for result in results if result is not None]

    def open_object(self, name: str) -> BinaryIO:
        """Open a body by its name; raise `BodyMissing` if there is none."""
        return self._named.open(name)

    def get(self, sequence: int) -> Row | None:
        """Return the message of that sequence; None if it is gone or was never there."""
        log, offset = self.open_topic.log(0), sequence - 1
        try:
            found = log.keys.facts((offset,))
        except OffsetTrimmed:
            return None
        if not found:
            return None
        floors = log.key_retention.floors()
        if offset < floors.highest and offset < floors.of(found[0][1]):
            return None
        rows = rows_of(found)
        return rows[0] if rows else None

    def rows(self, asked: SubjectQuery, start: int, limit: int) -> list[Row]:
        """Return messages of the subjects asked for, from `start` on, at most `limit`."""
        if asked == EVERYTHING:
            return list(map(row_of, self._read(asked, start, limit)))

        def found(log: Log, bounds: Bounds) -> list[Row]:
            first = max(start - 1, bounds.start)
            if first >= bounds.end:
                return []
            return rows_of(log.keys.facts(log.keys.oldest(_match(asked), first, bounds.end, limit)))

        return self._looked(found)

    def messages(self, asked: SubjectQuery, start: int, limit: int) -> list[StreamMessage]:
        """Return the messages that `rows` finds, with bodies that load when looked at."""
        return [message_of(each, self._elsewhere) for each in self._read(asked, start, limit)]

    def latest(self, asked: SubjectQuery) -> int:
        """Return the newest sequence of the subjects asked for; 0 if there is none."""

        def newest(log: Log, bounds: Bounds) -> int:
            if asked == EVERYTHING and bounds.end > bounds.start:
                last = log.key_retention.message(bounds.end - 1)
                if last is not None and last.key is not None:
                    return bounds.end
            found = log.keys.newest(_match(asked), bounds.start, bounds.end, 1)
            return found[-1] + 1 if found else 0

        return self._looked(newest)

    def last(self) -> int:
        """Return the last sequence ever given; 0 before the first."""
        return self._looked(lambda log, bounds: bounds.end)

    def count(self, asked: SubjectQuery, after: int = 0) -> int:
        """Count the messages of the subjects asked for with a sequence over `after`."""
        return self._looked(
            lambda log, bounds: log.keys.count(_match(asked), max(after, bounds.start), bounds.end)
        )

    def subjects(self, asked: SubjectQuery) -> list[SubjectFacts]:
        """Return the subjects asked for that have messages, by name."""
        found = self._looked(lambda log, bounds: log.keys.spans(_match(asked), bounds.start, bounds.end))
        return [
            SubjectFacts(key.decode(errors="surrogateescape"), span.messages, span.first + 1, span.last + 1)
            for key, span in sorted(found.items())
        ]

    # Positions.

    def position(self, durable: str, subject: str) -> int:
        """Return the last sequence that a durable consumer has read; 0 if none."""
        return self._streams.position(self._id, durable, subject)

    def set_position(self, durable: str, subject: str, sequence: int) -> None:
        """Move a durable consumer anywhere."""
        self._streams.put(self._id, durable, subject, sequence)

    def advance(self, durable: str, subject: str, sequence: int) -> bool:
        """Move a durable consumer forward; return False if it is there or further."""
        return self._streams.advance(self._id, durable, subject, sequence)

    def positions(self, subject: str | None = None) -> list[tuple[str, str, int]]:
        """Return (durable, subject, last sequence) of one subject's consumers, or of all."""
        return self._streams.positions(self._id, subject)

    def forget(self, durable: str, subject: str | None = None) -> int:
        """Delete a durable consumer's position, or all it has; return how many."""
        return self._streams.forget(self._id, durable, subject)

    # What is too old.

    def delete(self, age_s: float) -> list[Deleted]:
        """Delete messages at least so old and return them, ascending."""
        now = self.open_topic.clock.now_ns()
        # What is exactly as old goes too: it was written at this moment or before.
        place = self.open_topic.log(0).offset_at(now - round(age_s * NANOSECONDS) + 1)
        self._alone(lambda: self._topic.delete_before(place))
        return self._taken()

    def sweep(self) -> list[Deleted]:
        """Delete messages that have expired and return them."""
        log = self.open_topic.log(0)
        bounds = log.bounds()  # what is published from here on is not looked at, so it stays
        try:
            alive = log.cursor(bounds.start).read(1, 1, bounds.end)
            self._topic.delete_before(alive[0].first if alive else bounds.end)
        except (OffsetTrimmed, Unavailable):
            pass  # a vacuum is under way, and removes it
        return self._taken()

    def _taken(self) -> list[Deleted]:
        """Every message that left and was not reported yet, whoever removed it."""
        settings = self._streams.settings(self._id)

        def take() -> list[LeftMessage]:
            with self.open_topic.log(0).folder.housekeeping() as alone:
                if not alone:
                    raise Unavailable(f"another process is tidying stream {self.name!r}", hint="try again")
                return self._left.take(settings.swept_ns)

        return [deleted_of(each) for each in self._alone(take) if each.key is not None]

    def ttl(self) -> Ttl:
        """Return how long messages live."""
        self.open_topic.require_open()
        return Ttl(**self._streams.settings(self._id).ttl)

    def set_ttl(self, ttl: Ttl) -> None:
        """Change how long messages live."""
        lasting = lifetimes(ttl)
        changes: dict[str, Any] = {"key_retention": lasting}
        retention = self.open_topic.options.retention_s
        if lasting and retention is not None and retention < max(lasting.values()):
            changes["retention"] = timedelta(seconds=max(lasting.values()))
        self._topic.alter(**changes)
        self._streams.keep_settings(self._id, StreamSettings(ttl._asdict(), None))

    # Waiting.

    def watching(self, ring: Callable[[], None]) -> TopicWatch:
        """Have `ring` called, from any thread, soon after something was published."""
        return TopicWatch(self.open_topic, ring)

    def help(self) -> None:
        """Finish what a dead process left, about once a second."""
        if self._help.is_due():
            self._help()

    # Inside.

    def _read(self, asked: SubjectQuery, start: int, limit: int) -> list[Message[Any]]:
        def found(log: Log, bounds: Bounds) -> list[Message[Any]]:
            first = max(start - 1, bounds.start)
            if first >= bounds.end:
                return []
            if asked == EVERYTHING:
                return list(islice(_everything(log, first, bounds.end, limit), limit))
            offsets = log.keys.oldest(_match(asked), first, bounds.end, limit)
            return [message for rows in log.keys.rows(offsets) for message in rows.messages()]

        return self._looked(found)

    def _looked(self, look: Callable[[Log, Bounds], T]) -> T:
        """What a look finds within what can be read now; again when retention came between."""
        while True:
            log = self.open_topic.log(0)
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


def _match(asked: SubjectQuery) -> Match:
    return match((), (asked.text,)) if asked.is_prefix else match((asked.text,))


def _refuse_dropped(bounds: Bounds, name: str) -> None:
    if bounds.dropped:
        raise TopicReplaced(f"topic {name!r} was dropped", hint="open it anew by its name")
