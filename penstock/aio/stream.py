"""The async subject streams: any number of subscribers wait without a thread."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

from penstock import wake
from penstock.aio.bell import Bell
from penstock.aio.seedcalls import SeedCalls
from penstock.aio.threads import Threads
from penstock.aio.topic import Topic
from penstock.faces import stream
from penstock.faces.engine import Data, Publication
from penstock.faces.stream import BATCH, Published, optional_seconds, publication
from penstock.faces.streammessage import StreamMessage
from penstock.faces.streamrows import stored_headers
from penstock.faces.subscription import News
from penstock.options import Duration

#: So many messages are read in a thread at a time.
_AT_ONCE = 100

T = TypeVar("T")


class Stream(SeedCalls):
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
        bell, heard = Bell(), wake.Bell()
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
