"""A slice as record batches of a size that suits Spark: small frames put together, large ones divided.

A batch costs Spark about as much as a few hundred rows, and one that is too large is held in memory
twice; between 4 and 16 thousand rows both are small.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock import codecs
from penstock.errors import DataError
from penstock.lake.cut import Stretch
from penstock.log import arrow_columns
from penstock.log.frame import RAW, ProducerStamp
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
from penstock.log.single_frame import Singles
from penstock.parse import MIB
from penstock.spark.source.bodies import STRUCT, Outside, may_refer
from penstock.spark.source.plan import Slice
from penstock.spark.source.schema import REFERENCE, TYPES
from penstock.spark.source.segments import FramePart, parts

if TYPE_CHECKING:
    from penstock.spark.source.options import ReadOptions

_TIME = pa.timestamp("us", tz="UTC")
_ARROW = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": _TIME,
    "binary": pa.binary(),
    "map<string,binary>": pa.map_(pa.string(), pa.binary()),
}


#: Not Spark's to see, for the lake: what is left of the times below their microseconds, and which
#: headers are text.
_FOR_LAKE = {
    "timestamp_nanos": pa.int16(),
    "written_at_nanos": pa.int16(),
    "headers_text": pa.list_(pa.bool_()),
}
_KINDS = {name: STRUCT if name == REFERENCE else _ARROW[kind] for name, kind in TYPES.items()} | _FOR_LAKE


def arrow_schema(columns: Mapping[str, bool]) -> pa.Schema:
    """What Spark expects a batch to look like; given are names and whether they may be null."""
    return pa.schema([pa.field(name, _KINDS[name], nullable) for name, nullable in columns.items()])


class SparkTable:
    """Makes record batches with the chosen columns of one partition."""

    def __init__(
        self, columns: Mapping[str, bool], *, topic: str, partition: int, outside: Outside | None = None
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._outside = outside or Outside()
        self._schema = arrow_schema(columns)

    def batch(self, part: FramePart | Singles, *, values: bool = True) -> pa.RecordBatch:
        """One record batch; keys and values of a frame point into its bytes.

        With `values=False` the values are null.
        """
        made: _Columns
        if isinstance(part, Singles):
            made = _OfSingles(self._topic, self._partition, part)
        else:
            made = _OfFrame(self._topic, self._partition, part, self._outside)
        arrays = [
            getattr(made, name)() if values or name != "value" else made._nulls(name)
            for name in self._schema.names
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    @property
    def archived_columns(self) -> list[str]:
        """The columns of an archive that `archived` needs."""
        return list(dict.fromkeys(("offset", *(name for name in self._schema.names if name != "topic"))))

    def archived(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Make a batch of messages of an archive, whose columns have the names and types of ours."""
        arrays = [
            _repeated(self._topic, pa.string(), batch.num_rows) if name == "topic" else batch.column(name)
            for name in self._schema.names
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Columns:
    """What all kinds have in common: a method for each column, called like it."""

    def __init__(self, topic: str, partition: int, offset: int, count: int) -> None:
        self._topic = topic
        self._partition = partition
        self._offset = offset
        self._count = count

    def topic(self) -> pa.Array:
        return _repeated(self._topic, pa.string(), self._count)

    def partition(self) -> pa.Array:
        return _repeated(self._partition, pa.int32(), self._count)

    def offset(self) -> pa.Array:
        return arrow_columns.counting(self._offset, self._count)

    def _nulls(self, name: str) -> pa.Array:
        return _repeated(None, _KINDS[name], self._count)


class _OfFrame(_Columns):
    """Columns of a part of a frame."""

    def __init__(self, topic: str, partition: int, part: FramePart, outside: Outside) -> None:
        self._part, self._outside = part, outside
        self._frame, first, stop = part
        self._head = self._frame.head
        self._flags = self._head.flags
        self._first, self._stop = first, stop
        super().__init__(topic, partition, self._head.base + first, stop - first)

    @cached_property
    def _body(self) -> pa.Buffer:
        return pa.py_buffer(self._frame.body)

    def timestamp(self) -> pa.Array:
        return self._time(TIMES, "times", self._head.created)

    def written_at(self) -> pa.Array:
        return self._time(WRITTEN, "written", self._head.written_at)

    def timestamp_nanos(self) -> pa.Array:
        return self._below(TIMES, "times", self._head.created)

    def written_at_nanos(self) -> pa.Array:
        return self._below(WRITTEN, "written", self._head.written_at)

    def key(self) -> pa.Array:
        if not self._flags & KEYS:
            return self._nulls("key")
        at = self._frame.layout
        return self._binary(at.key_offsets, at.keys, at.key_nulls if self._flags & KEY_NULLS else None)

    def value(self) -> pa.Array:
        if self._flags & CODECS or self._head.codec != RAW:
            return self._outside.values(self._part, self._topic, self._partition)
        at = self._frame.layout
        nulls_at = at.value_nulls if self._flags & VALUE_NULLS else None
        return self._binary(at.value_offsets, at.values, nulls_at)

    def headers(self) -> pa.Array:
        if not self._flags & HEADERS:
            return self._nulls("headers")
        return arrow_columns.headers_of(self._frame, self._body)[self._first : self._stop]

    def headers_text(self) -> pa.Array:
        if not self._flags & HEADERS:
            return self._nulls("headers_text")
        headers = arrow_columns.headers_of(self._frame, self._body)
        nulls, bounds = headers.buffers()[:2]
        bits = self._body.slice(self._frame.layout.header_is_text)
        is_text = pa.Array.from_buffers(pa.bool_(), len(headers.keys), [None, bits])
        kind = _KINDS["headers_text"]
        whole = pa.Array.from_buffers(kind, len(headers), [nulls, bounds], children=[is_text])
        return whole[self._first : self._stop]

    def producer_id(self) -> pa.Array:
        if not self._flags & (PRODUCER | PRODUCERS):
            return self._nulls("producer_id")
        return pa.array([(who.id or None) if who else None for who in self._producers], pa.string())

    def group(self) -> pa.Array:
        if not self._flags & (PRODUCER | PRODUCERS):
            return self._nulls("group")
        return pa.array([who.group if who else None for who in self._producers], pa.string())

    def seqno(self) -> pa.Array:
        if not self._flags & (PRODUCER | PRODUCERS):
            return self._nulls("seqno")
        return pa.array(self._frame.seqnos(self._first, self._stop), pa.int64())

    def codec(self) -> pa.Array:
        if self._flags & CODECS:
            return pa.array(self._frame.codecs(self._first, self._stop), pa.string())
        return _repeated(codecs.name_of(self._head.codec), pa.string(), self._count)

    def reference(self) -> pa.Array:
        return self._outside.column(self._part) if may_refer(self._head) else self._nulls(REFERENCE)

    @cached_property
    def _producers(self) -> Sequence[ProducerStamp | None]:
        return self._frame.producers(self._first, self._stop)

    def _binary(self, offsets_at: int, bytes_at: int, nulls_at: int | None) -> pa.Array:
        whole = arrow_columns.binary_column(self._body, self._head.count, offsets_at, bytes_at, nulls_at)
        return whole[self._first : self._stop]

    def _time(self, flag: int, column: str, same_for_all: int) -> pa.Array:
        if not self._flags & flag:
            same = pa.py_buffer((same_for_all // 1000).to_bytes(8, "little", signed=True) * self._count)
            return pa.Array.from_buffers(_TIME, self._count, [None, same])
        return floored(self._stored_times(column))

    def _below(self, flag: int, column: str, same_for_all: int) -> pa.Array:
        if not self._flags & flag:
            return _repeated(same_for_all % 1000, pa.int16(), self._count)
        return below(self._stored_times(column))

    def _stored_times(self, column: str) -> pa.Array:
        at = getattr(self._frame.layout, column) + 8 * self._first
        stored = self._body.slice(at, 8 * self._count)
        return pa.Array.from_buffers(pa.int64(), self._count, [None, stored])


class _OfSingles(_Columns):
    """Columns of messages that were frames of their own."""

    def __init__(self, topic: str, partition: int, singles: Singles) -> None:
        super().__init__(topic, partition, singles.first, len(singles))
        self._singles = singles

    def timestamp(self) -> pa.Array:
        return floored(_moments(self._singles.created))

    def written_at(self) -> pa.Array:
        return floored(_moments(self._singles.written))

    def timestamp_nanos(self) -> pa.Array:
        return below(_moments(self._singles.created))

    def written_at_nanos(self) -> pa.Array:
        return below(_moments(self._singles.written))

    def key(self) -> pa.Array:
        return arrow_columns.strings_column(self._singles.keys)

    def value(self) -> pa.Array:
        return arrow_columns.strings_column(self._singles.values)

    def headers(self) -> pa.Array:
        return self._nulls("headers")

    def headers_text(self) -> pa.Array:
        return self._nulls("headers_text")

    def producer_id(self) -> pa.Array:
        return self._nulls("producer_id")

    def group(self) -> pa.Array:
        return self._nulls("group")

    def seqno(self) -> pa.Array:
        return self._nulls("seqno")

    def codec(self) -> pa.Array:
        return _repeated(codecs.name_of(RAW), pa.string(), self._count)

    def reference(self) -> pa.Array:
        return self._nulls(REFERENCE)


@lru_cache(maxsize=128)
def _repeated(value: str | int | None, kind: pa.DataType, count: int) -> pa.Array:
    """Frames of a topic mostly have the same few lengths, so these are made once and used again."""
    return pa.nulls(count, kind) if value is None else arrow_columns.constant_column(value, kind, count)


def _moments(nanoseconds: Sequence[int]) -> pa.Array:
    return arrow_columns.numbers_column(array("q", nanoseconds))


#: Not a number of Python's, with which Arrow loads pandas where it is installed.
_THOUSAND = _moments([1000])[0]


def floored(nanoseconds: pa.Array) -> pa.Array:
    """Nanoseconds as microseconds, rounded towards the past."""
    microseconds = pc.divide(nanoseconds, _THOUSAND)  # towards zero
    if len(nanoseconds) and pc.min(nanoseconds).as_py() < 0:
        too_late = pc.greater(pc.multiply(microseconds, _THOUSAND), nanoseconds)
        microseconds = pc.subtract(microseconds, too_late.cast(pa.int64()))
    return microseconds.view(_TIME)


def below(nanoseconds: pa.Array) -> pa.Array:
    """The 0 to 999 nanoseconds between a time and its microsecond as `floored` gives it."""
    micros = floored(nanoseconds).view(pa.int64())
    return pc.subtract(nanoseconds, pc.multiply(micros, _THOUSAND)).cast(pa.int16())


logger = logging.getLogger("penstock.spark")

ROWS_LEAST = 4096
ROWS_MOST = 16384
#: A batch of large values is closed earlier.
_BYTES_ENOUGH = 8 * MIB


def read_slices(
    slices: Iterable[Slice], columns: Mapping[str, bool], asked: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """The chosen columns of some slices, one after the other, as the options of the read say."""
    null_undecodable, fetched = asked.on_decode_error == "null", asked.payload == "fetch"
    return chain.from_iterable(
        read(each, columns, null_undecodable=null_undecodable, fetched=fetched) for each in slices
    )


def read(
    planned: Slice, columns: Mapping[str, bool], *, null_undecodable: bool = False, fetched: bool = True,
    together: bool = True,
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    """The messages of a slice, in order, as record batches.

    `columns` are their names, in order, and whether the schema says that they may be null. A value that
    cannot be decoded raises, or is null. One that lies outside the log is fetched, or told by where it lies.
    With `together=False` frames become batches as they are, large or small, and no value is copied.
    """
    outside = Outside(planned.bodies, fetched=fetched and "value" in columns)
    table = SparkTable(columns, topic=planned.topic, partition=planned.partition, outside=outside)
    make = partial(_lenient, table) if null_undecodable else table.batch
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch, weight in _made(planned, table, outside, make):
        waiting.append(batch)
        rows += batch.num_rows
        size += weight
        if rows >= ROWS_LEAST or size >= _BYTES_ENOUGH or not together:
            yield from _divided(_together(waiting))
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _together(waiting)


def _made(
    planned: Slice, table: SparkTable, outside: Outside, make: Callable[[FramePart | Singles], pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Record batches as they come, from the log or from an archive, and about how many bytes they are."""
    for part in parts(planned):
        if isinstance(part, Stretch):
            yield from ((batch, batch.nbytes) for batch in _archived(planned, part, table))
        elif isinstance(part, FramePart):
            yield from ((make(portion), weight) for portion, weight in outside.portions(part))
        else:
            yield make(part), part.bytes


def _archived(planned: Slice, part: Stretch, table: SparkTable) -> Iterator[pa.RecordBatch]:
    """Messages that lie in a file of an archive."""
    from penstock.lake import parquet_files  # whoever reads no archive need not load it

    assert planned.table is not None
    rows = parquet_files.read(
        planned.table, part.file, start=part.base, stop=part.stop, columns=table.archived_columns
    )
    return map(table.archived, rows)


def _lenient(table: SparkTable, part: FramePart | Singles) -> pa.RecordBatch:
    """Make a batch with nulls for values that cannot be decoded; only frames that hold one are slower."""
    try:
        return table.batch(part)
    except DataError:
        if isinstance(part, Singles):
            raise
    made = []
    for at in range(part.first, part.stop):
        one = part._replace(first=at, stop=at + 1)
        try:
            made.append(table.batch(one))
        except DataError as error:
            logger.warning("a value is null, since it cannot be decoded: %s", error)
            made.append(table.batch(one, values=False))
    return pa.concat_batches(made)


def _together(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _divided(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for first in range(0, batch.num_rows, ROWS_MOST):
        yield batch.slice(first, ROWS_MOST)
