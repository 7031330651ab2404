"""Frames as Arrow record batches: keys, values and times point into the frame, nothing is copied."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cache, lru_cache
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc

from penstock import codecs
from penstock.arrow import Names, schema
from penstock.log.frame import RAW, Frame, ProducerStamp
from penstock.log.frame_columns import Buffer, measure, pack_offsets, progression
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
#: Columns up to this length that say the same of every row are kept as they are.
_SHORT = 8192
_TIME = Struct("<q")
_CODES = {pa.int16(): "h", pa.int32(): "i", pa.int64(): "q"}
_KINDS = {code: kind for kind, code in _CODES.items()}


def from_frame(
    topic: str, partition: int, frame: Frame, first: int, stop: int, names: Names = None
) -> pa.RecordBatch:
    """Messages `first` to `stop` of a frame, in the columns of `penstock.arrow.schema` or in those named."""
    made = _Columns(topic, partition, frame, first, stop)
    chosen = schema(names)
    return pa.RecordBatch.from_arrays([getattr(made, name)() for name in chosen.names], schema=chosen)


def from_frames(
    topic: str, partition: int, parts: Sequence[tuple[Frame, int, int]], names: Names = None
) -> pa.RecordBatch:
    """Messages of several frames of a partition as one record batch: of each frame, from a place to another.

    Strings are copied once, column by column; what says the same of all rows is not copied at all.
    """
    made = _Joined(topic, partition, [_Columns(topic, partition, *part) for part in parts])
    chosen = schema(names)
    return pa.RecordBatch.from_arrays([made.column(name) for name in chosen.names], schema=chosen)


class _Columns:
    """A method for each column, called like it; only those that are asked for cost anything."""

    __slots__ = ("_first", "_flags", "_frame", "_same", "_stop", "_where", "count", "first", "head")

    def __init__(self, topic: str, partition: int, frame: Frame, first: int, stop: int) -> None:
        self._where = topic, partition
        self._frame, self.head, self._flags = frame, frame.head, frame.head.flags
        self._first, self._stop, self.count = first, stop, stop - first
        #: The offset of the first message.
        self.first = frame.head.base + first
        self._same = _unvarying(topic, partition, codecs.name_of(frame.head.codec), self.count)

    @property
    def _body(self) -> pa.Buffer:
        return pa.py_buffer(self._frame.body)

    def topic(self) -> pa.Array:
        return self._same.topic

    def partition(self) -> pa.Array:
        return self._same.partition

    def offset(self) -> pa.Array:
        return counting(self.first, self.count)

    def key(self) -> pa.Array:
        if not self._flags & KEYS:
            return self._same.key
        at = self._frame.layout
        return self._cut(
            binary_column(
                self._body, self.head.count, at.key_offsets, at.keys,
                at.key_nulls if self._flags & KEY_NULLS else None,
            )
        )  # fmt: skip

    def value(self) -> pa.Array:
        if self._flags & CODECS or self.head.codec != RAW:
            return decoded_values(self._frame, self._first, self._stop, *self._where)
        at = self._frame.layout
        return self._cut(
            binary_column(
                self._body, self.head.count, at.value_offsets, at.values,
                at.value_nulls if self._flags & VALUE_NULLS else None,
            )
        )  # fmt: skip

    def headers(self) -> pa.Array:
        return self._cut(headers_of(self._frame, self._body)) if self._flags & HEADERS else self._same.headers

    def timestamp(self) -> pa.Array:
        return _times(pa.py_buffer(self.times("timestamp")))

    def written_at(self) -> pa.Array:
        return _times(pa.py_buffer(self.times("written_at")))

    def times(self, name: str) -> Buffer:
        """The column of times of this name as bytes: as they lie in the frame, or one for all."""
        if name == "timestamp":
            flag, moment = TIMES, self.head.created
        else:
            flag, moment = WRITTEN, self.head.written_at
        if not self._flags & flag:
            return _TIME.pack(moment) * self.count
        layout = self._frame.layout
        at = (layout.times if flag == TIMES else layout.written) + 8 * self._first
        return self._frame.body[at : at + 8 * self.count]

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
        return column if self.count == self.head.count else column[self._first : self._stop]


#: Flags of a frame without which a column says the same of all its rows.
_VARIES_WITH = {
    "topic": 0, "partition": 0, "key": KEYS, "headers": HEADERS, "producer_id": PRODUCER | PRODUCERS,
    "group": PRODUCER | PRODUCERS, "seqno": PRODUCER | PRODUCERS, "codec": CODECS,
}  # fmt: skip


class _Joined:
    """The columns of several frames as one each."""

    __slots__ = ("_count", "_flags", "_parts", "_same")

    def __init__(self, topic: str, partition: int, parts: Sequence[_Columns]) -> None:
        self._parts, self._flags = parts, 0
        first = parts[0].head
        for part in parts:
            self._flags |= part.head.flags if part.head.codec == first.codec else part.head.flags | CODECS
        self._count = sum(part.count for part in parts)
        self._same = _unvarying(topic, partition, codecs.name_of(first.codec), self._count)

    @property
    def _is_unbroken(self) -> bool:
        """Whether no offset is missing between the frames; they are in order."""
        last = self._parts[-1]
        return last.first + last.count - self._parts[0].first == self._count

    def column(self, name: str) -> pa.Array:
        if name in _VARIES_WITH and not self._flags & _VARIES_WITH[name]:
            return getattr(self._same, name)
        if name == "offset" and self._is_unbroken:
            return counting(self._parts[0].first, self._count)
        if name in ("timestamp", "written_at"):
            return _times(self._in_one([part.times(name) for part in self._parts]))
        return pa.concat_arrays([getattr(part, name)() for part in self._parts])

    def _in_one(self, parts: Sequence[Buffer]) -> pa.Buffer:
        """All parts in memory of Arrow's, which keeps it for the next batch; what Python joins goes back."""
        whole = pa.allocate_buffer(sum(map(len, parts)))
        view, at = memoryview(whole).cast("B"), 0
        for part in parts:
            view[at : at + len(part)] = part
            at += len(part)
        return whole


