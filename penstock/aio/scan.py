"""The async scan: batches on demand, each read in a thread."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.aio.twin import Threads, awaited, mirrored
from penstock.message import Batch, Message, V
from penstock.topic import scan

if TYPE_CHECKING:
    import pyarrow


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

    @property
    def ranges(self) -> list[tuple[int, int, int]]:
        """(partition, first offset, offset behind the last) of what this scan goes over."""
        return self.blocking.ranges

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

    async def _each(self, blocking: Iterator[T]) -> AsyncIterator[T]:
        while (item := await self.threads.run(next, blocking, None)) is not None:
            yield item
