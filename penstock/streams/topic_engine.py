"""Opening a subject stream: in a topic, which is made at first use, or in another engine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from penstock.clock import NANOSECONDS
from penstock.errors import (
    InvalidOption,
    OffsetTrimmed,
    PenstockError,
    TopicReplaced,
    Unavailable,
    UnknownTopic,
)
from penstock.headers import checked_headers
from penstock.keys import Match, checked_key, match
from penstock.log.frame_encode import FRAME_BYTES, MessageColumns
from penstock.log.log import Log
from penstock.log.segments import Bounds
from penstock.message import Batch, Headers, Message, Receipt
from penstock.options import FILES, payloads
from penstock.parse import MIB
from penstock.payloads.open import open_bodies
from penstock.payloads.store import BodyStore
from penstock.state.streams import Streams, StreamSettings
from penstock.store.topic import Topic
from penstock.streams.engine import Deleted, Publication, Row, StreamEngine, StreamMessage, SubjectFacts, Ttl
from penstock.streams.message_rows import body_of, deleted_of, message_of, read_body, row_of, stored_headers
from penstock.streams.stream import Stream
from penstock.streams.subjects import EVERYTHING, SubjectQuery
from penstock.streams.ttl import lifetimes
from penstock.topic.open_topic import OpenTopic
from penstock.topic.value_codec import checked_value
from penstock.topic.watch import DeadWriterHelp, TopicWatch
from penstock.topic.write_batch import WriteBatch

#: `publish_many` stores so many messages, or bytes, as one frame, which is there or not.
_TOGETHER_MESSAGES, _TOGETHER_BYTES = 1000, FRAME_BYTES // 4


class Writes(Protocol):
    """What is asked of the topic."""

    @property
    def open_topic(self) -> OpenTopic: ...

    def write(self, value: Any, *, key: Any = None, headers: Any = None) -> Receipt: ...


class _Ready(NamedTuple):
    """A message as it is stored; `place` says which of the call it is."""

    place: int
    value: bytes
    key: bytes
    headers: Headers | None

    @property
    def size(self) -> int:
        return len(self.value) + len(self.key) + sum(len(n) + len(v) for n, v in (self.headers or {}).items())


class Publisher:
    """The way into one stream's topic."""

    def __init__(self, topic: Writes) -> None:
        self._topic = topic
        self.open_topic = topic.open_topic

    def publish(self, message: Publication) -> int:
        """Store a message; its sequence."""
        if not self._is_plain(message):
            return self._written(message)
        _, value, key, headers = self._ready(0, message)
        columns = MessageColumns((value,), (key,), None if headers is None else (headers,))
        return self.open_topic.write(WriteBatch(columns))[0].first + 1

    def publish_many(self, messages: Sequence[Publication]) -> list[int | PenstockError]:
        """Store messages side by side, each on its own: its sequence, or why it was not stored."""
        results: dict[int, int | PenstockError] = {}
        ready: list[_Ready] = []
        for place, message in enumerate(messages):
            try:
                if self._is_plain(message):
                    ready.append(self._ready(place, message))
                    continue
                # Those before it are stored before it: sequences have the order of the call.
                results.update(self._stored(ready))
                ready = []
                results[place] = self._written(message)
            except PenstockError as error:
                results[place] = error
        results.update(self._stored(ready))
        return [results[place] for place in range(len(messages))]

    def _is_plain(self, message: Publication) -> bool:
        """Whether it lies in the log itself, and nothing is to be chosen or refused."""
        partitions, data = self.open_topic, message.data
        options = partitions.options
        if options.codecs or partitions.read_only:
            return False
        if isinstance(data, (bytes, bytearray, memoryview, str)):
            return len(data) * (4 if isinstance(data, str) else 1) <= options.inline_bytes
        return data is None

    def _ready(self, place: int, message: Publication) -> _Ready:
        value = checked_value(body_of(message.data), self.open_topic.options.inline_bytes) or b""
        headers = checked_headers(stored_headers(message))
        return _Ready(place, value, checked_key(message.subject) or b"", headers)

    def _stored(self, ready: Sequence[_Ready]) -> Iterator[tuple[int, int | PenstockError]]:
        """What became of each of them."""
        for together in _frames(ready):
            headers = [each.headers for each in together]
            columns = MessageColumns(
                [each.value for each in together], [each.key for each in together],
                headers if any(headers) else None,
            )  # fmt: skip
            try:
                first = self.open_topic.write(WriteBatch(columns))[0].first + 1
            except PenstockError as error:
                yield from ((each.place, error) for each in together)
            else:
                yield from ((each.place, first + number) for number, each in enumerate(together))

    def _written(self, message: Publication) -> int:
        value = body_of(message.data)
        if isinstance(value, Path) and not value.is_file():
            raise InvalidOption(f"there is no file {value}")
        if not isinstance(value, (bytes, str)) and not self.open_topic.bodies.takes_bodies:
            value = read_body(value, self.open_topic.options.max_message_bytes)
        return self._topic.write(value, key=message.subject, headers=stored_headers(message)).offset + 1