def decoded_values(frame: Frame, first: int, stop: int, topic: str, partition: int) -> pa.Array:
    """Values of a frame whose messages are packed, unpacked; raises for the first that cannot be."""
    stored = zip(frame.values(first, stop), frame.codec_numbers(first, stop), strict=True)
    values = [
        value
        if value is None or number == RAW
        else codecs.decoded(number, value, topic=topic, partition=partition, offset=offset)
        for offset, (value, number) in enumerate(stored, frame.head.base + first)
    ]
    return strings_column(values)


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


def _unvarying(topic: str, partition: int, codec: str, count: int) -> _Unvarying:
    """Frames of a topic mostly have the same few lengths, so these are made once and used again."""
    if count <= _SHORT:
        return _short_unvarying(topic, partition, codec, count)
    room = 1 << (count - 1).bit_length()
    return _Unvarying._make(
        column.slice(0, count) for column in _long_unvarying(topic, partition, codec, room)
    )


def _made_unvarying(topic: str, partition: int, codec: str, count: int) -> _Unvarying:
    return _Unvarying(
        constant_column(topic, pa.string(), count),
        constant_column(partition, pa.int32(), count),
        pa.nulls(count, pa.binary()),
        pa.nulls(count, schema().field("headers").type),
        pa.nulls(count, pa.string()),
        pa.nulls(count, pa.string()),
        pa.nulls(count, pa.int64()),
        constant_column(codec, pa.string(), count),
    )


_short_unvarying = lru_cache(maxsize=128)(_made_unvarying)
#: Few, since they are large: of any length they are slices of the next power of two.
_long_unvarying = lru_cache(maxsize=8)(_made_unvarying)


def from_messages(messages: Sequence[Message], names: Names = None) -> pa.RecordBatch:
    """Messages that are Python objects already."""
    from penstock.message import value_bytes

    first = messages[0]
    count = len(messages)
    is_wanted = names is None or "value" in names  # else it may have to be unpacked for nothing
    columns = [
        constant_column(first.topic, pa.string(), count),
        constant_column(first.partition, pa.int32(), count),
        numbers_column(array("q", [m.offset for m in messages])),
        strings_column([m.key for m in messages]),
        strings_column([value_bytes(m) if is_wanted else None for m in messages]),
        _header_maps(messages),
        _times(pa.py_buffer(array("q", [m.timestamp for m in messages]))),
        _times(pa.py_buffer(array("q", [m.written_at for m in messages]))),
        _texts([m.producer_id for m in messages]),
        _texts([m.group for m in messages]),
        _maybe_numbers([m.seqno for m in messages]),
        _texts([m.codec for m in messages]),
    ]
    whole = pa.RecordBatch.from_arrays(columns, schema=schema())
    return whole if names is None else whole.select(list(names))


