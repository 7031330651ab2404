"""The streaming query of a user's pipeline: topics and tables read, its function applied, its sink checked.

Tables that it reads beside its topics are files that Spark knows, and Delta tables, which need no jar. A
table is read when a run begins. What is added to it later is seen by the next run.
"""

from __future__ import annotations

import inspect
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import InvalidOption, MissingExtra, WrongType
from penstock.spark.sink.rows import GIVEN_BY_THE_LOG, Column, shape
from penstock.spark.source.schema import ALL, TYPES
from penstock.spark.user.definition import Definition, blamed
from penstock.spark.user.query_plan import QueryPlan, plan
from penstock.spark.write_topic import batch_writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


#: A query that needs no column, such as a count, still needs rows; this one is the cheapest.
_CHEAPEST = ("offset",)

#: The function of a pipeline with its tables and parameters filled in: only the sources are left.
Transform = partial[Any]


class Query(NamedTuple):
    """A pipeline's query, ready to be started."""

    frame: DataFrame
    plan: QueryPlan


def build(spark: SparkSession, definition: Definition, transform: Transform, *, store: str) -> Query:
    """The rows for the sink, and what Spark's plan says of them.

    The function is called twice: with all columns, to see which it needs, and with those. Others are
    null in the second call and were not used in the first, so nobody can tell.
    """
    first = _result(spark, definition, transform, store, {})
    found = plan(first, store)
    _check_sources(definition, found)
    if all(len(columns) == len(ALL) for columns in found.columns.values()):
        return Query(first, found)
    return Query(_result(spark, definition, transform, store, found.columns), found)


def applied(definition: Definition, transform: Transform, streams: Sequence[DataFrame]) -> DataFrame:
    """What the function makes of the streams; raises when that is no streaming DataFrame."""
    from pyspark.sql import DataFrame

    with blamed(f"pipeline {definition.name!r}", inspect.getsourcefile(transform.func) or ""):
        result = transform(*streams)
    if not isinstance(result, DataFrame):
        raise WrongType(
            f"pipeline {definition.name!r} returned {type(result).__name__}, not a DataFrame",
            hint="return the transformed DataFrame; Penstock starts the query",
        )
    if not result.isStreaming:
        raise InvalidOption(
            f"pipeline {definition.name!r} returned a DataFrame that does not stream",
            hint="build the result on the sources that the function is given",
        )
    return result


def stream(
    spark: SparkSession, definition: Definition, topic: str, *, store: str, consumer: str | None,
    columns: Sequence[str] = (),
) -> DataFrame:  # fmt: skip
    """A topic with all its columns; if some are named, the others are null and are not read."""
    from pyspark.sql.functions import col, lit

    reader = spark.readStream.format("penstock").option("topic", topic).options(**definition.starting)
    for name, value in (
        ("consumer", consumer), ("maxOffsetsPerTrigger", definition.max_rows),
        ("maxBytesPerTrigger", definition.max_bytes),
        ("important", None if consumer is None else definition.important),
    ):  # fmt: skip
        if value is not None:
            reader = reader.option(name, value)
    frame = reader.option("columns", ",".join(columns) or "*").load(store)
    if not columns:
        return frame
    return frame.select(*(col(n) if n in columns else lit(None).cast(TYPES[n]).alias(n) for n in ALL))


def writer(
    query: Query, definition: Definition, *, store: str, app: str, checkpoint: str
) -> DataStreamWriter:
    """The query with its sink; `app` is the writer's name, by which what comes again is recognized."""
    options = {"txnAppId": app, "checkpointLocation": checkpoint}
    if definition.sink is not None:
        options["topic"] = definition.sink
    if definition.key is not None:
        options["keyColumn"] = definition.key
    if definition.output == "append":
        return query.frame.writeStream.format("penstock").options(**options).option("path", store)
    return query.frame.writeStream.outputMode("update").foreachBatch(batch_writer(store, options))


def _result(
    spark: SparkSession, definition: Definition, transform: Transform, store: str,
    columns: Mapping[str, Sequence[str]],
) -> DataFrame:  # fmt: skip
    seen: set[str] = set()
    streams = []
    for topic in definition.sources:
        consumer = None if topic in seen else definition.consumer  # a topic's consumer has one place
        seen.add(topic)
        wanted = (columns[topic] or _CHEAPEST) if columns else ()
        streams.append(stream(spark, definition, topic, store=store, consumer=consumer, columns=wanted))
    return _for_sink(applied(definition, transform, streams), definition)


