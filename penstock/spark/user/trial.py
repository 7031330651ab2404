"""A pipeline tried on a few rows: a real stream over a store that is gone afterwards.

So state, watermarks and joins of streams behave as they will later, and a row of an aggregate in append
mode comes when the watermark has passed it, not before.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import InvalidOption, WrongType
from penstock.spark.session import session
from penstock.spark.stream_run import failed
from penstock.spark.user.definition import Definition
from penstock.spark.user.query import applied, read_table, stream
from penstock.spark.user.query_plan import refuse_connect
from penstock.spark.user.run import settled
from penstock.store import Store, Topic, open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession


#: A dict with a `value` and nothing but these is a message; any other is a value, as JSON.
_MESSAGE = {"value", "key", "headers", "timestamp"}
#: Two rows in the two hundred parts of Spark's default would take a minute.
_PARTS = 2


def try_pipeline(
    definition: Definition, function: Callable[..., Any], parameters: Mapping[str, Any], *,
    rows: Mapping[str, Iterable[Any]], tables: Mapping[str, Any], spark: SparkSession | None,
) -> list[Row]:  # fmt: skip
    """What the function makes of these rows, batch after batch."""
    _check_topics(definition, rows)
    running = spark or session()
    refuse_connect(running)
    given = {name: _table(running, name, tables.get(name, path)) for name, path in definition.tables.items()}
    transform = partial(function, **given, **parameters)
    with tempfile.TemporaryDirectory(prefix="penstock-test-") as folder, settled(running, parts=_PARTS):
        with open_store(os.path.join(folder, "data")) as store:
            _fill(store, definition, rows)
            everything = replace(definition, starting={"startingOffsets": "earliest"})
            streams = [
                stream(running, everything, topic, store=store.path, consumer=None)
                for topic in definition.sources
            ]
            result = applied(definition, transform, streams)
            return _collected(result, definition, os.path.join(folder, "checkpoint"))


def _check_topics(definition: Definition, rows: Mapping[str, Iterable[Any]]) -> None:
    if not isinstance(rows, Mapping):
        raise WrongType(
            f"rows are given by topic, not as {type(rows).__name__}", hint='.test({"orders": [b"…"]})'
        )
    for topic in rows:
        if topic not in definition.sources:
            raise InvalidOption(
                f"pipeline {definition.name!r} does not read {topic!r}",
                hint=f"its sources: {', '.join(definition.sources)}",
            )


def _fill(store: Store, definition: Definition, rows: Mapping[str, Iterable[Any]]) -> None:
    for name in dict.fromkeys(definition.sources):
        topic = store.create_topic(name, sync="os")
        for row in rows.get(name, ()):
            _write(topic, row)


def _write(topic: Topic, row: Any) -> None:
    if isinstance(row, Mapping) and "value" in row and _MESSAGE.issuperset(row):
        topic.write(_value(row["value"]), **{name: row[name] for name in row if name != "value"})
    else:
        topic.write(_value(row))


def _value(value: Any) -> Any:
    return msgspec.json.encode(value) if isinstance(value, (Mapping, list)) else value


def _table(spark: SparkSession, name: str, given: Any) -> DataFrame:
    """A table by its path, as a list of dicts, or as it is."""
    if isinstance(given, str):
        return read_table(spark, name, given)
    if isinstance(given, list):
        return spark.createDataFrame(given)
    found: DataFrame = given
    return found


def _collected(result: DataFrame, definition: Definition, checkpoint: str) -> list[Row]:
    rows: list[Row] = []
    writer = (
        result.writeStream.foreachBatch(lambda batch, number: rows.extend(batch.collect()))
        .outputMode(definition.output)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
    )
    try:
        writer.start().awaitTermination()
    except Exception as error:  # Spark's own, with the user's inside of it
        raise failed(definition.name, error) from error
    return rows
