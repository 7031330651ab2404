"""Checked messages on their way into the log, as columns, and how they become frames."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from penstock.errors import MessageTooLarge
from penstock.log.frame import RAW, ProducerStamp
from penstock.log.frame_columns import Lengths
from penstock.log.frame_encode import EncodedFrame, encode
from penstock.message import Headers
from penstock.parse import KIB, MIB

#: A writer's frames: large enough to be worth a checksum, small enough to be read alone.
FRAME_BYTES = MIB
FRAME_MESSAGES = 10_000
#: What is left of it for keys, values and headers.
_BODY_BYTES = FRAME_BYTES - 64 * KIB


class WriteBatch(NamedTuple):
    """Checked messages on their way into the log; columns that nobody used are None."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None = None
    headers: Sequence[Headers | None] | None = None
    timestamps: Sequence[int] | None = None
    #: Explicit partitions, where the caller chose.
    partitions: Sequence[int | None] | None = None
    #: Lengths of values and keys, where checking them has found them.
    lengths: tuple[Lengths | None, Lengths | None] = (None, None)
    #: How all values are encoded, unless `codecs` says it of each.
    codec: int = RAW
    #: Who writes, and the number each message has for them, ascending.
    producer: ProducerStamp | None = None
    seqnos: Sequence[int] | None = None
    #: Groups of their own, where messages have one.
    groups: Sequence[str | None] | None = None
    #: How each value is encoded, where they differ.
    codecs: Sequence[int] | None = None

    def pick(self, places: Sequence[int]) -> WriteBatch:
        """Those at `places`, in that order."""
        return WriteBatch(
            [self.values[i] for i in places],
            self.keys and [self.keys[i] for i in places],
            self.headers and [self.headers[i] for i in places],
            self.timestamps and [self.timestamps[i] for i in places],
            self.partitions and [self.partitions[i] for i in places],
            codec=self.codec,
            producer=self.producer,
            seqnos=self.seqnos and [self.seqnos[i] for i in places],
            groups=self.groups and [self.groups[i] for i in places],
            codecs=self.codecs and [self.codecs[i] for i in places],
        )

    def part(self, first: int, stop: int) -> WriteBatch:
        return WriteBatch(
            self.values[first:stop],
            self.keys and self.keys[first:stop],
            self.headers and self.headers[first:stop],
            self.timestamps and self.timestamps[first:stop],
            self.partitions and self.partitions[first:stop],
            codec=self.codec,
            producer=self.producer,
            seqnos=self.seqnos and self.seqnos[first:stop],
            groups=self.groups and self.groups[first:stop],
            codecs=self.codecs and self.codecs[first:stop],
        )


def encode_all(batch: WriteBatch, created: int, *, compress: bool = False) -> list[EncodedFrame]:
    """A batch as frames of at most 1 MiB (before compression) or 10,000 messages."""
    if _seems_small(batch):  # weighing all messages first would cost as much as encoding them
        with suppress(MessageTooLarge):  # the first message was no measure of the others
            whole = _encode(batch, created, compress)
            if whole.weight <= FRAME_BYTES or len(batch.values) == 1:
                return [whole]
            del whole
    return [_encode(batch.part(first, stop), created, compress) for first, stop in _frame_bounds(batch)]


def _seems_small(batch: WriteBatch) -> bool:
    """Whether a frame might do, judged by the first message; headers are always weighed."""
    count = len(batch.values)
    size = len(batch.values[0] or b"") + (len(batch.keys[0] or b"") if batch.keys else 0)
    return (count <= FRAME_MESSAGES and count * size <= FRAME_BYTES and batch.headers is None) or count == 1


def _encode(batch: WriteBatch, created: int, compress: bool) -> EncodedFrame:
    return encode(
        batch.values, batch.keys, created=created, headers=batch.headers, timestamps=batch.timestamps,
        lengths=batch.lengths, compress=compress, **_codecs(batch),
        producer=(batch.producer, batch.seqnos) if batch.producer and batch.seqnos else None,
    )  # fmt: skip


def _codecs(batch: WriteBatch) -> dict[str, Any]:
    """A column of codecs only where they differ."""
    if batch.codecs is None:
        return {"codec": batch.codec}
    differ = len(set(batch.codecs)) > 1
    return {"codec": batch.codecs[0], "codecs": batch.codecs if differ else None}


def _frame_bounds(batch: WriteBatch) -> list[tuple[int, int]]:
    """Where to cut so that each frame stays small; a single message may be larger."""
    count = len(batch.values)
    offsets = 4 * (2 if batch.keys is not None else 1)
    bounds, first, weight = [], 0, 0
    for place, value in enumerate(batch.values):
        size = offsets + len(value or b"")
        if batch.keys is not None:
            size += len(batch.keys[place] or b"")
        if batch.headers is not None:
            size += sum(8 + len(n) + len(v) for n, v in (batch.headers[place] or {}).items())
        if place > first and (weight + size > _BODY_BYTES or place - first >= FRAME_MESSAGES):
            bounds.append((first, place))
            first, weight = place, 0
        weight += size
    return [*bounds, (first, count)]
