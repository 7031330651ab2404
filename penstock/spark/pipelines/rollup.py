"""Rollup: counts, bytes, rates and percentiles of a topic by window of time and by group.

    rollup(store, "orders", "orders.per-minute", window="1m", by="get_json_object(text, '$.country')")
    rollup(store, "orders", window="1h", table="tables/orders-hourly", plot="orders.png", once=True)

Into a topic it is a stream: a window is written once, as JSON, when `late` has passed behind its end; rows
that come later still are counted and said. Into a table or a picture it is a batch over all there is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import InvalidOption
from penstock.parse import Duration, one_of, seconds, whole
from penstock.spark.aggregation import aggregate
from penstock.spark.pipelines import rollup_output
from penstock.spark.pipelines.engine import started
from penstock.spark.pipelines.expressions import (
    TIMES,
    Late,
    Time,
    check_expression,
    columns_for,
    interval,
    no_messages,
    topic_stream,
    with_text,
)
from penstock.spark.pipelines.rollup_output import Mode, check_plot, draw
from penstock.spark.source.filter_parse import Understood, understood
from penstock.store import PipelineRun, Store
from penstock.store.pipelines import Watch, claim, unwatched
from penstock.store.replay import identity_of, two_topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_GROUP = "group"
#: Columns that Arrow compares with a constant as Spark does.
_COMPARED = ("partition", "offset")


@dataclass(frozen=True)
class Measures:
    """What is measured of which messages, over which windows."""

    window: Duration
    #: The group of a message: "key", or an SQL expression; None: all are one group.
    by: str | None = None
    #: Which messages count; None: all.
    where: str | None = None
    #: A number of each message whose percentiles are taken; None: none are.
    value: str | None = None
    time: Time = "timestamp"

    def __post_init__(self) -> None:
        interval("window", self.window)
        one_of("time", self.time, TIMES)

    @property
    def is_plain(self) -> bool:
        """Whether tasks can measure it with Arrow: groups by key, comparisons of columns, no percentiles."""
        found = understood(self.where) if self.where is not None else Understood((), True)
        values = [each.value if each.operator == "in" else (each.value,) for each in found.comparisons]
        is_known = found.is_whole and all(each.column in _COMPARED for each in found.comparisons)
        is_known &= all(type(value) is int for each in values for value in each)
        return self.by in (None, "key") and self.value is None and is_known

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that must be read."""
        return columns_for((self.time, "key", "value"), (self.by, self.where, self.value))


@dataclass(frozen=True)
class RolledUp:
    """What a run of `rollup` did."""

    source: str
    sink: str | None
    read: int
    #: Messages that came after their window was written: not counted in it.
    late: int
    table: str | None
    #: Rows that went into the table.
    table_rows: int
    plot: str | None


def rollup(
    store: Store, source: str, sink: str | None = None, *, window: Duration, by: str | None = None,
    where: str | None = None, value: str | None = None, time: Time = "timestamp", late: Duration = "1m",
    table: str | None = None, mode: Mode = "overwrite", plot: str | None = None, top: int = 8,
    once: bool = False, trigger: Duration | None = None, name: str | None = None,
    spark: SparkSession | None = None, master: str | None = None, watch: Watch = unwatched,
) -> RolledUp:  # fmt: skip
    """Measure `source` by window and group, into a topic, a Delta table or a picture of the `top` groups.

    Expressions see a message's columns, and its value as `text`. A table or a picture is made `once`, of all
    that is there; mode "append" adds the windows behind those of the table that have ended. A topic gets each
    window once, `late` after its end, for as long as this runs, or with `once` those that have ended by now.
    """
    measures = Measures(window, by, where, value, time)
    delay = interval("late", late) if seconds("late", late) else "0 microseconds"
    every = None if trigger is None else interval("trigger", trigger)
    whole("top", top, 1, 50)
    _check_targets(sink, table, plot, once=once)
    if table is not None:
        rollup_output.check(table, mode)
    identity = _identity(store, source, sink, measures, delay)
    called = name or f"rollup-{source}"
    running = started(spark, master, is_stream=sink is not None)
    measured(no_messages(running, measures.columns), measures)  # a wrong expression is said before all else
    options = {"table": table, "plot": plot, "once": once}
    with claim(
        store, called, kind="rollup", identity=identity, consumer=None if sink is None else called,
        options={key: given for key, given in options.items() if given is not None},
    ) as run, watch(run):  # fmt: skip
        work = _Rollup(store, source, run, measures, running)
        late_rows = 0 if sink is None else work.into_topic(sink, delay, once=once, trigger=every)
        rows = 0
        if (table or plot) and not run.stopping:
            rows = work.into_files(table, mode, plot, top)
        return RolledUp(source, sink, run.facts.rows, late_rows, table, rows, plot)


