"""Frames as Arrow record batches: keys, values and times point into the frame, nothing is copied."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock import codecs
from penstock.arrow import Names, schema
from penstock.log.frame import RAW, Frame, ProducerStamp
from penstock.log.frame_header import (
    CODECS,
    HEADERS,
    KEY_NULLS,
    KEYS,
    PRODUCER,
    PRODUCERS,
    TIMES,
    VALUE_NULLS,
    WRITTEN,
)

if TYPE_CHECKING:
    from penstock.message import Message


#: Offsets are slices of ramps this long, each made once.
_RAMP = 65536
_TIME = Struct("<q")


def from_frame(
    topic: str, partition: int, frame: Frame, first: int, stop: int, names: Names = None
) -> pa.RecordBatch:
    """Messages `first` to `stop` of a frame, in the columns of `penstock.arrow.schema` or in those named."""
    made = _Columns(topic, partition, frame, first, stop)
    chosen = schema(names)
    return pa.RecordBatch.from_arrays([getattr(made, name)() for name in chosen.names], schema=chosen)


class _Columns:
    """A method for each column, called like it; only those that are asked for cost anything."""

    __slots__ = ("_count", "_first", "_flags", "_frame", "_head", "_same", "_stop", "_where")

    def __init__(self, topic: str, partition: int, frame: Frame, first: int, stop: int) -> None:
        self._where = topic, partition
        self._frame, self._head, self._flags = frame, frame.head, frame.head.flags
        self._first, self._stop, self._count = first, stop, stop - first
        self._same = _unvarying(topic, partition, codecs.name_of(frame.head.codec), self._count)

    @property
    def _body(self) -> pa.Buffer:
        return pa.py_buffer(self._frame.body)

    def topic(self) -> pa.Array:
        return self._same.topic

    def partition(self) -> pa.Array:
        return self._same.partition

    def offset(self) -> pa.Array:
        return counting(self._head.base + self._first, self._count)

    def key(self) -> pa.Array:
        if not self._flags & KEYS:
            return self._same.key
        at = self._frame.layout
        return self._cut(
            _binary(
                self._body, self._head.count, at.key_offsets, at.keys,
                at.key_nulls if self._flags & KEY_NULLS else None,
            )
        )  # fmt: skip

    def value(self) -> pa.Array:
        if self._flags & CODECS or self._head.codec != RAW:
            return decoded_values(self._frame, self._first, self._stop, *self._where)
        at = self._frame.layout
        return self._cut(
            _binary(
                self._body, self._head.count, at.value_offsets, at.values,
                at.value_nulls if self._flags & VALUE_NULLS else None,
            )
        )  # fmt: skip

    def headers(self) -> pa.Array:
        return self._cut(headers_of(self._frame, self._body)) if self._flags & HEADERS else self._same.headers

    def timestamp(self) -> pa.Array:
        if self._flags & TIMES:
            return self._cut(_times(self._body, self._head.count, self._frame.layout.times))
        return _one_time(self._head.created, self._count)

    def written_at(self) -> pa.Array:
        if self._flags & WRITTEN:
            return self._cut(_times(self._body, self._head.count, self._frame.layout.written))
        return _one_time(self._head.written_at, self._count)

    def producer_id(self) -> pa.Array:
        if not self._flags & (PRODUCER | PRODUCERS):
            return self._same.producer_id
        return pa.array([(p.id or None) if p else None for p in self._producers()], pa.string())

    def group(self) -> pa.Array:
        if not self._flags & (PRODUCER | PRODUCERS):
            return self._same.group
        return pa.array([p.group if p else None for p in self._producers()], pa.string())

    def seqno(self) -> pa.Array:
        if not self._flags & (PRODUCER | PRODUCERS):
            return self._same.seqno
        return pa.array(self._frame.seqnos(self._first, self._stop), pa.int64())

    def codec(self) -> pa.Array:
        if not self._flags & CODECS:
            return self._same.codec
        return pa.array(self._frame.codecs(self._first, self._stop), pa.string())

    def _producers(self) -> Sequence[ProducerStamp | None]:
        return self._frame.producers(self._first, self._stop)

    def _cut(self, column: pa.Array) -> pa.Array:
        return column if self._count == self._head.count else column[self._first : self._stop]


def decoded_values(frame: Frame, first: int, stop: int, topic: str, partition: int) -> pa.Array:
    """Values of a frame whose messages are packed, unpacked; raises for the first that cannot be."""
    stored = zip(frame.values(first, stop), frame.codec_numbers(first, stop), strict=True)
    values = [
        value
        if value is None or number == RAW
        else codecs.decoded(number, value, topic=topic, partition=partition, offset=offset)
        for offset, (value, number) in enumerate(stored, frame.head.base + first)
    ]
    return pa.array(values, pa.binary())


class _Unvarying(NamedTuple):
    """Columns that say the same of every row, or nothing."""

    topic: pa.Array
    partition: pa.Array
    key: pa.Array
    headers: pa.Array
    producer_id: pa.Array
    group: pa.Array
    seqno: pa.Array
    codec: pa.Array


@lru_cache(maxsize=128)
def _unvarying(topic: str, partition: int, codec: str, count: int) -> _Unvarying:
    """Frames of a topic mostly have the same few lengths, so these are made once and used again."""
    return _Unvarying(
        _constant(topic, pa.string(), count),
        _constant(partition, pa.int32(), count),
        pa.nulls(count, pa.binary()),
        pa.nulls(count, schema().field("headers").type),
        pa.nulls(count, pa.string()),
        pa.nulls(count, pa.string()),
        pa.nulls(count, pa.int64()),
        _constant(codec, pa.string(), count),
    )


def from_messages(messages: Sequence[Message], names: Names = None) -> pa.RecordBatch:
    """Messages that are Python objects already."""
    from penstock.message import value_bytes

    first = messages[0]
    count = len(messages)
    headers = [
        [(name, value.encode() if isinstance(value, str) else value) for name, value in m.headers.items()]
        if m.headers
        else None
        for m in messages
    ]
    is_wanted = names is None or "value" in names  # else it may have to be unpacked for nothing
    values = pa.array([value_bytes(m) if is_wanted else None for m in messages], pa.binary())
    time = _time_type()
    columns = [
        _constant(first.topic, pa.string(), count),
        _constant(first.partition, pa.int32(), count),
        pa.array([m.offset for m in messages], pa.int64()),
        pa.array([m.key for m in messages], pa.binary()),
        values,
        pa.array(headers, schema().field("headers").type),
        pa.array([m.timestamp for m in messages], pa.int64()).view(time),
        pa.array([m.written_at for m in messages], pa.int64()).view(time),
        pa.array([m.producer_id for m in messages], pa.string()),
        pa.array([m.group for m in messages], pa.string()),
        pa.array([m.seqno for m in messages], pa.int64()),
        pa.array([m.codec for m in messages], pa.string()),
    ]
    whole = pa.RecordBatch.from_arrays(columns, schema=schema())
    return whole if names is None else whole.select(list(names))


def _binary(body: pa.Buffer, count: int, offsets_at: int, bytes_at: int, nulls_at: int | None) -> pa.Array:
    nulls = body.slice(nulls_at, (count + 7) // 8) if nulls_at is not None else None
    offsets = body.slice(offsets_at, 4 * (count + 1))
    return pa.Array.from_buffers(pa.binary(), count, [nulls, offsets, body.slice(bytes_at)])


def headers_of(frame: Frame, body: pa.Buffer) -> pa.Array:
    """The headers column; a message without headers is null, as Kafka's source has it."""
    at, count = frame.layout, frame.head.count
    bounds = pa.Array.from_buffers(
        pa.int32(), count + 1, [None, body.slice(at.header_offsets, 4 * (count + 1))]
    )
    entries = bounds[count].as_py()
    names = pa.Array.from_buffers(
        pa.string(),
        entries,
        [None, body.slice(at.header_name_offsets, 4 * (entries + 1)), body.slice(at.header_names)],
    )
    values = _binary(body, entries, at.header_value_offsets, at.header_values, None)
    has_some = pc.less(bounds[:-1], bounds[1:])
    nulls = pa.array(has_some.to_pylist()).buffers()[1] if pc.any(pc.invert(has_some)).as_py() else None
    kind = schema().field("headers").type
    entry = pa.StructArray.from_arrays([names, values], fields=[kind.key_field, kind.item_field])
    return pa.Array.from_buffers(kind, count, [nulls, bounds.buffers()[1]], children=[entry])


@cache
def _time_type() -> pa.DataType:
    return schema().field("timestamp").type


def _times(body: pa.Buffer, count: int, at: int) -> pa.Array:
    return pa.Array.from_buffers(_time_type(), count, [None, body.slice(at, 8 * count)])


def _one_time(moment: int, count: int) -> pa.Array:
    buffer = pa.py_buffer(_TIME.pack(moment) * count)
    return pa.Array.from_buffers(_time_type(), count, [None, buffer])


def _constant(value: str | int, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)


@lru_cache(maxsize=8)
def _ramp(block: int) -> pa.Array:
    """The offsets of one block of 65,536."""
    if block == 0:
        return pa.array(range(_RAMP), pa.int64())
    return pc.add(_ramp(0), block * _RAMP)


def counting(first: int, count: int) -> pa.Array:
    """Return the numbers from `first` on, `count` of them."""
    block, at = divmod(first, _RAMP)
    if at + count <= _RAMP:
        return _ramp(block).slice(at, count)
    return pa.array(range(first, first + count), pa.int64())