def _frames(ready: Sequence[_Ready]) -> Iterator[list[_Ready]]:
    """Neighbours that are stored as one frame."""
    together: list[_Ready] = []
    size = 0
    for each in ready:
        if together and (len(together) == _TOGETHER_MESSAGES or size + each.size > _TOGETHER_BYTES):
            yield together
            together, size = [], 0
        together.append(each)
        size += each.size
    if together:
        yield together


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
        self._publisher = Publisher(topic)
        self._help = DeadWriterHelp(self.open_topic)

    @property
    def name(self) -> str:
        return self.open_topic.name

    # Messages.

    def publish(self, message: Publication) -> int:
        return self._publisher.publish(message)

    def publish_many(self, messages: Sequence[Publication]) -> list[int | PenstockError]:
        return self._publisher.publish_many(messages)

    def get(self, sequence: int) -> Row | None:
        log = self.open_topic.log(0)
        message = log.key_retention.message(sequence - 1)
        if message is None:
            _refuse_dropped(log.bounds(), self.name)
            return None
        return None if message.key is None else row_of(message)

    def rows(self, asked: SubjectQuery, start: int, limit: int) -> list[Row]:
        return list(map(row_of, self._read(asked, start, limit)))

    def messages(self, asked: SubjectQuery, start: int, limit: int) -> list[StreamMessage]:
        return [message_of(each, self._elsewhere) for each in self._read(asked, start, limit)]

    def latest(self, asked: SubjectQuery) -> int:
        def newest(log: Log, bounds: Bounds) -> int:
            if asked == EVERYTHING and bounds.end > bounds.start:
                last = log.key_retention.message(bounds.end - 1)
                if last is not None and last.key is not None:
                    return bounds.end
            found = log.keys.newest(_match(asked), bounds.start, bounds.end, 1)
            return found[-1] + 1 if found else 0

        return self._looked(newest)

    def last(self) -> int:
        return self._looked(lambda log, bounds: bounds.end)

    def count(self, asked: SubjectQuery, after: int = 0) -> int:
        return self._looked(
            lambda log, bounds: log.keys.count(_match(asked), max(after, bounds.start), bounds.end)
        )

    def subjects(self, asked: SubjectQuery) -> list[SubjectFacts]:
        found = self._looked(lambda log, bounds: log.keys.spans(_match(asked), bounds.start, bounds.end))
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
        now = self.open_topic.clock.now_ns()
        told_ns = self._streams.settings(self._id).swept_ns
        log = self.open_topic.log(0)
        told = None if told_ns is None else log.key_retention.floors(told_ns)
        # What is exactly as old goes too: it was written at this moment or before.
        place = log.offset_at(now - round(age_s * NANOSECONDS) + 1)
        gone = self._alone(lambda: self._topic.delete_before(place))
        return [
            deleted_of(each) for each in gone if each.key is not None and not (told and told.is_over(each))
        ]

    def sweep(self) -> list[Deleted]:
        now = self.open_topic.clock.now_ns()
        settings = self._streams.settings(self._id)
        over = {each.offset: each for each in self._topic.expired(since=settings.swept_ns)}
        # Time goes on: what is removed may have been over only a moment, and is told all the same.
        over |= {each.offset: each for each in self._removed(settings.swept_ns)}
        self._streams.keep_settings(self._id, settings._replace(swept_ns=now))
        return [deleted_of(over[offset]) for offset in sorted(over) if over[offset].key is not None]

    def _removed(self, told_ns: int | None) -> list[Message[Any]]:
        """Remove what lies before the first message that is alive; what was not over when last told."""
        log = self.open_topic.log(0)
        told = None if told_ns is None else log.key_retention.floors(told_ns)
        bounds = log.bounds()  # what is published from here on is not looked at, so it stays
        try:
            alive = log.cursor(bounds.start).read(1, 1, bounds.end)
            gone = self._topic.delete_before(alive[0].first if alive else bounds.end)
        except (OffsetTrimmed, Unavailable):  # a vacuum is under way, and removes it
            return []
        return [each for each in gone if told is None or not told.is_over(each)]

    def ttl(self) -> Ttl:
        self.open_topic.require_open()
        return Ttl(**self._streams.settings(self._id).ttl)

    def set_ttl(self, ttl: Ttl) -> None:
        lasting = lifetimes(ttl)
        changes: dict[str, Any] = {"key_retention": lasting}
        retention = self.open_topic.options.retention_s
        if lasting and retention is not None and retention < max(lasting.values()):
            changes["retention"] = max(lasting.values())
        self._topic.alter(**changes)
        # Under other rules other messages are over: whoever cleans up is told of all that still lie there.
        self._streams.keep_settings(self._id, StreamSettings(ttl._asdict(), None))

    # Waiting.

    def watching(self, ring: Callable[[], None]) -> TopicWatch:
        return TopicWatch(self.open_topic, ring)

    def help(self) -> None:
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


