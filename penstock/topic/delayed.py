"""Delayed messages: written now, appended when they are due. What is stored of one, where it waits, and how.

`delay=` is a fixed delay: the message waits in the chain of just that delay, and its wait begins with the
call. `deliver_at=` is a moment, and so is what a transaction has delayed once it is committed: those wait on
the ladder. The thread that appends what is due is `penstock.topic.delayed_publisher`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Protocol

import msgspec

from penstock.clock import NANOSECONDS, Clock
from penstock.codecs import RAW
from penstock.delay.ladder import wait_ms
from penstock.errors import InvalidOption
from penstock.files import Files
from penstock.message import Headers, Receipt
from penstock.options import TopicOptions
from penstock.parse import WAIT_MAX_S, Duration, nanoseconds, wait_seconds
from penstock.state.topics import TopicRecord
from penstock.state.transactions import DelayedRow
from penstock.topic.value_codec import checked_value
from penstock.topic.write_batch import WriteBatch

DELAY = "delay"
RETRIES, PUBLISH, SESSIONS = "retries", "publish", "sessions"

_MS = 1_000_000


class Extras(msgspec.Struct, frozen=True, gc=False):
    """What most messages do not have."""

    headers: Headers | None
    timestamp: int | None
    partition: int | None
    group: str | None = None


NO_EXTRAS = Extras(None, None, None)


class DelayedMessage(msgspec.Struct, frozen=True, array_like=True):
    """What is stored as the data of a waiting record (docs/FORMAT.md); fields are only ever added."""

    topic_id: int
    key: bytes | None
    value: bytes | None
    codec: int
    #: Values are text or bytes.
    headers: dict[str, Any] | None
    timestamp: int
    partition: int | None
    group: str | None


class Due(msgspec.Struct, frozen=True, gc=False):
    """When a message is to enter its topic: at a moment, or after a fixed delay."""

    #: In milliseconds since 1970, as are the others.
    at_ms: int
    #: How long it waits; None where a moment was given.
    delay_ms: int | None
    #: When the wait began, rounded up: nothing is due early.
    begun_ms: int
    #: The same moment in nanoseconds.
    begun_ns: int


class Postponed(msgspec.Struct, frozen=True, gc=False):
    """A message that is to wait, and until when."""

    #: A `DelayedMessage`, encoded.
    data: bytes
    #: As in `Due`; not a `Due` itself, since many of these are looked at in a row.
    at_ms: int
    delay_ms: int | None
    begun_ms: int
    #: Whether its topic promises that it survives a power cut.
    is_durable: bool


class DelaysMessages(Protocol):
    """What holds messages until they are due: `penstock.topic.delayed_publisher.DelayedPublisher`."""

    def add(self, topic: str, messages: Sequence[Postponed], *, durable: bool | None = None) -> None:
        """Store messages until they are due."""

    def prepare(self) -> None:
        """Prepare for a transaction that is about to delay messages."""

    def bring_in(self) -> None:
        """Store what committed transactions delay among the waiting messages."""

    def look(self) -> None:
        """Begin to publish what is due, if anything was ever delayed in this store."""


class NoDelays:
    """Delays nothing: for a topic outside a store, or in one that may only be read."""

    def add(self, topic: str, messages: Sequence[Postponed], *, durable: bool | None = None) -> None:
        """Refuse: nothing can be delayed here."""
        raise AssertionError("a topic outside a store delays nothing")

    def prepare(self) -> None:
        """Refuse: nothing can be delayed here."""
        raise AssertionError("a topic outside a store delays nothing")

    def bring_in(self) -> None:
        """Do nothing: no transaction delays messages here."""

    def look(self) -> None:
        """Do nothing: no messages wait here."""


class StoredTopic(Protocol):
    """The part of an open topic that is used here; its class lies above this module."""

    @property
    def name(self) -> str:
        """The topic's name."""

    @property
    def folder(self) -> str:
        """The path of the topic's folder."""

    @property
    def record(self) -> TopicRecord:
        """The topic's record in `state.db`."""

    @property
    def options(self) -> TopicOptions:
        """The topic's options."""

    @property
    def files(self) -> Files:
        """The file calls."""

    @property
    def require_place(self) -> Callable[[], None]:
        """Raise when the store's folder is not where it was."""

    @property
    def clock(self) -> Clock:
        """The clock."""

    @property
    def delayed(self) -> DelaysMessages:
        """What holds the store's delayed messages."""


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(DelayedMessage)


def decode(data: bytes) -> DelayedMessage:
    """Decode a record; raises `msgspec.MsgspecError` when it is no delayed message."""
    return _decoder.decode(data)


# Where messages wait.


def delay_root(topic: StoredTopic) -> str:
    """The folder of all waiting messages of the store that a topic is in."""
    return os.path.join(os.path.dirname(os.path.dirname(topic.folder)), DELAY)


