"""Live events of a topic, which is made at first use: push under keys, subscribe to keys."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from penstock.errors import InvalidOption, UnknownTopic, WrongType
from penstock.events.cursor import epoch_text
from penstock.events.event import Answer, Pushed, stored_pairs
from penstock.events.event_query import EventQuery
from penstock.keys import Key, Prefix, match
from penstock.log.frame_encode import FRAME_BYTES, FRAME_MESSAGES
from penstock.parse import KIB, Duration, seconds, whole
from penstock.store.topic import Topic
from penstock.store.transaction import Transaction
from penstock.topic.input import batch_of_many
from penstock.topic.watch import DeadWriterHelp, TopicWatch
from penstock.wake import Bell

#: How long a subscriber waits unless it says otherwise: mobile networks bear that (S002-24).
WAIT_S = 25.0
#: What a message takes in a frame besides its key and value.
_BESIDES_BYTES = 16
#: Headers of each event of a push; None when none has any.
EventHeaders = Sequence[Mapping[str, bytes] | None] | None


class Events:
    """The live events of a topic; made by `Store.events`."""

    def __init__(self, topic: Topic, begin: Callable[[], Transaction]) -> None:
        self._topic = topic
        self._begin = begin
        self.open_topic = topic.open_topic
        self.help_out = DeadWriterHelp(topic.open_topic)

    @property
    def topic(self) -> str:
        """The name of the topic they are in."""
        return self.open_topic.name

    @property
    def epoch(self) -> str:
        """Differs when the topic was dropped and made anew: ids of another epoch mean nothing."""
        return epoch_text(self.open_topic.record.id)

    def push(self, key: Key, data: Any) -> Pushed:
        """Store an event and wake the subscribers of its key; it is on disk when this returns.

        `data` is any JSON value, None included.
        """
        return self.push_many([(key, data)])

    def push_many(self, events: Iterable[tuple[Key, Any]]) -> Pushed:
        """Store several events, all or none, with ids one after the other."""
        pairs = stored_pairs(events)
        return self.push_stored([key for key, _ in pairs], [data for _, data in pairs])

    def subscribe(
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
        question = self.question(keys, cursor, prefixes, rewind, since, limit)
        answer = question.look()
        if answer is not None:
            return answer
        bell = Bell()
        with TopicWatch(self.open_topic, bell.ring) as waiting:
            while (answer := question.look()) is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    return question.give_up()
                bell.wait(min(left, waiting.pause_s))
                if self.help_out.is_due():
                    self.help_out()
        return answer

    def __repr__(self) -> str:
        return f"<Events {self.topic}>"

    def push_stored(
        self, keys: Sequence[bytes], values: Sequence[bytes], headers: EventHeaders = None
    ) -> Pushed:
        """Store events whose keys and data are as they are stored, side by side, all or none."""
        topic = self._topic
        if len(values) == 1:
            first = topic.write(values[0], key=keys[0], headers=headers[0] if headers else None).offset
        elif _fit_one_frame(keys, values, headers):
            first = topic.write_many(values, keys=keys, headers=headers)[0].offset
        else:
            with self._begin() as tx:
                tx.write_many(topic, values, keys=keys, headers=headers)
            first = tx.stored[topic.name][0].first
        return Pushed(self.epoch, first + 1, first + len(values))

    def push_without_waiting(
        self, keys: Sequence[bytes], values: Sequence[bytes], headers: EventHeaders = None
    ) -> Pushed | None:
        """Push without waiting for anything but the disk; None when that cannot be: nothing was stored."""
        options = self.open_topic.options
        if options.codecs:
            return None
        batch = batch_of_many(values, keys, headers, None, None, options.value_bytes)
        run = self.open_topic.write_without_waiting(batch)
        return None if run is None else Pushed(self.epoch, run.first + 1, run.first + len(values))

    def question(
        self, keys: str | Sequence[Key], cursor: str | None, prefixes: Sequence[Prefix], rewind: int | None,
        since: str | datetime | None, limit: int,
    ) -> EventQuery:  # fmt: skip
        """Check what a subscriber asks for and make it a query."""
        asked = match(_listed("keys", keys), _listed("prefixes", prefixes))
        if not asked.keys and not asked.prefixes:
            raise InvalidOption("nothing to subscribe to", hint="name a key or a prefix")
        if sum(given is not None for given in (cursor, rewind, since)) > 1:
            raise InvalidOption("cursor, rewind and since each say where to begin", hint="give one of them")
        whole("limit", limit, 1, 1_000_000)
        return EventQuery(self.open_topic, self.epoch, asked, limit).begin(cursor, rewind, since)


def _listed(name: str, given: Any) -> Sequence[Any]:
    """A list of keys; one text is a list of itself."""
    if isinstance(given, (str, bytes)):
        return (given,)
    if not isinstance(given, (list, tuple, set, frozenset)):
        raise WrongType(f"{name} is a list of keys, not {type(given).__name__}")
    return tuple(given)


#: What events are kept in: a total order, found by key, for an hour.
OPTIONS = {"index": "key", "retention": "1h", "sync": "disk"}


def open_events(
    name: str, find: Callable[[str], Topic], create: Callable[[str], Topic], begin: Callable[[], Transaction]
) -> Events:
    """The events in a topic, which `create` makes when there is none."""
    try:
        topic = find(name)
    except UnknownTopic:
        topic = create(name)
    if topic.options.partitions != 1 or topic.options.index != "key":
        raise InvalidOption(
            f"topic {name!r} cannot hold events: it needs one partition and an index of its keys",
            hint='alter(index="key") gives it one; partitions cannot be taken away',
        )
    if not topic.open_topic.read_only:
        topic.open_topic.growth.keep_one("events")
    return Events(topic, begin)


def _fit_one_frame(keys: Sequence[bytes], values: Sequence[bytes], headers: EventHeaders) -> bool:
    """Whether events fit into one frame: then they are all or none without a transaction."""
    size = sum(map(len, values)) + sum(map(len, keys)) + _BESIDES_BYTES * len(values)
    size += sum(8 + len(n) + len(v) for each in headers or () for n, v in (each or {}).items())
    return len(values) <= FRAME_MESSAGES and size <= FRAME_BYTES - 64 * KIB
