"""The async scan and the rows of SQL: batches on demand, each read in a thread."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.aio.twin import Threads, awaited, forwarded, mirrored
from penstock.message import Batch, Message, V
from penstock.sql import session
from penstock.sql.definition import Defined
from penstock.topic import scan

if TYPE_CHECKING:
    import duckdb
    import pyarrow

    from penstock.sql.topic_table import ScanPlan

T = TypeVar("T")


class Scan(Generic[V]):
    """Messages from one place to another; where "latest" was is fixed when the scan is made.

    Iterate it for batches, `messages()` for messages. As an Arrow stream it reads in the thread that
    pulls: give it to DuckDB or Polars in a thread, or await `to_arrow`.
    """

    def __init__(self, blocking: scan.Scan[V], threads: Threads) -> None:
        #: The scan for code that may block.
        self.blocking = blocking
        self.threads = threads

    ranges = forwarded[list[tuple[int, int, int]]](scan.Scan.ranges)

    def __aiter__(self) -> AsyncIterator[Batch[V]]:
        """Batches of neighbouring messages, partition after partition."""
        return self._each(iter(self.blocking))

    @mirrored(scan.Scan.messages)
    async def messages(self) -> AsyncIterator[Message[V]]:
        async for batch in self:
            for message in batch:
                yield message

    @mirrored(scan.Scan.record_batches)
    def record_batches(self) -> AsyncIterator[pyarrow.RecordBatch]:
        return self._each(self.blocking.record_batches())

    to_arrow = awaited(scan.Scan[V].to_arrow)
    to_pandas = awaited(scan.Scan[V].to_pandas)
    to_polars = awaited(scan.Scan[V].to_polars)
    to_duckdb = awaited(scan.Scan[V].to_duckdb)

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return self.blocking.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return repr(self.blocking)

    def _each(self, blocking: Iterator[T]) -> AsyncIterator[T]:
        return _each(self.threads, blocking)


class SqlResult:
    """What a statement gives: rows, when it is a query; of another the `defined` topic, or nothing."""

    def __init__(self, blocking: session.SqlResult, threads: Threads) -> None:
        #: The rows for code that may block.
        self.blocking = blocking
        self.threads = threads

    @property
    def defined(self) -> Defined | None:
        """What a statement about a topic did."""
        return self.blocking.defined

    has_rows = forwarded[bool](session.SqlResult.has_rows)
    columns = forwarded[list[str]](session.SqlResult.columns)

    @property
    @mirrored(session.SqlResult.scans)
    def scans(self) -> list[ScanPlan]:
        return self.blocking.scans

    @property
    @mirrored(session.SqlResult.relation)
    def relation(self) -> duckdb.DuckDBPyRelation:
        return self.blocking.relation

    to_arrow = awaited(session.SqlResult.to_arrow)
    to_pandas = awaited(session.SqlResult.to_pandas)
    to_polars = awaited(session.SqlResult.to_polars)

    @mirrored(session.SqlResult.batches)
    def batches(self) -> AsyncIterator[pyarrow.RecordBatch]:
        return _each(self.threads, self.blocking.batches())

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return self.blocking.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return repr(self.blocking)


async def _each(threads: Threads, blocking: Iterator[T]) -> AsyncIterator[T]:
    while (item := await threads.run(next, blocking, None)) is not None:
        yield item
