"""What pipelines that are streams share: their messages, users' expressions over them, and late rows."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from penstock.errors import InvalidOption
from penstock.parse import Duration, seconds
from penstock.spark.source.schema import ALL, TYPES, ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.store import Store


logger = logging.getLogger("penstock.spark")

#: Which of a message's two times counts: the log's, which hardly ever goes back, or the producer's own.
Time = Literal["written_at", "timestamp"]
TIMES = ("written_at", "timestamp")
#: A column for expressions: the value as text.
TEXT = "text"


def columns_for(always: Iterable[str], expressions: Iterable[str | None]) -> tuple[str, ...]:
    """The columns of a topic that are needed: these, and all whose names stand in an expression.

    Spark asks a source that is written in Python for all columns it has, so they are chosen here.
    """
    text = " ".join(each for each in expressions if each is not None)
    words = {word.lower() for word in re.findall(r"\w+", text)}
    words |= {"value"} if TEXT in words else set()
    if "*" in text:
        words |= set(ALL)
    wanted = {*always, *words}
    return tuple(name for name in TYPES if name in wanted)


def topic_stream(
    spark: SparkSession, store: Store, topic: str, columns: Iterable[str], consumer: str, *,
    important: bool | None = None,
) -> DataFrame:  # fmt: skip
    """All of a topic, from its beginning, as a stream that shows its progress as a consumer."""
    options = {"topic": topic, "columns": ",".join(columns), "consumer": consumer}
    if important is not None:
        options["important"] = str(important).lower()
    return spark.readStream.format("penstock").options(**options).load(store.path)


def no_messages(spark: SparkSession, columns: Iterable[str]) -> DataFrame:
    """An empty DataFrame with these columns, to check expressions over them."""
    return spark.createDataFrame([], ddl(tuple(columns)))


def with_text(messages: DataFrame) -> DataFrame:
    """Add a column with the value as text."""
    from pyspark.sql import functions as F

    return messages.withColumn(TEXT, F.expr("string(value)")) if "value" in messages.columns else messages


def check_expression(messages: DataFrame, option: str, text: str, *, is_condition: bool = False) -> None:
    """Raise `InvalidOption` with what Spark says, unless it is an SQL expression over the messages."""
    from pyspark.errors import PySparkException

    try:
        with _quiet():
            if is_condition:
                messages.where(text)
            else:
                messages.selectExpr(text)
    except PySparkException as error:
        said = str(error).strip().partition("\n")[0]
        raise InvalidOption(
            f"{option} {text!r} is no SQL expression here: {said}",
            hint=f"columns: {', '.join(messages.columns)}; quote text with single quotes",
        ) from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep PySpark from printing Java's whole stack for an expression that it does not understand."""
    printing = logging.getLogger("SQLQueryContextLogger")
    before, printing.disabled = printing.disabled, True
    try:
        yield
    finally:
        printing.disabled = before


def interval(name: str, value: Duration) -> str:
    """A duration above zero as Spark spells it."""
    found = seconds(name, value)
    if not found:
        raise InvalidOption(f"{name}={value!r} is no time at all", hint='write it like "30s" or "10m"')
    return f"{round(found * 1_000_000)} microseconds"


class Late:
    """Counts the messages that a stream left out, since they came after their time was closed."""

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self.rows = 0
        #: Rows that Spark's state took in: groups that changed, or first ones of their kind.
        self.kept = 0

    def on_batch(self, report: Any) -> None:
        """Count the rows that came too late for their window, and log them."""
        for operator in report["stateOperators"]:
            self.kept += operator["numRowsUpdated"]
            late = operator["numRowsDroppedByWatermark"]
            if late:
                logger.warning("%s: left out, since they came too late: %s", self._pipeline, f"{late:,}")
            self.rows += late
