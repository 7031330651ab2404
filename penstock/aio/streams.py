"""The async subject streams: any number of subscribers wait without a thread."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

from penstock import wake
from penstock.aio.engine import LoopBell
from penstock.aio.topic import Topic
from penstock.aio.twin import Threads
from penstock.parse import Duration
from penstock.streams import stream
from penstock.streams.engine import Data, Deleted, Publication, Row, StreamMessage, SubjectFacts
from penstock.streams.message_rows import stored_headers
from penstock.streams.mini_tool_stream import Decoded, NewMessages
from penstock.streams.stream import BATCH, News, Published, optional_seconds, publication
from penstock.streams.ttl import TtlStatus


class MiniToolStream:
    """The part of a stream that speaks as MiniToolStream does."""

    def __init__(self, blocking: stream.Stream, threads: Threads) -> None:
        self._blocking = blocking
        self._threads = threads

    async def publish_message(
        self, subject: str, object_name: str, headers: Mapping[str, str] | None = None
    ) -> int:
        """Publish a message whose body lies elsewhere under `object_name`; its sequence, 1 for the first.

        Have the body stored before: whoever sees the message may ask for it.
        """
        return await self._threads.run(self._blocking.publish_message, subject, object_name, headers)

    async def get_message_by_sequence(self, sequence: int) -> Row | None:
        """`(sequence, headers, object_name, subject, create_at)`; None when it is not there."""
        return await self._threads.run(self._blocking.get_message_by_sequence, sequence)

    async def get_message_by_sequence_decoded(self, sequence: int) -> Decoded | None:
        """The same by names."""
        return await self._threads.run(self._blocking.get_message_by_sequence_decoded, sequence)

    async def get_messages_by_subject(self, subject: str, start_sequence: int, limit: int) -> list[Row]:
        """Messages of a subject, or of a pattern ("images.*"), from `start_sequence` on, in order."""
        return await self._threads.run(self._blocking.get_messages_by_subject, subject, start_sequence, limit)

    async def get_all_messages(self, start_sequence: int, limit: int) -> list[Row]:
        """Messages of all subjects from `start_sequence` on, in the order of the global sequence."""
        return await self._threads.run(self._blocking.get_all_messages, start_sequence, limit)

    async def get_latest_sequence_for_subject(self, subject: str) -> int:
        """The newest sequence of a subject, or of a pattern; 0 when it has no messages."""
        return await self._threads.run(self._blocking.get_latest_sequence_for_subject, subject)

    async def get_latest_sequence(self) -> int:
        """The last sequence that was given to any message, also when all are gone; 0 before the first."""
        return await self._threads.run(self._blocking.get_latest_sequence)

    async def get_message_count(self) -> int:
        """How many messages there are."""
        return await self._threads.run(self._blocking.get_message_count)

    async def get_subject_message_count(self, subject: str) -> int:
        """How many messages a subject, or a pattern, has."""
        return await self._threads.run(self._blocking.get_subject_message_count, subject)

    async def get_subjects(self, pattern: str = "*") -> list[SubjectFacts]:
        """Subjects that have messages, by name: how many, the first and the latest sequence."""
        return await self._threads.run(self._blocking.get_subjects, pattern)

    async def update_consumer_position(self, durable_name: str, subject: str, last_sequence: int) -> bool:
        """Say that a durable consumer has read up to `last_sequence`; anywhere, also back (`ack` does not).

        0 puts it before the first message. Returns True.
        """
        return await self._threads.run(
            self._blocking.update_consumer_position, durable_name, subject, last_sequence
        )

    async def get_consumer_position(self, durable_name: str, subject: str) -> int:
        """The last sequence that a durable consumer has read of a subject; 0 when it never said."""
        return await self._threads.run(self._blocking.get_consumer_position, durable_name, subject)

    async def get_consumers_by_subject(self, subject: str) -> list[tuple[str, str, int]]:
        """`(durable_name, subject, last_sequence)` of all who read a subject, by name."""
        return await self._threads.run(self._blocking.get_consumers_by_subject, subject)

    async def get_consumers(self) -> list[tuple[str, str, int]]:
        """The same of all subjects, by subject and name."""
        return await self._threads.run(self._blocking.get_consumers)

    async def get_consumer_count(self) -> int:
        """How many positions are kept: one for each durable consumer and subject."""
        return await self._threads.run(self._blocking.get_consumer_count)

    async def forget_consumer(self, durable_name: str, subject: str | None = None) -> int:
        """Drop a durable consumer's position in a subject, or in all; how many there were."""
        return await self._threads.run(self._blocking.forget_consumer, durable_name, subject)

    async def get_new_messages_count(
        self, subject: str, durable_name: str | None = None, since: int | None = None
    ) -> int:
        """How many messages lie behind a durable consumer's position, or behind the sequence `since`; exact.

        Without either: how many there are.
        """
        return await self._threads.run(self._blocking.get_new_messages_count, subject, durable_name, since)

    async def check_new_messages(self, subject: str, durable_name: str) -> NewMessages:
        """Whether there is something new for a durable consumer, and how much."""
        return await self._threads.run(self._blocking.check_new_messages, subject, durable_name)

    async def delete_old_messages(self, ttl_seconds: float) -> tuple[int, list[Deleted]]:
        """Delete all messages that are `ttl_seconds` old or older: how many, and which, for their bodies.

        0 deletes everything there is. Sequences go on where they were. Calling it again deletes nothing more.
        """
        return await self._threads.run(self._blocking.delete_old_messages, ttl_seconds)

    # How long messages live.

    async def configure_ttl(
        self, *, enabled: bool | None = None, default_ttl: Duration | None = None,
        check_interval: Duration | None = None, channels: Mapping[str, Duration] | None = None,
    ) -> TtlStatus:  # fmt: skip
        """Choose how long messages live; what is left out stays as it is.

        `channels` gives subjects, or patterns ("images.*"), a time of their own, longer or shorter; the
        longest text that fits a subject counts. It replaces the channels there were.
        """
        return await self._threads.run(
            self._blocking.configure_ttl,
            enabled=enabled,
            default_ttl=default_ttl,
            check_interval=check_interval,
            channels=channels,
        )

    async def start_ttl_cleanup(self, on_deleted: Callable[[list[Deleted]], None] | None = None) -> bool:
        """Have a thread of this process delete what is too old, now and at each interval; False if one runs.

        `on_deleted` is called in that thread with what went, for bodies that the stream does not keep
        itself; what it failed for is given to it again.
        """
        return await self._threads.run(self._blocking.start_ttl_cleanup, on_deleted)

    async def stop_ttl_cleanup(self) -> bool:
        """End that thread, waiting up to 5 seconds for a sweep under way; False when none ran."""
        return await self._threads.run(self._blocking.stop_ttl_cleanup)

    async def get_ttl_status(self) -> TtlStatus:
        """How long messages live, and whether this process sees to it."""
        return await self._threads.run(self._blocking.get_ttl_status)

    async def delete_expired(self) -> tuple[int, list[Deleted]]:
        """Delete what the TTL says, now: how many, and which. Nothing while it is not enabled."""
        return await self._threads.run(self._blocking.delete_expired)


