"""A stream over topics: Spark's questions handed on to `StreamQuery`.

Spark makes one of these in a process of its own on the driver, which plans and remembers, and others on
executors, which only read. So nothing is opened before it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from penstock.spark.advice import advise
from penstock.spark.options import ReadOptions
from penstock.spark.source import read_slice

if TYPE_CHECKING:
    import pyarrow

    from penstock.spark.query import StreamQuery


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream: planned in one process on the driver, carried out on executors."""

    def __init__(self, asked: ReadOptions, columns: Mapping[str, bool]) -> None:
        self._asked = asked
        self._columns = columns
        self._query: StreamQuery | None = None

    def initialOffset(self) -> dict[str, Any]:
        return self._planner().initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._asked.max_rows is not None:
            return ReadMaxRows(self._asked.max_rows)
        if self._asked.max_bytes is not None:
            return ReadMaxBytes(self._asked.max_bytes)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        rows, size = self._limits(limit)
        return self._planner().latest(start, rows, size)

    def reportLatestOffset(self) -> dict[str, Any]:
        return self._planner().newest()

    def prepareForTriggerAvailableNow(self) -> None:
        self._planner().freeze()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [InputPartition(planned) for planned in self._planner().planned(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        return read_slice(partition, self._columns, self._asked)

    def commit(self, end: dict[str, Any]) -> None:
        self._planner().done(end)

    def stop(self) -> None:
        if self._query is not None:
            self._query.close()
            self._query = None

    def _planner(self) -> StreamQuery:
        if self._query is None:
            from penstock.spark.query import StreamQuery

            advise()
            self._query = StreamQuery(self._asked)
        return self._query

    def _limits(self, limit: ReadLimit) -> tuple[int | None, int | None]:
        """Most rows and bytes; Spark knows one limit at a time, the options may name both."""
        if isinstance(limit, ReadAllAvailable):
            return None, None
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self._asked.max_rows
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._asked.max_bytes
        return rows, size
