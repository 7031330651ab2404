"""Group commit for coroutines: those that write at the same time share one append and one sync.

While one group is on its way to the disk the next one gathers, so the busier the program the larger
its groups. Each coroutine gets the receipt, or the error, of its own message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from penstock.aio.twin import Threads
from penstock.errors import PenstockError
from penstock.message import Receipt
from penstock.topic.delayed import Extras
from penstock.topic.open_topic import Landed, OpenTopic
from penstock.topic.write_buffer import Entry, columns

Outcome = Receipt | Exception


class Group:
    """The single messages that coroutines write to one topic."""

    def __init__(self, partitions: OpenTopic, threads: Threads) -> None:
        self._partitions = partitions
        self._threads = threads
        self._entries: list[Entry] = []
        self._futures: list[asyncio.Future[Receipt]] = []
        self._task: asyncio.Task[None] | None = None

    def add(self, value: bytes | None, key: bytes | None, extras: Extras | None) -> asyncio.Future[Receipt]:
        """Have one message stored together with those that come at the same time.

        Cancelled before its group left, it is not written; after that it may be.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Receipt] = loop.create_future()
        self._entries.append((value, key, extras))
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
        entries, futures = self._entries, self._futures
        self._entries, self._futures = [], []
        wanted = [place for place, future in enumerate(futures) if not future.done()]
        if not wanted:
            return
        if len(wanted) < len(futures):
            entries, futures = [entries[place] for place in wanted], [futures[place] for place in wanted]
        outcomes: Sequence[Outcome]
        try:
            outcomes = await self._threads.run(store_together, self._partitions, entries)
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


def store_together(partitions: OpenTopic, entries: Sequence[Entry]) -> list[Outcome]:
    """Append a group and make it as safe as the topic promises: a receipt or an error for each message."""
    landed: list[Landed] = []
    failure: Exception = AssertionError("a message went to no partition")
    try:
        landed.extend(partitions.append(columns(entries, partitions.clock.now_ns())))
    except (PenstockError, OSError) as error:
        failure = error
    outcomes: list[Outcome] = [failure] * len(entries)
    sync = partitions.options.sync
    for each in landed:
        try:
            if sync == "disk":
                partitions.sync((each,))
        except (PenstockError, OSError) as error:
            for place in each.places:
                outcomes[place] = error
        else:
            run = each.stored()
            for index, place in enumerate(each.places):
                outcomes[place] = run.receipt(index, sync)
    return outcomes