def _for_sink(frame: DataFrame, definition: Definition) -> DataFrame:
    """The columns that the sink takes; those that it would leave out need not be read either."""
    columns = [Column(field.name, field.dataType.simpleString()) for field in frame.schema.fields]
    shape(columns, topic_given=definition.sink is not None, key_column=definition.key)
    names = {each.name.lower(): each.name for each in columns}
    if "value" in names:
        frame = frame.drop(*(names[name] for name in GIVEN_BY_THE_LOG if name in names))
        if definition.sink is not None and "topic" in names:
            frame = frame.drop(names["topic"])
    return frame if definition.sink is not None else _loops_refused(frame, names["topic"], definition)


def _loops_refused(frame: DataFrame, column: str, definition: Definition) -> DataFrame:
    """Fail the query, before anything of a batch is written, for a row to a topic that is read."""
    from pyspark.sql.functions import col, concat, lit, raise_error, when

    told = concat(
        lit(f"pipeline {definition.name!r} has a row for "), col(column),
        lit(", which it reads: it would never come to an end"),
    )  # fmt: skip
    loops = col(column).isin(*definition.sources)
    return frame.withColumn(column, when(loops, raise_error(told)).otherwise(col(column)))


def _check_sources(definition: Definition, found: QueryPlan) -> None:
    """Check that every source is read once for each time it is named: each has a place in the checkpoint."""
    asked, read = Counter(definition.sources), Counter(found.sources)
    for topic, times in asked.items():
        if not read[topic]:
            raise InvalidOption(
                f"pipeline {definition.name!r} does not use its source {topic!r}",
                hint="leave it out, or make the result depend on it",
            )
        if read[topic] > times:
            raise InvalidOption(
                f"pipeline {definition.name!r} reads {topic!r} {read[topic]} times, as with a join of it "
                "with itself",
                hint=f"name it so often: source={[topic] * read[topic]}, one argument each",
            )


_SPARKS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
_OPTIONS = {"csv": {"header": "true", "inferSchema": "true"}}
_DELTA_LOG = "_delta_log"
_HINT = "a .parquet, .csv or .json file (or a folder of them named so), or the folder of a Delta table"


def located(path: str, beside: str | None) -> str:
    """A path as it was given, or, if it is relative, from the folder of the file that names it."""
    if beside is None or os.path.isabs(path) or "://" in path:
        return path
    return os.path.join(os.path.dirname(os.path.abspath(beside)), path)


def check_table(name: str, path: str) -> None:
    """Raise `InvalidOption` when there is no such table, as far as that can be told without Spark."""
    if "://" in path:
        return
    if not os.path.exists(path):
        raise InvalidOption(f"table {name!r} is not there: {path}", hint=_HINT)
    if not _is_delta(path):
        _format(name, path)


def read_table(spark: SparkSession, name: str, path: str) -> DataFrame:
    """The table as a DataFrame."""
    if _is_delta(path):
        with blamed(f"reading table {name!r}", path):
            return _delta(spark, path)
    kind = _format(name, path)
    with blamed(f"reading table {name!r}", path):
        return spark.read.format(kind).options(**_OPTIONS.get(kind, {})).load(path)


def _is_delta(path: str) -> bool:
    return os.path.isdir(os.path.join(path, _DELTA_LOG))


def _delta(spark: SparkSession, path: str) -> DataFrame:
    try:
        from deltalake import DeltaTable
    except ImportError:
        raise MissingExtra("deltalake", "arrow") from None
    return spark.createDataFrame(DeltaTable(path).to_pyarrow_table())


def _format(name: str, path: str) -> str:
    stem, suffix = os.path.splitext(path.rstrip("/"))
    if suffix in (".gz", ".bz2", ".zst"):
        suffix = os.path.splitext(stem)[1]
    try:
        return _SPARKS[suffix.lower()]
    except KeyError:
        raise InvalidOption(f"table {name!r} is of no kind that is known: {path}", hint=_HINT) from None
