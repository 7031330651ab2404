"""The async subject streams: any number of subscribers wait without a thread."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

from penstock import wake
from penstock.aio.engine import LoopBell
from penstock.aio.topic import Topic
from penstock.aio.twin import Threads, awaited, forwarded, mirrored
from penstock.parse import Duration
from penstock.streams import stream
from penstock.streams.engine import Data, Publication, StreamMessage
from penstock.streams.message_rows import stored_headers
from penstock.streams.stream import News, Published, optional_seconds, publication

#: So many messages are read in a thread at a time.
_AT_ONCE = 100

T = TypeVar("T")


class Stream:
    """A stream of an open store; made by `Store.stream`. Any number of threads and processes may use it."""

    def __init__(self, blocking: stream.Stream, topic: Topic | None, threads: Threads) -> None:
        self.blocking = blocking
        self.threads = threads
        #: Of an embedded stream: coroutines that publish at the same time share one sync.
        self._topic = topic

    name = forwarded[str](stream.Stream.name)

    # The functions of MiniToolStream: messages, consumers, deleting.

    publish_message = awaited(stream.Stream.publish_message)
    get_message_by_sequence = awaited(stream.Stream.get_message_by_sequence)
    get_message_by_sequence_decoded = awaited(stream.Stream.get_message_by_sequence_decoded)
    get_messages_by_subject = awaited(stream.Stream.get_messages_by_subject)
    get_all_messages = awaited(stream.Stream.get_all_messages)
    get_latest_sequence_for_subject = awaited(stream.Stream.get_latest_sequence_for_subject)
    get_latest_sequence = awaited(stream.Stream.get_latest_sequence)
    get_message_count = awaited(stream.Stream.get_message_count)
    get_subject_message_count = awaited(stream.Stream.get_subject_message_count)
    get_subjects = awaited(stream.Stream.get_subjects)

    update_consumer_position = awaited(stream.Stream.update_consumer_position)
    get_consumer_position = awaited(stream.Stream.get_consumer_position)
    get_consumers_by_subject = awaited(stream.Stream.get_consumers_by_subject)
    get_consumers = awaited(stream.Stream.get_consumers)
    get_consumer_count = awaited(stream.Stream.get_consumer_count)
    forget_consumer = awaited(stream.Stream.forget_consumer)
    get_new_messages_count = awaited(stream.Stream.get_new_messages_count)
    check_new_messages = awaited(stream.Stream.check_new_messages)

    delete_old_messages = awaited(stream.Stream.delete_old_messages)
    configure_ttl = awaited(stream.Stream.configure_ttl)
    start_ttl_cleanup = awaited(stream.Stream.start_ttl_cleanup)
    stop_ttl_cleanup = awaited(stream.Stream.stop_ttl_cleanup)
    get_ttl_status = awaited(stream.Stream.get_ttl_status)
    delete_expired = awaited(stream.Stream.delete_expired)

    # For everyone else.

    @mirrored(stream.Stream.publish, besides="Coroutines that publish at the same time share one sync.")
    async def publish(
        self, subject: str, data: Data = None, *, headers: Mapping[str, str] | None = None,
        object_name: str | None = None,
    ) -> int:  # fmt: skip
        message = publication(subject, data, headers, object_name)
        value = b"" if message.data is None else message.data
        if self._topic is None or object_name is not None or not isinstance(value, (bytes, str)):
            return await self.threads.run(self.blocking.engine.publish, message)
        receipt = await self._topic.write(value, key=message.subject, headers=stored_headers(message))
        return receipt.offset + 1

    @mirrored(stream.Stream.publish_many)
    async def publish_many(self, messages: Iterable[Publication | tuple[str, Data]]) -> list[Published]:
        return await self.threads.run(self.blocking.publish_many, list(messages))

    get = awaited(stream.Stream.get)
    open_object = awaited(stream.Stream.open_object)
    fetch = awaited(stream.Stream.fetch)
    ack = awaited(stream.Stream.ack)
    close = awaited(stream.Stream.close)

    @mirrored(stream.Stream.subscribe)
    def subscribe(
        self, durable: str, subject: str, *, start_sequence: int | None = None,
        timeout: Duration | None = None,
    ) -> AsyncIterator[StreamMessage]:  # fmt: skip
        tail = self.blocking.tail(durable, subject, start_sequence)
        return self._followed(tail.take, optional_seconds(timeout))

    @mirrored(stream.Stream.notifications)
    def notifications(
        self, durable: str, subject: str, *, start_sequence: int | None = None,
        timeout: Duration | None = None,
    ) -> AsyncIterator[News]:  # fmt: skip
        tail = self.blocking.tail(durable, subject, start_sequence)
        return self._followed(tail.look, optional_seconds(timeout))

    @mirrored(stream.Stream.messages)
    def messages(self, subject: str = "*", start_sequence: int = 1) -> AsyncIterator[StreamMessage]:
        return self._passed(self.blocking.messages(subject, start_sequence))

    def __repr__(self) -> str:
        return repr(self.blocking)

    async def _followed(self, take: Callable[[], list[T]], timeout_s: float | None) -> AsyncIterator[T]:
        """What `take` gives, waiting for more whenever it gives nothing; ends when that took too long."""
        engine = self.blocking.engine
        bell, heard = LoopBell(), wake.Bell()
        heard.hearer = bell.ring
        with engine.watching(heard.ring) as watching:
            while True:
                deadline = None if timeout_s is None else time.monotonic() + timeout_s
                while not (found := await self.threads.run(take)):
                    left = watching.pause_s if deadline is None else deadline - time.monotonic()
                    if left <= 0:
                        return
                    await bell.wait(min(left, watching.pause_s))
                    await self.threads.run(engine.help)
                for each in found:
                    yield each

    async def _passed(self, blocking: Iterator[T]) -> AsyncIterator[T]:
        """What a blocking iterator gives, some at a time, each time in a thread."""
        while some := await self.threads.run(lambda: list(islice(blocking, _AT_ONCE))):
            for each in some:
                yield each