def retries_folder(topic: StoredTopic, consumer: str, partition: int) -> str:
    """Where messages of one partition wait for another attempt of a consumer."""
    return os.path.join(_of_consumer(topic, consumer), str(partition))


def retries_of(topic: StoredTopic) -> list[tuple[str, str]]:
    """Yield (consumer, folder) wherever messages ever waited for another attempt."""
    root, files = _of_topic(topic), topic.files
    return [
        (consumer, os.path.join(root, consumer, partition))
        for consumer in (sorted(files.listdir(root)) if files.exists(root) else ())
        for partition in files.listdir(os.path.join(root, consumer))
    ]


def forget_consumer(topic: StoredTopic, consumer: str) -> None:
    """Remove what a consumer that was dropped wanted to try again."""
    shutil.rmtree(_of_consumer(topic, consumer), ignore_errors=True)


def forget_topic(topic: StoredTopic) -> None:
    """Remove what the consumers of a topic that was dropped wanted to try again."""
    shutil.rmtree(_of_topic(topic), ignore_errors=True)


def _of_consumer(topic: StoredTopic, consumer: str) -> str:
    return os.path.join(_of_topic(topic), consumer)


def _of_topic(topic: StoredTopic) -> str:
    return os.path.join(delay_root(topic), RETRIES, str(topic.record.id))


# Storing.


def due_at(delay: Duration | None, deliver_at: int | datetime | None, now_ns: int) -> Due | None:
    """When a message is to enter its topic; None for a moment that has passed."""
    begun_ms = -(-now_ns // _MS)
    if deliver_at is None:
        assert delay is not None
        wait = _known_delay(delay) if type(delay) is str else _delay_ms(delay)
        return Due(begun_ms + wait, wait, begun_ms, now_ns)
    if delay is not None:
        raise InvalidOption("delay and deliver_at are both given", hint="give one of them")
    moment = nanoseconds("deliver_at", deliver_at)
    if moment - now_ns > WAIT_MAX_S * NANOSECONDS:
        raise InvalidOption("deliver_at is more than a year from now", hint="a year at most")
    return Due(-(-moment // _MS), None, begun_ms, now_ns) if moment > now_ns else None


def postponed(
    topic: StoredTopic, value: bytes | None, key: bytes | None, extras: Extras, due: Due, codec: int = RAW
) -> Postponed:
    """A checked message that is to wait; it lies in the log meanwhile, so it is no larger than that takes."""
    record = topic.record
    options = record.options
    if value is not None and (type(value) is not bytes or len(value) > options.max_message_bytes):
        value = bytes(checked_value(value, options.max_message_bytes) or b"")
    headers, timestamp = extras.headers, extras.timestamp
    # The fields of a `DelayedMessage`, as a plain tuple: the same bytes in half the time.
    data = _encode((
        record.id, key, value, codec, dict(headers) if headers else None,
        due.begun_ns if timestamp is None else timestamp, extras.partition, extras.group or None,
    ))  # fmt: skip
    return Postponed(data, due.at_ms, due.delay_ms, due.begun_ms, options.sync == "disk")


def of_batch(topic: StoredTopic, message: WriteBatch, group: str, due: Due) -> Postponed:
    """Take the message out of a batch of one, to be delayed."""
    columns = message.columns
    extras = Extras(
        columns.headers[0] if columns.headers else None,
        columns.timestamps[0] if columns.timestamps else None,
        message.partitions[0] if message.partitions else None,
        group,
    )
    key = columns.keys[0] if columns.keys else None
    codec = columns.codecs if isinstance(columns.codecs, int) else columns.codecs[0]
    return postponed(topic, columns.values[0], key, extras, due, codec)


def store(topic: StoredTopic, message: WriteBatch, group: str, due: Due) -> Receipt:
    """Store a batch of one until it is due, as safely as its topic's messages.

    Its receipt names no place, since it has none in its topic yet.
    """
    later = of_batch(topic, message, group, due)
    topic.require_place()
    topic.delayed.add(topic.name, [later])
    return Receipt(-1, -1, "disk" if later.is_durable else "os", due_at=due.at_ms * _MS)


def rows(tx: int, delayed: Sequence[tuple[str, Postponed]]) -> list[DelayedRow]:
    """Return the delayed messages of a transaction as the rows that its commit stores."""
    return [
        DelayedRow(tx, number, each.at_ms, topic, each.data) for number, (topic, each) in enumerate(delayed)
    ]


def no_body() -> InvalidOption:
    """The error for a delayed message whose body would be stored outside the log."""
    return InvalidOption(
        "what is delayed lies in the log", hint="give its bytes, without a name, or write it when it is due"
    )


def _delay_ms(delay: Duration) -> int:
    return wait_ms("delay", wait_seconds("delay", delay))


#: A delay is mostly one that was given before.
_known_delay = lru_cache(maxsize=256)(_delay_ms)
