"""A topic as DuckDB scans it: only the columns, partitions, offsets, times and keys that a query asks for.

DuckDB asks a dataset of pyarrow's for a scanner, with the columns it needs and the filters it found. What of
the topic can be left out is worked out (`pushdown`), the rest is read as Arrow and filtered by Arrow.

Texts are texts: bytes of a key or a value that are not UTF-8 are escaped (\\xff). `key_bytes` and
`value_bytes` have them as they are. Where the topic ended is fixed when the table is made.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from penstock.errors import OffsetTrimmed
from penstock.keys import match
from penstock.log.log import Log
from penstock.log.rows import MessageRows
from penstock.log.segment import read_head
from penstock.log.timestamp_runs import timestamp_runs
from penstock.message import Rows
from penstock.sql.pushdown import Narrowed, columns_of, narrowed
from penstock.topic.open_topic import OpenTopic
from penstock.topic.scan import BATCH_BYTES, BATCH_MESSAGES, rows_between

_TIME = pa.timestamp("us", tz="UTC")


class ScanPlan(NamedTuple):
    """What one scan of a query reads of a topic."""

    topic: str
    columns: tuple[str, ...]
    #: Of each partition the first offset and the offset behind the last.
    ranges: dict[int, tuple[int, int]]
    #: Only messages of these keys; None is all.
    keys: tuple[str, ...] | None
    #: How many messages lie there, without those that are left out by their timestamps.
    messages: int


@cache
def table_schema() -> pa.Schema:
    """The columns of every topic's table; those of its values come on top (`value_columns`)."""
    return pa.schema(
        [
            pa.field("partition", pa.int32()),
            pa.field("offset", pa.int64()),
            pa.field("key", pa.string()),
            pa.field("value", pa.string()),
            pa.field("headers", pa.map_(pa.string(), pa.binary())),
            pa.field("timestamp", _TIME),
            pa.field("written_at", _TIME),
            pa.field("producer_id", pa.string()),
            pa.field("group", pa.string()),
            pa.field("seqno", pa.int64()),
            pa.field("codec", pa.string()),
            pa.field("key_bytes", pa.binary()),
            pa.field("value_bytes", pa.binary()),
        ]
    )