class _Rollup:
    """One run."""

    def __init__(
        self, store: Store, source: str, run: PipelineRun, measures: Measures, spark: SparkSession
    ) -> None:
        self._store, self._source, self._run = store, source, run
        self._measures, self._spark = measures, spark

    def into_topic(self, sink: str, delay: str, *, once: bool, trigger: str | None) -> int:
        """Stream windows that have ended into a topic; return how many rows came too late."""
        from penstock.spark.stream_run import run_stream

        measures = self._measures
        messages = topic_stream(self._spark, self._store, self._source, measures.columns, self._run.name)
        late = Late(self._run.name)
        rolled = measured(messages.withWatermark(measures.time, delay), measures)
        writer = rolled.writeStream.format("penstock").outputMode("append")
        options = {"topic": sink, "keyColumn": _GROUP, "path": self._store.path}
        run_stream(self._run, writer.options(**options), once=once, trigger=trigger, on_batch=late.on_batch)
        return late.rows

    def into_files(self, table: str | None, mode: Mode, plot: str | None, top: int) -> int:
        """Measure all there is, into a table and a picture; return how many rows the table got."""
        from penstock.spark.stream_run import failed

        measures = self._measures
        rolled = self._measured_all().orderBy("window_start", _GROUP)
        try:
            found = rolled.toArrow()
        except Exception as error:  # Spark's own, or what a task raised inside of it
            raise failed(self._run.name, error) from error
        if not self._run.facts.rows:
            import pyarrow.compute as pc

            self._run.report(rows=pc.sum(found["count"]).as_py() or 0)
        if plot is not None:
            draw(found, plot, title=f"{self._source} by {measures.by or 'time'}", top=top)
        return (
            0 if table is None else rollup_output.write(table, found, mode, now_ns=self._store.clock.now_ns())
        )

    def _measured_all(self) -> DataFrame:
        """All there is, measured beside the data if it is plain enough, else by Spark."""
        measures = self._measures
        if measures.is_plain:
            rows = aggregate(
                self._spark, self._store.path, self._source, {"count": "count", "bytes": "sum(size)"},
                by=() if measures.by is None else (measures.by,), window=measures.window, time=measures.time,
                where=measures.where, archive=None,
            )  # fmt: skip
            return _with_rates(rows, measures)
        reader = self._spark.read.format("penstock").option("topic", self._source)
        messages = reader.option("columns", ",".join(measures.columns)).load(self._store.path)
        return measured(messages, measures)


def _with_rates(rows: DataFrame, measures: Measures) -> DataFrame:
    """What was measured beside the data, in the columns of `measured`."""
    from pyspark.sql import functions as F

    length_s = seconds("window", measures.window)
    end = F.expr(f"window_start + INTERVAL {round(length_s * 1_000_000)} MICROSECONDS")
    group = F.lit(None).cast("string") if measures.by is None else F.col(measures.by).cast("string")
    return rows.select(
        "window_start", end.alias("window_end"), group.alias(_GROUP), "count", "bytes",
        (F.col("count") / length_s).alias("count_per_second"),
        (F.col("bytes") / length_s).alias("bytes_per_second"),
    )  # fmt: skip


def measured(messages: DataFrame, measures: Measures) -> DataFrame:
    """A row for each window and group; raises `InvalidOption` for a wrong expression."""
    from pyspark.sql import functions as F

    known = with_text(messages)
    if measures.where is not None:
        check_expression(known, "where", measures.where, is_condition=True)
        known = known.where(measures.where)
    for option, text in (("by", measures.by), ("value", measures.value)):
        if text is not None:
            check_expression(known, option, text)
    length_s = seconds("window", measures.window)
    group = F.lit(None) if measures.by is None else F.expr(measures.by)
    size = F.expr("coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0)")
    found: list[Any] = [F.count("*").alias("count"), F.sum(size).alias("bytes")]
    if measures.value is not None:
        number = F.expr(measures.value).try_cast("double")
        found.append(F.percentile_approx(number, list(PERCENTILES.values())).alias("percentiles"))
    span = F.window(measures.time, interval("window", measures.window))
    rolled = known.groupBy(span.alias("span"), group.cast("string").alias(_GROUP)).agg(*found)
    columns = [
        F.col("span.start").alias("window_start"), F.col("span.end").alias("window_end"), F.col(_GROUP),
        F.col("count"), F.col("bytes"), (F.col("count") / length_s).alias("count_per_second"),
        (F.col("bytes") / length_s).alias("bytes_per_second"),
    ]  # fmt: skip
    if measures.value is not None:
        columns += [F.col("percentiles")[place].alias(name) for place, name in enumerate(PERCENTILES)]
    return rolled.select(*columns)


def _check_targets(sink: str | None, table: str | None, plot: str | None, *, once: bool) -> None:
    if sink is None and table is None and plot is None:
        raise InvalidOption("where to?", hint="name a sink topic, a table or a plot")
    if (table is not None or plot is not None) and not once:
        raise InvalidOption("a table and a plot are made of what is there now", hint="add once=True (--once)")
    if plot is not None:
        check_plot(plot)


def _identity(store: Store, source: str, sink: str | None, measures: Measures, delay: str) -> dict[str, Any]:
    if sink is None:
        topics: dict[str, Any] = {"source": store.topic(source).name}
    else:
        topics = {**identity_of(*two_topics(store, source, sink)), "late": delay}
    asked = {
        "window": interval("window", measures.window), "by": measures.by, "where": measures.where,
        "value": measures.value, "time": measures.time,
    }  # fmt: skip
    return topics | {key: given for key, given in asked.items() if given is not None}