#: What a stream is kept in: a total order, found by key, for a week; large bodies beside the log.
OPTIONS = {"index": "key", "retention": "7d", "payloads": "files"}


class StreamEngineOpener(Protocol):
    """Where streams can be kept besides the store: `penstock.Tarantool`."""

    def open(self, name: str, bodies: BodyStore) -> StreamEngine:
        """The engine of one stream, whose bodies are in `bodies`."""


def open_stream(
    name: str, options: dict[str, Any], find: Callable[[str], Topic], create: Callable[..., Topic] | None,
    streams: Streams, bodies: str | os.PathLike[str] | None,
) -> Stream:  # fmt: skip
    """The stream in a topic; `create` makes it when there is none, and compares options that are given.

    Without `create`, in a store that may only be read, there must be one.
    """
    try:
        topic = find(name)
    except UnknownTopic:
        if create is None:
            raise
        topic = create(name, exists_ok=True, **{**OPTIONS, **options})
    else:
        if options and create is not None:
            topic = create(name, exists_ok=True, **options)
    if topic.options.partitions != 1 or topic.options.index != "key":
        raise InvalidOption(
            f"topic {name!r} cannot hold a stream: it needs one partition and an index of its keys",
            hint='alter(index="key") gives it one; partitions cannot be taken away',
        )
    return Stream(TopicStreamEngine(topic, streams, None if bodies is None else open_bodies(bodies)))


def open_elsewhere(
    name: str, engine: StreamEngineOpener, options: dict[str, Any], bodies: str | os.PathLike[str] | None,
    folder: str,
) -> Stream:  # fmt: skip
    """The stream in another engine; its bodies lie in the store's folder unless a place is named.

    There all bodies lie in one place, so `payloads` and `bodies` are the same.
    """
    chosen = payloads(options.pop("payloads", None))
    if options:
        raise InvalidOption(
            f"{', '.join(sorted(options))}: options of a topic, which a stream in {engine!r} is not",
            hint="payloads= is the one that it takes",
        )
    if bodies is not None:
        place = open_bodies(bodies)
    elif chosen is None or chosen.place == FILES:
        place = open_bodies(os.path.join(folder, "payloads", "streams", name))
    else:
        place = open_bodies(chosen.place, options=dict(chosen.options))
    return Stream(engine.open(name, place))
