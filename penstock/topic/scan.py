"""A lazy pass over a topic: batches on demand, in constant memory, to Python or to Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic

from penstock import arrow
from penstock.keys import Match
from penstock.log.log import Log
from penstock.log.rows import MessageRows
from penstock.message import Batch, Message, Rows, V
from penstock.options import Place, spot
from penstock.topic.keyed import rows_between
from penstock.topic.partitions import Partitions
from penstock.topic.past import BATCH_BYTES, BATCH_MESSAGES, Past

if TYPE_CHECKING:
    import pyarrow


class Scan(Generic[V]):
    """Messages from one place to another; where "latest" was is fixed when the scan is made.

    Iterate it for batches, `messages()` for messages, or hand it to anything that takes an Arrow
    stream: `duckdb.sql("select count(*) from scan")`, `polars.DataFrame(scan)`. It can be iterated
    again and gives the same messages, as long as retention leaves them, or they are in the archive that
    is the topic's `past`.
    """

    def __init__(
        self, partitions: Partitions, partition: int | None, start: Place, stop: Place,
        columns: Sequence[str] | None = None, decode: Callable[[bytes], Any] | None = None,
        asked: Match | None = None, past: Past | None = None,
    ) -> None:  # fmt: skip
        self._decode = decode
        self._asked = asked
        self._names = None if columns is None else tuple(columns)
        if self._names is not None:
            arrow.schema(self._names)  # a wrong name is said now
        partitions.refresh()  # others may have added some
        now = partitions.clock.now_ns()
        chosen = range(len(partitions)) if partition is None else (partition,)
        self._partitions = partitions
        self._past = past
        resolve = Log.resolve if past is None else past.resolve
        self._ranges: list[tuple[int, int, int]] = []
        for number in chosen:
            log = partitions.log(number)
            first = partitions.begin(number, start, now, resolve)
            last = resolve(log, spot(stop, number, now))
            self._ranges.append((number, first, min(last, log.bounds().end)))

    @property
    def ranges(self) -> list[tuple[int, int, int]]:
        """(partition, first offset, offset behind the last) of what this scan goes over."""
        return list(self._ranges)

    def __iter__(self) -> Iterator[Batch[V]]:
        """Batches of neighbouring messages, partition after partition."""
        for rows in self._rows(None):
            yield Batch(self._partitions.name, rows, self._decode)

    def messages(self) -> Iterator[Message[V]]:
        for batch in self:
            yield from batch

    def record_batches(self) -> Iterator[pyarrow.RecordBatch]:
        """Arrow record batches, pointing into the mapped files where they can."""
        names = arrow.schema(self._names).names
        for neighbours in self._rows(tuple(names)):
            if self._asked is not None:  # messages that do not lie together: one table, not one for each
                neighbours = [MessageRows(list(chain.from_iterable(each.messages() for each in neighbours)))]
            for rows in neighbours:
                yield rows.record_batch(self._names)

    def to_arrow(self) -> pyarrow.Table:
        """Everything as one Arrow table."""
        pa = arrow.require_pyarrow()
        return pa.Table.from_batches(self.record_batches(), schema=arrow.schema(self._names))

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return arrow.stream(self.record_batches(), requested_schema, self._names)

    def _rows(self, names: arrow.Names) -> Iterator[Sequence[Rows]]:
        """Runs of messages; of those from a table only these columns, or everything."""
        for number, first, stop in self._ranges:
            log = self._partitions.log(number)
            if self._past is not None:
                yield from self._past.rows(log, first, stop, names)
                continue
            if self._asked is not None:
                yield from rows_between(log, self._asked, first, stop, stop - first)
                continue
            cursor = log.cursor(first, far=True)
            while rows := cursor.read(BATCH_MESSAGES, BATCH_BYTES, stop):
                yield rows

    def __repr__(self) -> str:
        count = sum(max(stop - first, 0) for _, first, stop in self._ranges)
        return f"<Scan {self._partitions.name}: {count} messages in {len(self._ranges)} partitions>"