def strings_column(column: Sequence[bytes | None], kind: pa.DataType | None = None) -> pa.Array:
    """A column of bytes, or of text as bytes, of which some may be None; there is one at least."""
    kind = kind or pa.binary()
    if column[0] is None and column.count(None) == len(column):
        return pa.nulls(len(column), kind)
    try:
        there = cast(Sequence[bytes], column)
        offsets = pack_offsets(len(there), measure(there))
    except TypeError:  # some are None: the one case in which Arrow is quicker
        return pa.array(column, kind)
    return pa.Array.from_buffers(
        kind, len(there), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(there))]
    )


def _texts(texts: Sequence[str | None]) -> pa.Array:
    return strings_column([None if text is None else text.encode() for text in texts], pa.string())


def _maybe_numbers(numbers: Sequence[int | None]) -> pa.Array:
    return (
        pa.array(numbers, pa.int64())
        if any(number is not None for number in numbers)
        else pa.nulls(len(numbers), pa.int64())
    )


def _header_maps(messages: Sequence[Message]) -> pa.Array:
    kind = schema().field("headers").type
    if not any(m.headers for m in messages):
        return pa.nulls(len(messages), kind)
    headers = [
        [(name, value.encode() if isinstance(value, str) else value) for name, value in m.headers.items()]
        if m.headers
        else None
        for m in messages
    ]
    return pa.array(headers, kind)


def binary_column(
    body: pa.Buffer, count: int, offsets_at: int, bytes_at: int, nulls_at: int | None
) -> pa.Array:
    """A column of strings of a frame's body, which it points into; `nulls_at` is None where none is null."""
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
    values = binary_column(body, entries, at.header_value_offsets, at.header_values, None)
    has_some = pc.less(bounds[:-1], bounds[1:])
    nulls = pa.array(has_some.to_pylist()).buffers()[1] if pc.any(pc.invert(has_some)).as_py() else None
    kind = schema().field("headers").type
    entry = pa.StructArray.from_arrays([names, values], fields=[kind.key_field, kind.item_field])
    return pa.Array.from_buffers(kind, count, [nulls, bounds.buffers()[1]], children=[entry])


@cache
def _time_type() -> pa.DataType:
    return schema().field("timestamp").type


def _times(column: pa.Buffer) -> pa.Array:
    return pa.Array.from_buffers(_time_type(), column.size // 8, [None, column])


def constant_column(value: str | int, kind: pa.DataType, count: int) -> pa.Array:
    """A column that says the same of every row.

    `pa.scalar` and `pa.array` would load pandas where it is installed, which takes longer than a first look
    at a topic.
    """
    if isinstance(value, int):
        return numbers_column(array(_CODES[kind], [value]) * count)
    text = value.encode()
    offsets = pa.py_buffer(progression(count, len(text)))
    return pa.Array.from_buffers(kind, count, [None, offsets, pa.py_buffer(text * count)])


@lru_cache(maxsize=8)
def _ramp(block: int) -> pa.Array:
    """The offsets of one block of 65,536."""
    if block == 0:
        return numbers_column(array("q", range(_RAMP)))
    return pc.add(_ramp(0), numbers_column(array("q", [block * _RAMP]))[0])


def numbers_column(column: array[int]) -> pa.Array:
    """A column of whole numbers of 16, 32 or 64 bits, their memory as it is."""
    return pa.Array.from_buffers(_KINDS[column.typecode], len(column), [None, pa.py_buffer(column)])


def counting(first: int, count: int) -> pa.Array:
    """Return the numbers from `first` on, `count` of them."""
    block, at = divmod(first, _RAMP)
    if at + count <= _RAMP:
        return _ramp(block).slice(at, count)
    stop = first + count
    blocks = range(block, -(-stop // _RAMP))
    whole = pa.concat_arrays([_ramp(each) for each in blocks])
    return whole.slice(at, count)
