"""Group commit for coroutines: those that write at the same time share one append and one sync.

While one group is on its way to the disk the next one gathers, so the busier the program the larger
its groups. Each coroutine gets the receipt, or the error, of its own message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from penstock.aio.twin import Threads
from penstock.message import Receipt
from penstock.topic.open_topic import OpenTopic
from penstock.topic.write_buffer import WIDTH, Besides, WriteBuffer

Outcome = Receipt | Exception


class Group:
    """The single messages that coroutines write to one topic."""

    def __init__(self, topic: OpenTopic, threads: Threads) -> None:
        self._topic = topic
        self._threads = threads
        self._buffer = WriteBuffer(topic, None, look=_nothing, admit=_admit, number=_number, postpone=_never)
        self._futures: list[asyncio.Future[Receipt]] = []
        self._task: asyncio.Task[None] | None = None

    def add(self, value: Any, **besides: Any) -> asyncio.Future[Receipt]:
        """Have one message, with the arguments of `write`, stored together with those that come with it.

        Cancelled before its group left, it is not written; after that it may be.
        """
        self._buffer.add(value, **besides)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Receipt] = loop.create_future()
        self._futures.append(future)
        if self._task is None:
            self._task = loop.create_task(self._work())
        return future

    async def _work(self) -> None:
        try:
            while self._futures:
                await self._send()
        finally:
            self._task = None

    async def _send(self) -> None:
        rows, futures = self._buffer.rows, self._futures
        self._buffer.rows, self._futures = [], []
        wanted = [place for place, future in enumerate(futures) if not future.done()]
        if not wanted:
            return
        if len(wanted) < len(futures):
            rows = [item for place in wanted for item in rows[WIDTH * place : WIDTH * (place + 1)]]
            futures = [futures[place] for place in wanted]
        batch = self._buffer.columns(rows, self._topic.clock.now_ns())
        outcomes: Sequence[Outcome]
        try:
            outcomes = await self._threads.run(self._topic.write_each, batch)
        except asyncio.CancelledError:  # the loop is being shut down
            for future in futures:
                future.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - raised in every coroutine that waits for it
            outcomes = [error] * len(futures)
        for future, outcome in zip(futures, outcomes, strict=True):
            if future.done():
                continue  # cancelled meanwhile
            if isinstance(outcome, Receipt):
                future.set_result(outcome)
            else:
                future.set_exception(outcome)


def _nothing() -> None:
    """Do nothing when the buffer asks to look: a group leaves by itself."""


def _admit(key: bytes | None, is_placed: bool) -> None:
    """Admit every message that is sound."""


def _number(
    seqno: int | None, timestamp: int | None, partition: int | None, group: str | None, key: bytes | None
) -> Besides:
    return timestamp, partition, group, None


def _never(*message: Any) -> bool:
    raise AssertionError("what is delayed goes another way")
