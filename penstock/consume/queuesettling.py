"""How `process` settles messages of a queue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.consume.holdings import lost
from penstock.consume.policy import Retry
from penstock.consume.source import Key
from penstock.message import Message
from penstock.options import Duration

if TYPE_CHECKING:
    from penstock.consume.queue import QueueReader


class QueueSettling:
    """A queue's reader as `process` needs it (`penstock.consume.desk`)."""

    sources: Mapping[Key, Any] = {}

    def __init__(self, reader: QueueReader[Any]) -> None:
        self._reader = reader

    def commit(self, topic: str, partition: int, first: int, stop: int) -> None:
        if self._reader._part(topic, partition).done(first, stop) < stop - first:
            raise lost(topic, partition)

    def is_settled(self, message: Message[Any]) -> bool:
        return not self._reader._part(message.topic, message.partition).has(message.offset)

    def retry(
        self, message: Message[Any], after: Duration | None, error: BaseException | str | None,
        policy: Retry | None = None,
    ) -> bool:  # fmt: skip
        return self._reader._retry(message, after, error, policy or self._reader._policy)

    def park(self, message: Message[Any], wait_s: float) -> None:
        raise AssertionError("a queue keeps no order")

    def deliver_again(self, messages: Iterable[Message[Any]]) -> None:
        """`process` ends: these were not handled, and are for anybody."""
        left: dict[Key, list[int]] = {}
        for message in messages:
            left.setdefault((message.topic, message.partition), []).append(message.offset)
        self._reader._renews = False
        for (topic, partition), offsets in left.items():
            self._reader._part(topic, partition).give_back(offsets)
