"""What a reader delivers besides its logs: messages of its partitions whose next attempt is due."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.consume.source import Source
from penstock.log.rows import MessageRows
from penstock.message import Batch, Message, V


class DueBatch(Batch[V]):
    """Messages of one partition that come again; each is a run of its own, since others lie between them."""

    def __init__(
        self, source: Source, messages: Sequence[Message[Any]], decode: Callable[[bytes], Any] | None
    ) -> None:
        super().__init__(source.topic.name, [MessageRows([each]) for each in messages], decode)
        self._source = source

    def put_back(self, first: int = 0) -> None:
        """Those from the `first` on were not delivered after all."""
        if not self._source.is_gone and self._source.retries is not None:
            self._source.retries.put_back([each.offset for each in self.messages()[first:]])


def poll(
    order: Sequence[Source], decoders: Mapping[str, Callable[[bytes], Any]], max_messages: int, max_bytes: int
) -> DueBatch[Any] | None:
    """What is due now of the first partition that has something; mostly None."""
    for source in order:
        if source.retries is None or source.leaving_since is not None:
            continue
        messages = source.retries.take(max_messages, max_bytes)
        if messages:
            return DueBatch(source, messages, decoders.get(source.topic.name))
    return None


def pause_s(order: Sequence[Source], pause: float) -> float:
    """How long to wait at most, so that nothing is late."""
    for source in order:
        if source.retries is not None and source.leaving_since is None:
            pause = min(pause, source.retries.due_in_s())
    return pause
