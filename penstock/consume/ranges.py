"""Messages as ranges of offsets, and batches cut to size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from penstock.errors import WrongType
from penstock.log.rows import MessageRows
from penstock.message import Batch, Message, V

#: (topic, partition, first offset, offset behind the last)
Range = tuple[str, int, int, int]


def ranges_of(done: Message[Any] | Batch[Any]) -> list[Range]:
    """Messages that lie together."""
    if isinstance(done, Message):
        return [(done.topic, done.partition, done.offset, done.offset + 1)]
    if isinstance(done, Batch):
        return _joined((done.topic, rows.partition, rows.first, rows.stop) for rows in done.rows)
    raise WrongType(f"commit takes a Message or a Batch, not {type(done).__name__}")


def _joined(ranges: Iterable[Range]) -> list[Range]:
    """Neighbours as one: what comes again lies in runs of one message each."""
    found: list[Range] = []
    for topic, partition, first, stop in ranges:
        if found and found[-1][1] == partition and found[-1][3] == first:
            found[-1] = (topic, partition, found[-1][2], stop)
        else:
            found.append((topic, partition, first, stop))
    return found


def cut(left: list[Message[V]], max_messages: int, max_bytes: int) -> tuple[Batch[V], Iterator[Message[V]]]:
    """Of what `receive` has not handed out yet: as much as the limits allow, and what is left then."""
    count = weight = 0
    for message in left[:max_messages]:
        weight += len(message.key or b"") + len(message.stored or b"")
        if count and weight > max_bytes:
            break
        count += 1
    return Batch(left[0].topic, (MessageRows(left[:count]),)), iter(left[count:])