class TopicTable(ds.Dataset):  # type: ignore[misc]
    """One topic up to its present end, as a dataset that DuckDB can scan any number of times."""

    def __init__(self, topic: OpenTopic, planned: Callable[[ScanPlan], None]) -> None:
        topic.refresh()
        self._topic = topic
        self._planned = planned
        self._ends = {log.partition: log.bounds().end for log in topic.logs()}
        self._reading = threading.Lock()
        self._is_closed = False
        #: What went wrong while a query read: DuckDB only hands on its text.
        self.failure: Exception | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return table_schema()

    def scanner(self, columns: Sequence[str] | None = None, filter: Any = None, **others: Any) -> ds.Scanner:
        """What DuckDB reads: rows that pass the filter, with these columns."""
        schema = table_schema()
        looked_at = [] if filter is None else columns_of(filter, schema)
        wanted = set(schema.names if columns is None else columns) | set(looked_at)
        read = pa.schema([each for each in schema if each.name in wanted])
        batches = self._until_closed(self._batches(read, filter))
        return ds.Scanner.from_batches(batches, schema=read, columns=columns, filter=filter)

    def close(self) -> None:
        """End all scans, and wait for what is being read.

        Arrow reads ahead in threads of its own, further than a query with a LIMIT needs; one that is still in
        Python's code when the interpreter ends takes the whole process down.
        """
        with self._reading:
            self._is_closed = True

    def _until_closed(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        while True:
            with self._reading:
                batch = None if self._is_closed else next(batches, None)
            if batch is None:
                return
            yield batch

    def _batches(self, schema: pa.Schema, filter: Any) -> Iterator[pa.RecordBatch]:
        try:
            parts = narrowed(filter, table_schema(), list(self._ends))
            keys = _shared_keys(parts.values()) if self._topic.options.index == "key" else None
            runs = {number: self._runs(number, part) for number, part in parts.items()}
            ranges = {number: (found[0][0], found[-1][1]) for number, found in runs.items()}
            count = sum(stop - first for found in runs.values() for first, stop in found)
            self._planned(ScanPlan(self._topic.name, tuple(schema.names), ranges, keys, count))
            stored = tuple(dict.fromkeys(_stored(name) for name in schema.names))
            for number, found in runs.items():
                for rows in self._rows(self._topic.log(number), found, keys):
                    if _may_pass(rows, parts[number].stamped):
                        yield _as_table(rows.record_batch(stored), schema)
        except Exception as error:
            self.failure = error
            raise

    def _runs(self, number: int, part: Narrowed) -> list[tuple[int, int]]:
        """Runs of offsets that may hold what passes; one at least, if only an empty one."""
        first, stop = self._range(number, part)
        found = list(timestamp_runs(self._topic.log(number).segments, first, stop, *part.stamped))
        return found or [(first, first)]

    def _range(self, number: int, part: Narrowed) -> tuple[int, int]:
        """The offsets that may hold what passes."""
        log, end = self._topic.log(number), self._ends[number]
        first, stop = log.bounds().start, end
        if part.offsets[0] is not None:
            first = max(first, part.offsets[0])
        if part.offsets[1] is not None:
            stop = min(stop, part.offsets[1])
        if part.written[0] is not None and first < stop:
            first = max(first, log.offset_at(part.written[0]))
        if part.written[1] is not None and first < stop:
            stop = min(stop, _end_before(log, part.written[1], end))
        return first, max(first, stop)

    def _rows(
        self, log: Log, runs: Sequence[tuple[int, int]], keys: tuple[str, ...] | None
    ) -> Iterator[Rows]:
        for first, stop in runs:
            if keys is None:
                yield from _read(log, first, stop)
            elif keys:
                for some in rows_between(log, match(keys), first, stop, stop - first):
                    yield MessageRows([message for each in some for message in each.messages()])


def _read(log: Log, first: int, stop: int) -> Iterator[Rows]:
    cursor = log.cursor(first, far=True)
    while cursor.offset < stop:
        try:
            rows = cursor.read(BATCH_MESSAGES, BATCH_BYTES, stop)
        except OffsetTrimmed as error:  # retention was quicker: as if the query had come a little later
            cursor.offset = error.first
            continue
        if not rows:
            return
        yield from rows


def _end_before(log: Log, written_at: int, end: int) -> int:
    """An offset behind all messages written before that moment; a clock may have been set back since."""
    found = log.offset_at(written_at)
    bounds = log.bounds()
    for base in log.segments.bases_from(found, bounds)[1:]:
        head = read_head(log.folder, base)
        if head is None or head.created < written_at:
            return end
    return found


def _shared_keys(parts: Any) -> tuple[str, ...] | None:
    """The keys of all partitions together; None when one of them may have others, or one is escaped."""
    found: dict[str, None] = {}
    for part in parts:
        if part.keys is None or any("\\" in key or not key for key in part.keys):
            return None
        found.update(dict.fromkeys(part.keys))
    return tuple(found)


def _may_pass(rows: Rows, stamped: tuple[int | None, int | None]) -> bool:
    """Whether some timestamps of a run may pass: a cheaper look than making the other columns."""
    least, above = stamped
    if least is None and above is None:
        return True
    times = pc.min_max(rows.record_batch(("timestamp",)).column(0).cast(pa.int64()))
    first, last = times["min"].as_py(), times["max"].as_py()
    return (least is None or last >= least) and (above is None or first < above)


def _stored(name: str) -> str:
    """The column of a scan that a column of the table is made of."""
    return name.removesuffix("_bytes") if name in ("key_bytes", "value_bytes") else name


def _as_table(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A scan's batch in the columns of the table."""
    made = []
    for each in schema:
        column = batch.column(_stored(each.name))
        if each.name in ("key", "value"):
            column = _text(column)
        elif each.type == _TIME:
            column = column.cast(_TIME, safe=False)
        made.append(column)
    return pa.RecordBatch.from_arrays(made, schema=schema)


def _text(column: pa.Array) -> pa.Array:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:  # some of it is not UTF-8
        texts = [
            None if each is None else each.decode(errors="backslashreplace") for each in column.to_pylist()
        ]
        return pa.array(texts, pa.string())
