"""`format("penstock")`: topics as Spark tables.

Spark imports this in its driver and on every executor, and looks it up for any source it does not know:
so it imports nothing heavy until it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.errors import InvalidOption
from penstock.spark.options import ReadOptions, parse
from penstock.spark.schema import check_types, ddl

if TYPE_CHECKING:
    import pyarrow


class DefaultSource(DataSource):
    """Reads a topic; found by Spark without being registered.

        spark.read.format("penstock").option("topic", "orders").load("data")

    `load` takes the store's folder. Options:

    topic             the topic to read; required
    startingOffsets   earliest (default), latest, or JSON per partition: {"orders": {"0": 12}}
    endingOffsets     latest (default), earliest, or JSON per partition; the offset behind the last
    includeHeaders    true adds the column headers
    columns           "*" for every column, or a list: "offset,value"; fewer columns read faster

    Columns: topic, partition, offset, timestamp (the producer's), key, value; with "*" also headers,
    written_at, producer_id, group, seqno, codec. `.schema("offset bigint, value binary")` chooses too.

    A DataFrame is a snapshot: "latest" is fixed when its first query is planned. Load again to see more.
    """

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> str:
        from penstock.spark.survey import check_topic

        asked = parse(self.options)
        check_topic(asked)
        return ddl(asked.columns)

    def reader(self, schema: StructType) -> TopicReader:
        asked = parse(self.options)
        _check_columns(schema, asked)
        return TopicReader(asked, {field.name: field.nullable for field in schema.fields})


class TopicReader(DataSourceReader):
    """A batch read: planned on the driver, carried out on executors."""

    def __init__(self, asked: ReadOptions, columns: Mapping[str, bool]) -> None:
        self._asked = asked
        #: Names, in order, and whether Spark was told that they may be null.
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        from penstock.spark.planning import divided
        from penstock.spark.survey import survey

        return [InputPartition(planned) for planned in divided(survey(self._asked))]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        from penstock.spark import batches

        if partition.value is None:  # Spark's way of saying that there is nothing to read
            return iter(())
        return batches.read(partition.value, self._columns)


def _check_columns(given: StructType, asked: ReadOptions) -> None:
    """Refuse a schema, which may be the user's own, that is not the topic's or not what the options say."""
    names = check_types(
        [(field.name, field.dataType.simpleString(), field.nullable) for field in given.fields]
    )
    if asked.columns_given and names != asked.columns:
        raise InvalidOption(
            f"the schema has {', '.join(names)}, but the options ask for {', '.join(asked.columns)}",
            hint="choose columns by .schema(…) or by options, not by both",
        )
