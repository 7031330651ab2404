"""Subject streams: messages under subjects in one global sequence, read by durable consumers.

There are two ways to use one. The eight functions of MiniToolStream keep their names, parameters and
results (`MiniToolStream`); `publish`, `fetch`, `ack` and `subscribe` are for everyone else:

    sequence = stream.publish("orders", b"paid", headers={"content-type": "text/plain"})
    for message in stream.fetch("billing", "orders"):
        handle(message.data)
        stream.ack("billing", "orders", message.sequence)

A position is the last sequence that a consumer has read of a subject, or of a pattern ("images.*"): the
sequence is global, so one number does for all the subjects that a pattern takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple, TypeVar

from penstock.errors import OffsetAhead, PenstockError, WrongType
from penstock.files import speaking
from penstock.parse import Duration, seconds
from penstock.streams.engine import DATA_TYPES, Data, Publication, StreamEngine, StreamMessage
from penstock.streams.mini_tool_stream import MiniToolStream
from penstock.streams.subjects import (
    EVERYTHING,
    SubjectQuery,
    asked,
    asked_sequence,
    checked_durable,
    checked_limit,
    checked_object_name,
    checked_pattern,
    checked_sequence,
    checked_stream_headers,
    checked_subject,
)
from penstock.streams.ttl import TtlCleanup
from penstock.wake import Bell

T = TypeVar("T")

#: So many messages are taken at a time.
_AT_ONCE = 100


class News(NamedTuple):
    """A notification that there is something new."""

    subject: str
    latest_sequence: int
    #: How many messages lie behind the place that one follows from.
    new_count: int


class StreamTail:
    """A place in a stream, and what comes behind it."""

    def __init__(self, engine: StreamEngine, asked: SubjectQuery, subject: str, position: int) -> None:
        self._engine = engine
        self._asked = asked
        self._subject = subject
        self._position = position
        self._told = position

    def take(self) -> list[StreamMessage]:
        """The next messages; empty when there is nothing new."""
        found = self._engine.messages(self._asked, self._position + 1, _AT_ONCE)
        if found:
            self._position = found[-1].sequence
        return found

    def look(self) -> list[News]:
        """How much is new, if that was not reported yet."""
        latest = self._engine.latest(self._asked)
        if latest <= self._told:
            return []
        self._told = latest
        return [News(self._subject, latest, self._engine.count(self._asked, self._position))]

    def up_to(self, stop: int) -> Iterator[StreamMessage]:
        """What there is up to the sequence `stop`."""
        while self._position < stop and (found := self.take()):
            for message in found:
                if message.sequence > stop:
                    return
                yield message


def followed(engine: StreamEngine, take: Callable[[], list[T]], timeout_s: float | None) -> Iterator[T]:
    """What `take` gives, waiting for more whenever it gives nothing; ends when that took too long."""
    bell = Bell()
    with engine.watching(bell.ring) as watching:
        while True:
            deadline = None if timeout_s is None else time.monotonic() + timeout_s
            while not (found := take()):
                left = watching.pause_s if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    return
                bell.wait(min(left, watching.pause_s))
                engine.help()
            yield from found


#: What one `fetch` takes unless it says otherwise.
BATCH = 10


class Published(NamedTuple):
    """What became of one message of `publish_many`: its sequence, or why it was not stored."""

    sequence: int | None
    error: PenstockError | None = None


@speaking("publish", "publish_many", "get", "fetch", "ack")
class Stream(MiniToolStream, TtlCleanup):
    """A stream of an open store; made by `Store.stream`. Any number of threads and processes may use it."""

    def __init__(self, engine: StreamEngine) -> None:
        MiniToolStream.__init__(self, engine)
        TtlCleanup.__init__(self, engine)

    @property
    def name(self) -> str:
        """The stream's name; embedded, also that of its topic."""
        return self.engine.name

    def publish(
        self, subject: str, data: Data = None, *, headers: Mapping[str, str] | None = None,
        object_name: str | None = None,
    ) -> int:  # fmt: skip
        """Store a message and return its sequence, once it would survive what the stream's `sync` promises.

        `data` is bytes, text, a `Path` or an open file; None is a message of headers only. Where the body
        is large and the stream has a place for bodies it is stored there first, so that a reader of the
        message finds its body.
        """
        return self.engine.publish(publication(subject, data, headers, object_name))

    def publish_many(self, messages: Iterable[Publication | tuple[str, Data]]) -> list[Published]:
        """Store several messages, each on its own; what became of each, in their order.

        A message is a `Publication`, or a pair of subject and data.
        """
        wanted: list[Publication] = []
        results: list[Published | None] = []
        for message in messages:
            try:
                wanted.append(publication(*_fields(message)))
            except PenstockError as error:
                results.append(Published(None, error))
            else:
                results.append(None)
        stored = iter(self.engine.publish_many(wanted) if wanted else ())
        return [each if each is not None else _published(next(stored)) for each in results]

    def get(self, sequence: int) -> StreamMessage | None:
        """The message of that sequence, with its body; None when it is not there, any more or yet."""
        found = self.engine.messages(EVERYTHING, asked_sequence("sequence", sequence) or 1, 1)
        return found[0] if found and found[0].sequence == sequence else None

    def open_object(self, name: str) -> BinaryIO:
        """The body of that name as an open file, to be closed by the caller; raises `BodyMissing`.

        A name is one that a publisher gave, or one of our own making, such as "orders_16". Where the stream
        has `bodies`, objects that others put there are found too.
        """
        return self.engine.open_object(checked_object_name(name))

    def fetch(self, durable: str, subject: str, batch: int = BATCH) -> list[StreamMessage]:
        """The next messages behind a durable consumer's position, at most `batch`; the position stays.

        `subject` may be a pattern, which has a position of its own. Empty when there is nothing new.
        """
        wanted = asked(subject)
        limit = checked_limit(batch)
        position = self.engine.position(checked_durable(durable), subject)
        return self.engine.messages(wanted, position + 1, limit)

    def ack(self, durable: str, subject: str, sequence: int) -> bool:
        """Say that everything up to `sequence` was read; False when that was known already.

        Never goes back: acks may come in any order. Raises `OffsetAhead` for a sequence that was never
        given. `update_consumer_position` puts a consumer anywhere.
        """
        checked_pattern(subject)
        checked_durable(durable)
        checked_sequence("sequence", sequence)
        last = self.engine.last()
        if sequence > last:
            raise OffsetAhead(
                f"sequence {sequence} of stream {self.name!r} was never given: the last one is {last}",
                partition=0, offset=sequence, end=last,
            )  # fmt: skip
        return self.engine.advance(durable, subject, sequence)

    def subscribe(
        self, durable: str, subject: str, *, start_sequence: int | None = None,
        timeout: Duration | None = None,
    ) -> Iterator[StreamMessage]:  # fmt: skip
        """All messages behind a durable consumer's position, then each new one as soon as it is there.

        Nothing is left out, however many come at once. The position moves with `ack` only, and is looked at
        when the iteration begins; `start_sequence` counts when it lies further. It ends when nothing came
        for `timeout`; without one it goes on for ever.
        """
        following = self.tail(durable, subject, start_sequence)
        return followed(self.engine, following.take, optional_seconds(timeout))

    def notifications(
        self, durable: str, subject: str, *, start_sequence: int | None = None,
        timeout: Duration | None = None,
    ) -> Iterator[News]:  # fmt: skip
        """Only says that there is something new, and how much: at once if there is, then whenever more came.

        For those who `fetch` themselves. The options are those of `subscribe`.
        """
        following = self.tail(durable, subject, start_sequence)
        return followed(self.engine, following.look, optional_seconds(timeout))

    def messages(self, subject: str = "*", start_sequence: int = 1) -> Iterator[StreamMessage]:
        """Everything there is now of a subject or a pattern, in the order of the global sequence."""
        before = checked_sequence("start_sequence", start_sequence) - 1
        return StreamTail(self.engine, asked(subject), subject, before).up_to(self.engine.last())

    def close(self) -> None:
        """Stop the cleanup of this process, if it runs. Messages and positions are safe without."""
        self.stop_ttl_cleanup()

    def __repr__(self) -> str:
        return f"<Stream {self.name}>"

    def tail(self, durable: str, subject: str, start_sequence: int | None) -> StreamTail:
        """From where a durable consumer follows a subject."""
        wanted = asked(subject)
        position = self.engine.position(checked_durable(durable), subject)
        if start_sequence is not None:
            position = max(position, checked_sequence("start_sequence", start_sequence) - 1)
        return StreamTail(self.engine, wanted, subject, position)


def publication(
    subject: str, data: Data, headers: Mapping[str, str] | None, object_name: str | None
) -> Publication:
    """A message that may be published; raises for what may not."""
    if object_name is not None:
        checked_object_name(object_name)
        data = b"" if data is None else data  # its body is here, and empty
    if not isinstance(data, DATA_TYPES) and not hasattr(data, "read"):
        raise WrongType(
            f"data is bytes, str, a Path, an open file or None, not {type(data).__name__}",
            hint="encode it first, e.g. json.dumps",
        )
    return Publication(checked_subject(subject), data, checked_stream_headers(headers), object_name)


def _fields(message: object) -> tuple[Any, Any, Any, Any]:
    """What `publish_many` was given, as a `Publication` has it."""
    if isinstance(message, Publication):
        return message
    if isinstance(message, tuple) and len(message) == 2:
        return (*message, None, None)
    raise WrongType(f"a message to publish is a Publication or (subject, data), not {type(message).__name__}")


def _published(result: int | PenstockError) -> Published:
    return Published(result) if isinstance(result, int) else Published(None, result)


def optional_seconds(timeout: Duration | None) -> float | None:
    """Return a timeout in seconds; None is no timeout."""
    return None if timeout is None else seconds("timeout", timeout)