#: So many messages are read in a thread at a time.
_AT_ONCE = 100

T = TypeVar("T")


class Stream(MiniToolStream):
    """A stream of an open store; made by `Store.stream`. Any number of threads and processes may use it."""

    def __init__(self, blocking: stream.Stream, topic: Topic | None, threads: Threads) -> None:
        super().__init__(blocking, threads)
        #: Of an embedded stream: coroutines that publish at the same time share one sync.
        self._topic = topic

    @property
    def name(self) -> str:
        """The stream's name; embedded, also that of its topic."""
        return self._blocking.name

    async def publish(
        self, subject: str, data: Data = None, *, headers: Mapping[str, str] | None = None,
        object_name: str | None = None,
    ) -> int:  # fmt: skip
        """Store a message and return its sequence, once it would survive what the stream's `sync` promises.

        `data` is bytes, text, a `Path` or an open file; None is a message of headers only. Where the body
        is large and the stream has a place for bodies it is stored there first, so that whoever sees the
        message finds its body. Coroutines that publish at the same time share one sync.
        """
        message = publication(subject, data, headers, object_name)
        if self._topic is None or not isinstance(message.data, (bytes, str, type(None))):
            return await self._threads.run(self._blocking._engine.publish, message)
        value = message.data or b""
        receipt = await self._topic.write(value, key=message.subject, headers=stored_headers(message))
        return receipt.offset + 1

    async def publish_many(self, messages: Iterable[Publication | tuple[str, Data]]) -> list[Published]:
        """Store several messages, each on its own; what became of each, in their order.

        A message is a `Publication`, or a pair of subject and data.
        """
        return await self._threads.run(self._blocking.publish_many, list(messages))

    async def get(self, sequence: int) -> StreamMessage | None:
        """The message of that sequence, with its body; None when it is not there, any more or yet."""
        return await self._threads.run(self._blocking.get, sequence)

    async def fetch(self, durable: str, subject: str, batch: int = BATCH) -> list[StreamMessage]:
        """The next messages behind a durable consumer's position, at most `batch`; the position stays.

        `subject` may be a pattern, which has a position of its own. Empty when there is nothing new.
        """
        return await self._threads.run(self._blocking.fetch, durable, subject, batch)

    async def ack(self, durable: str, subject: str, sequence: int) -> bool:
        """Say that everything up to `sequence` was read; False when that was known already.

        Never goes back: acks may come in any order. Raises `OffsetAhead` for a sequence that was never
        given. `update_consumer_position` puts a consumer anywhere.
        """
        return await self._threads.run(self._blocking.ack, durable, subject, sequence)

    def subscribe(
        self, durable: str, subject: str, *, start_sequence: int | None = None,
        timeout: Duration | None = None,
    ) -> AsyncIterator[StreamMessage]:  # fmt: skip
        """All messages behind a durable consumer's position, then each new one as soon as it is there.

        Nothing is left out, however many come at once. The position moves with `ack` only, and is looked at
        when the iteration begins; `start_sequence` counts when it lies further. It ends when nothing came
        for `timeout`; without one it goes on for ever.
        """
        following = self._blocking._following(durable, subject, start_sequence)
        return self._followed(following.take, optional_seconds(timeout))

    def notifications(
        self, durable: str, subject: str, *, start_sequence: int | None = None,
        timeout: Duration | None = None,
    ) -> AsyncIterator[News]:  # fmt: skip
        """Only says that there is something new, and how much: at once if there is, then whenever more came.

        For those who `fetch` themselves. The options are those of `subscribe`.
        """
        following = self._blocking._following(durable, subject, start_sequence)
        return self._followed(following.look, optional_seconds(timeout))

    def messages(self, subject: str = "*", start_sequence: int = 1) -> AsyncIterator[StreamMessage]:
        """Everything there is now of a subject or a pattern, in the order of the global sequence."""
        return self._passed(self._blocking.messages(subject, start_sequence))

    async def close(self) -> None:
        """Stop the cleanup of this process, if it runs. Messages and positions are safe without."""
        await self._threads.run(self._blocking.close)

    def __repr__(self) -> str:
        return repr(self._blocking)

    async def _followed(self, take: Callable[[], list[T]], timeout_s: float | None) -> AsyncIterator[T]:
        """What `take` gives, waiting for more whenever it gives nothing; ends when that took too long."""
        engine = self._blocking._engine
        bell, heard = LoopBell(), wake.Bell()
        heard.hearer = bell.ring
        with engine.watching(heard.ring) as watching:
            while True:
                deadline = None if timeout_s is None else time.monotonic() + timeout_s
                while not (found := await self._threads.run(take)):
                    left = watching.pause_s if deadline is None else deadline - time.monotonic()
                    if left <= 0:
                        return
                    await bell.wait(min(left, watching.pause_s))
                    await self._threads.run(engine.help)
                for each in found:
                    yield each

    async def _passed(self, blocking: Iterator[T]) -> AsyncIterator[T]:
        """The same, some at a time, each time in a thread."""
        while some := await self._threads.run(lambda: list(islice(blocking, _AT_ONCE))):
            for each in some:
                yield each
