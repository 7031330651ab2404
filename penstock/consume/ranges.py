"""Messages as ranges of offsets, and batches cut to size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.errors import WrongType
from penstock.log.rows import MessageRows
from penstock.message import Batch, Message, V


def ranges_of(done: Message[Any] | Batch[Any]) -> list[tuple[str, int, int, int]]:
    """(topic, partition, first offset, offset behind the last) of messages that lie together."""
    if isinstance(done, Message):
        return [(done.topic, done.partition, done.offset, done.offset + 1)]
    if isinstance(done, Batch):
        return [(done.topic, rows.partition, rows.first, rows.stop) for rows in done.rows]
    raise WrongType(f"commit takes a Message or a Batch, not {type(done).__name__}")


def cut(left: list[Message[V]], max_messages: int, max_bytes: int) -> tuple[Batch[V], Iterator[Message[V]]]:
    """Of what `receive` has not handed out yet: as much as the limits allow, and what is left then."""
    count = weight = 0
    for message in left[:max_messages]:
        weight += len(message.key or b"") + len(message.stored or b"")
        if count and weight > max_bytes:
            break
        count += 1
    return Batch(left[0].topic, (MessageRows(left[:count]),)), iter(left[count:])
