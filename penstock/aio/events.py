"""The async live events: any number of subscribers wait without a thread."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from penstock.aio.tail import Tail
from penstock.aio.threads import Threads
from penstock.aio.topic import Topic
from penstock.faces import events
from penstock.faces.answers import Answer, Pushed, stored_pairs
from penstock.faces.events import WAIT_S
from penstock.keys import Key, Prefix
from penstock.options import Duration, seconds


class Events:
    """The live events of a topic; made by `Store.events`."""

    def __init__(self, blocking: events.Events, topic: Topic, threads: Threads) -> None:
        self._blocking = blocking
        self._topic = topic
        self._threads = threads
        self._tail = Tail(blocking._partitions, blocking._help, threads)

    @property
    def topic(self) -> str:
        """The name of the topic they are in."""
        return self._blocking.topic

    @property
    def epoch(self) -> str:
        """Differs when the topic was dropped and made anew: ids of another epoch mean nothing."""
        return self._blocking.epoch

    async def push(self, key: Key, data: Any) -> Pushed:
        """Store an event and wake who subscribed to its key; it is on disk when this returns.

        `data` is any JSON value, None included. Coroutines that push at the same time share one sync.
        """
        ((stored_key, value),) = stored_pairs([(key, data)])
        receipt = await self._topic.write(value, key=stored_key)
        return Pushed(self.epoch, receipt.offset + 1, receipt.offset + 1)

    async def push_many(self, events: Iterable[tuple[Key, Any]]) -> Pushed:
        """Store several events, all or none, with ids one after the other."""
        return await self._threads.run(self._blocking.push_many, events)

    async def subscribe(
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
        question = await self._threads.run(
            self._blocking._question, keys, cursor, prefixes, rewind, since, limit
        )
        answer = await self._threads.run(question.look)
        if answer is not None:
            return answer
        with self._tail.ear(question.asked) as ear:
            # What is new was written a moment ago and lies in memory: looking takes less than a thread would.
            while (answer := question.look()) is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    return question.give_up()
                question.at(max(question.next, await ear.wait(left)))
        return answer

    def __repr__(self) -> str:
        return repr(self._blocking)
