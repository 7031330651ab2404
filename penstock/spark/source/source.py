"""Spark's classes for reading topics: batch reads, views, and streams handed on to `StreamQuery`.

Spark makes one of these in a process of its own on the driver, which plans and remembers, and others on
executors, which only read. So nothing is opened before it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.errors import InvalidOption, PenstockError
from penstock.spark.executors import hush_broken_pipes, settle_in
from penstock.spark.session import advise
from penstock.spark.source.options import (
    ReadOptions,
    parse,
    refuse_for_batch,
    refuse_for_stream,
    refuse_reference,
)
from penstock.spark.source.schema import check_types, ddl
from penstock.spark.source.table_options import (
    for_table_write,
    is_table_write,
    kept,
    of_table,
    with_kept,
    with_metadata,
)

if TYPE_CHECKING:
    import pyarrow

    from penstock.spark.source.query import StreamQuery


hush_broken_pipes()


class DefaultSource(DataSource):
    """Reads topics; found by Spark without being registered.

        spark.read.format("penstock").option("topic", "orders").load("data")
        spark.readStream.format("penstock").option("subscribe", "orders,payments").load("data")

    `load` takes the store's folder; docs/spark.md lists the options. Columns: topic, partition, offset,
    timestamp (the producer's), key, value; with `columns="*"` also headers, written_at, producer_id,
    group, seqno, codec. `.schema("offset bigint, value binary")` chooses too.

    A DataFrame is a snapshot: "latest" is fixed when its first query is planned. Load again to see more.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        settle_in()

    @classmethod
    def name(cls) -> str:
        """What `format(…)` calls it."""
        return "penstock"

    def schema(self) -> str | StructType:
        """The columns of the topics, or of a view of them; a table's keep its options."""
        from penstock.spark.source.survey import check_topics
        from penstock.spark.source.views import view_ddl

        table = of_table(self.options)
        asked = parse(self.options if table is None else table)
        check_topics(asked)
        columns = ddl(asked.columns) if asked.view is None else view_ddl(asked.view)
        if table is None:
            return columns
        return with_metadata(columns, kept({**table, "path": asked.store}))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read of these columns."""
        asked = parse(self._options(schema))
        refuse_for_batch(asked)
        if asked.view is not None:
            return BodiesReader(asked) if asked.view == "payloads" else ViewReader(asked)
        return TopicReader(asked, chosen_columns(schema, asked))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream of these columns."""
        try:
            asked = parse(self._options(schema))
            refuse_for_stream(asked)
            return TopicStreamReader(asked, chosen_columns(schema, asked))
        except PenstockError as error:
            return RefusedStreamReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write."""
        from penstock.spark.sink.sink import TopicWriter, planned

        settle_in()
        options = dict(self.options)
        into_table = is_table_write(options)
        if into_table:
            options = for_table_write(options, [(each.name, each.metadata or {}) for each in schema.fields])
        return TopicWriter(
            planned(options, schema, overwrite=overwrite, streaming=False, into_table=into_table)
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A streaming write."""
        from penstock.spark.sink.sink import TopicStreamWriter, planned

        settle_in()
        return TopicStreamWriter(planned(self.options, schema, overwrite=overwrite, streaming=True))

    def _options(self, schema: StructType) -> dict[str, str]:
        return with_kept(self.options, [each.metadata or {} for each in schema.fields])


class TopicReader(DataSourceReader):
    """A batch read: planned on the driver, carried out on executors."""

    def __init__(self, asked: ReadOptions, columns: Mapping[str, bool]) -> None:
        self._asked = asked
        #: Names, in order, and whether Spark was told that they may be null.
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        """What each task reads."""
        from penstock.spark.source.survey import planned_tasks

        settle_in()
        advise()
        return [InputPartition(each) for each in planned_tasks(self._asked)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """The rows of one task."""
        return _rows_of_task(partition, self._columns, self._asked)


class ViewReader(DataSourceReader):
    """A view: all of it is collected on the driver, which alone opens `state.db`."""

    def __init__(self, asked: ReadOptions) -> None:
        self._asked = asked

    def partitions(self) -> Sequence[InputPartition]:
        """All rows, for one task."""
        from penstock.spark.source.views import view_rows

        return [InputPartition(view_rows(self._asked))]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The rows that were collected."""
        return iter(partition.value or ())


class BodiesReader(DataSourceReader):
    """The view `payloads`: the driver says what is to be listed, tasks list it."""

    def __init__(self, asked: ReadOptions) -> None:
        self._asked = asked

    def partitions(self) -> Sequence[InputPartition]:
        """What each task lists."""
        from penstock.spark.source.views import listings

        return [InputPartition(each) for each in listings(self._asked)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The bodies that one task lists."""
        from penstock.spark.source.views import listed

        return iter(()) if partition.value is None else listed(partition.value)


def _rows_of_task(
    partition: InputPartition, columns: Mapping[str, bool], asked: ReadOptions
) -> Iterator[pyarrow.RecordBatch]:
    """What a task yields; runs on an executor."""
    from penstock.spark.source.batches import read_slices

    settle_in()
    # None is Spark's way of saying that there is nothing to read.
    return iter(()) if partition.value is None else read_slices(partition.value, columns, asked)


def chosen_columns(given: StructType, asked: ReadOptions) -> dict[str, bool]:
    """The columns of a schema, which may be the user's own, and whether each may be null.

    Raises `InvalidOption` for one that is not the topic's or not what the options say.
    """
    names = check_types(
        [(field.name, field.dataType.simpleString(), field.nullable) for field in given.fields]
    )
    refuse_reference(names, is_archived=asked.history is not None)
    if asked.columns_given and names != asked.columns:
        raise InvalidOption(
            f"the schema has {', '.join(names)}, but the options ask for {', '.join(asked.columns)}",
            hint="choose columns by .schema(…) or by options, not by both",
        )
    return {field.name: field.nullable for field in given.fields}


class RefusedStreamReader(DataSourceStreamReader):
    """A stream that cannot be: says why when Spark asks where it begins.

    Said any earlier, PySpark would bury it under an `UnboundLocalError` of its own.
    """

    def __init__(self, error: PenstockError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:
        """Say why, to a query without a checkpoint."""
        raise self._error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Say why, to a query that goes on from a checkpoint."""
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Say why, to a query that repeats a batch."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Say why, to a task."""
        raise self._error


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream: planned in one process on the driver, carried out on executors."""

    def __init__(self, asked: ReadOptions, columns: Mapping[str, bool]) -> None:
        self._asked = asked
        self._columns = columns
        self._query: StreamQuery | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins."""
        return self._planner().initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit that the options name for a batch."""
        if self._asked.max_rows is not None:
            return ReadMaxRows(self._asked.max_rows)
        if self._asked.max_bytes is not None:
            return ReadMaxBytes(self._asked.max_bytes)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """How far the next batch goes."""
        rows, size = self._limits(limit)
        return self._planner().latest(start, rows, size)

    def reportLatestOffset(self) -> dict[str, Any]:
        """The end of everything, for progress reports."""
        return self._planner().newest()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of a run that reads what is there."""
        self._planner().freeze()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """What each task of a batch reads."""
        from penstock.spark.source.plan import bundled

        planned = self._planner().planned(start, end)
        return [InputPartition(each) for each in bundled(planned, self._asked.min_partitions)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """The rows of one task."""
        return _rows_of_task(partition, self._columns, self._asked)

    def commit(self, end: dict[str, Any]) -> None:
        """Everything before `end` was processed."""
        self._planner().done(end)

    def stop(self) -> None:
        """Close the store."""
        if self._query is not None:
            self._query.close()
            self._query = None

    def _planner(self) -> StreamQuery:
        if self._query is None:
            from penstock.spark.source.query import StreamQuery

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
