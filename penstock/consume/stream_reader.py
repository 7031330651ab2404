"""Whose messages come next: a reader's partitions in turn, and what comes again beside what is new."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.consume.assignment import LOOK_AGAIN_S, Holdings
from penstock.consume.options import ReaderOptions
from penstock.consume.partition import Gap, HeldPartition
from penstock.log.rows import MessageRows
from penstock.message import Batch, Message, V


class DueBatch(Batch[V]):
    """Messages of one partition that come again; each is a run of its own, since others lie between them."""

    def __init__(
        self, source: HeldPartition, messages: Sequence[Message[Any]], decode: Callable[[bytes], Any] | None
    ) -> None:
        super().__init__(source.topic.name, [MessageRows([each]) for each in messages], decode)
        self._source = source

    def put_back(self, first: int = 0) -> None:
        """Those from the `first` on were not delivered after all."""
        if not self._source.is_gone and self._source.retries is not None:
            self._source.retries.put_back([each.offset for each in self.messages()[first:]])


def poll(
    order: Sequence[HeldPartition],
    decoders: Mapping[str, Callable[[bytes], Any]],
    max_messages: int,
    max_bytes: int,
) -> DueBatch[Any] | None:
    """What is due now of the first partition that has something; mostly None."""
    for source in order:
        if source.retries is None or source.leaving_since is not None:
            continue
        messages = source.retries.take(max_messages, max_bytes)
        if messages:
            return DueBatch(source, messages, decoders.get(source.topic.name))
    return None


def pause_s(order: Sequence[HeldPartition], pause: float) -> float:
    """How long to wait at most, so that nothing is late."""
    for source in order:
        if source.retries is not None and source.leaving_since is None:
            pause = min(pause, source.retries.due_in_s())
    return pause


class Asked(NamedTuple):
    """One call: how much is wanted, and whether the reader waits at the end."""

    max_messages: int
    max_bytes: int
    follow: bool
    #: Takes back what was fetched and not handed out.
    unread: Callable[[], None]


class Turns:
    """Gives each partition its turn; notes what is passed over in `gaps` and `skipped`."""

    def __init__(self, held: Holdings, options: ReaderOptions, gaps: list[Gap], skipped: list[Gap]) -> None:
        self._held = held
        self._options = options
        self._gaps = gaps
        self._skipped = skipped
        self._turn = 0
        #: Whether messages that come again have the next turn.
        self._due_first = True
        self._looked_at = time.monotonic()

    def next(self, asked: Asked) -> tuple[Batch[Any] | None, HeldPartition | None]:
        """What comes next, if anything is there, and the partition whose log it was read from, if it was.

        What comes again and what is new take turns, so that neither has to wait for the other to end.
        """
        batch: Batch[Any] | None = None
        source: HeldPartition | None = None
        if self._due_first:
            batch = self._due(asked)
        if batch is None:
            batch, source = self._new(asked)
            if batch is None and not self._due_first:
                batch = self._due(asked)
            self._due_first = True
        else:
            self._due_first = False
        return batch, source

    def _due(self, asked: Asked) -> Batch[Any] | None:
        if self._options.consumer is None:
            return None
        return poll(self._held.order, self._options.decoders, asked.max_messages, asked.max_bytes)

    def _new(self, asked: Asked) -> tuple[Batch[Any] | None, HeldPartition | None]:
        gaps, held = len(self._gaps), self._held
        for _ in range(len(held.order)):
            source = held.order[self._turn % len(held.order)]
            self._turn += 1
            if not held.may_read(source):
                continue
            rows = source.read(
                asked.max_messages, asked.max_bytes, skip_gaps=self._options.skip_gaps, gaps=self._gaps,
                skipped=self._skipped,
            )  # fmt: skip
            if not held.store_passed_over(source):
                return self._new(asked)
            if rows:
                name = source.topic.name
                return Batch(name, rows, self._options.decoders.get(name)), source
        if len(self._gaps) > gaps or self._look(asked):  # a gap passed over may open a partition
            return self._new(asked)
        return None, None

    def _look(self, asked: Asked) -> bool:
        """Once a second, and at the end without `follow`: did someone add partitions, or drop the topic?"""
        now = time.monotonic()
        if now - self._looked_at < LOOK_AGAIN_S and asked.follow:
            return False
        self._looked_at = now
        return self._held.look(asked.unread)
