"""Aggregates made beside the data: tasks reduce what they read with Arrow, and Spark adds up what is left.

    from penstock.spark import aggregate

    aggregate(spark, "data", "orders", {"orders": "count", "sum": "sum(amount)"}, by=["country"],
              fields="country string, amount double", window="1h").show()

A row that passes from Python to Spark costs more than reading and adding it up, so only partial results pass:
one row for each group of each task.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING, Any

from penstock.errors import InvalidOption
from penstock.parse import Duration, one_of, seconds, topic_name
from penstock.spark.aggregation_tasks import (
    FUNCTIONS,
    SIZE,
    WINDOW,
    Measure,
    Reduction,
    partial_columns,
    reduced,
)
from penstock.spark.archive_files import AUTO, find_past
from penstock.spark.executors import rows_of
from penstock.spark.read_topic import session_zone
from penstock.spark.source.filter_parse import Comparison, moment, understood
from penstock.spark.source.filters import FilterBounds, bounds, to_text
from penstock.spark.source.options import parse, store_path
from penstock.spark.source.plan import Slice
from penstock.spark.source.schema import ALL
from penstock.spark.source.survey import STORE_HINT, opened_store, planned_tasks
from penstock.spark.user_session import cores

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession


_MICROSECONDS = 1_000_000
_TIMES = ("timestamp", "written_at")


def aggregate(
    spark: SparkSession, store: str | os.PathLike[str], topic: str, measures: Mapping[str, str], *,
    by: Sequence[str] = (), window: Duration | None = None, time: str = "timestamp", where: str | None = None,
    fields: str | None = None, archive: str | os.PathLike[str] | None = AUTO, **options: str,
) -> DataFrame:  # fmt: skip
    """A small DataFrame: one row for each group, with the `measures` of its messages.

    `measures` are "count", "sum(…)", "min(…)", "max(…)" or "mean(…)" of a column, of `size` (the bytes of key
    and value), or of one of `fields`: the fields of values that are JSON ("country string, amount double").
    `by` are columns or fields; with `window` there is `window_start` besides, by the column `time`. `where`
    is comparisons with constants joined by AND, such as "partition = 3 AND country = 'de'". `options` are
    those of a batch read. Archive and log are one, as in `read`.

    Raises `InvalidOption` for a measure, column or condition that is not understood.
    """
    one_of("time", time, ("timestamp", "written_at"))
    place, found = store_path(os.fspath(store)), _fields(spark, fields)
    conditions = _conditions(spark, where, found)
    named = [_measure(name, text) for name, text in measures.items()]
    if not named:
        raise InvalidOption("no measures", hint='{"orders": "count"}')
    length = None if window is None else round(seconds("window", window) * _MICROSECONDS)
    if length == 0:
        raise InvalidOption(f"window={window!r} is no time at all", hint='write it like "1m"')
    work = Reduction(tuple(named), tuple(by), length, time, conditions, found)
    _check(work)
    limits = bounds(conditions, session_zone(spark))
    tasks = _tasks(place, topic_name(topic), archive, limits, options, cores(spark))
    return _summed(_partials(spark, tasks, work), work)


def _tasks(
    store: str, topic: str, archive: str | os.PathLike[str] | None, limits: FilterBounds,
    options: Mapping[str, str], running: int,
) -> list[tuple[Slice, ...]]:  # fmt: skip
    """What each task reads."""
    given: dict[str, str] = {"path": store, "topic": topic, **options}
    if not limits.is_everything:
        given["bounds"] = to_text(limits)
    if running:
        given["cores"] = str(running)
    if archive is None or "history" in given:
        return planned_tasks(parse(given))
    with opened_store(store, STORE_HINT) as opened:
        past = find_past(opened, opened.topic(topic).open_topic, os.fspath(archive), limits)
        given |= {} if past is None else {"history": past.table}
        return planned_tasks(parse(given), opened)


def _partials(spark: SparkSession, planned: Sequence[tuple[Slice, ...]], work: Reduction) -> DataFrame:
    """One row for each group of each slice."""

    def partials(slices: tuple[Slice, ...]) -> Iterator[pa.RecordBatch]:
        return (batch for each in slices for batch in reduced(each, work).to_batches())

    kinds = ", ".join(f"`{name}` {kind}" for name, kind in partial_columns(work))
    return rows_of(spark, partials, planned, kinds)


def _summed(partials: DataFrame, work: Reduction) -> DataFrame:
    """The partial results put together by Spark."""
    from pyspark.sql import functions as F

    found: list[Column] = []
    for each in work.measures:
        if each.function == "mean":
            total, count = (F.sum(f"`{name}`") for name in each.parts)
            found.append((total / count).alias(each.name))
        else:
            put = {"count": F.sum, "sum": F.sum, "min": F.min, "max": F.max}[each.function]
            found.append(put(f"`{each.parts[0]}`").alias(each.name))
    return partials.groupBy(*work.groups).agg(*found)


def _measure(name: str, text: str) -> Measure:
    function, opened, rest = text.strip().partition("(")
    column = rest.removesuffix(")").strip()
    if function == "count" and (not opened or column in ("", "*")):
        return Measure(name, "count", None)
    if function not in FUNCTIONS or not rest.endswith(")") or not column:
        raise InvalidOption(
            f"measure {name!r} is {text!r}", hint="count, sum(…), min(…), max(…) or mean(…) of a column"
        )
    return Measure(name, function, column)


def _conditions(spark: SparkSession, where: str | None, fields: Sequence[Any]) -> tuple[Comparison, ...]:
    if where is None:
        return ()
    zone = session_zone(spark)
    found = understood(where, zone)
    times = {*_TIMES, *(each.name for each in fields if "timestamp" in str(each.type))}
    known = [_timed(each, zone) if each.column in times else each for each in found.comparisons]
    if not found.is_whole or None in known:
        raise InvalidOption(
            f"where {where!r} is more than comparisons with constants joined by AND",
            hint="read(…, where=…) and Spark's own groupBy take any condition"
            + ("; times must say their zone, as in '2026-03-01 12:00:00Z'" if zone is None else ""),
        )
    return tuple(each for each in known if each is not None)


def _timed(given: Comparison, zone: tzinfo | None) -> Comparison | None:
    """A comparison with times that were written as text, which are of the session's zone as in SQL."""
    values = given.value if given.operator == "in" else (given.value,)
    known = [moment(each, zone) if isinstance(each, str) else each for each in values]
    if None in known:
        return None
    return given._replace(value=tuple(known) if given.operator == "in" else known[0])


def _fields(spark: SparkSession, fields: str | None) -> tuple[Any, ...]:
    if fields is None:
        return ()
    from penstock.spark.pipelines.archive_schema import parsed

    return tuple(parsed(fields))


def _check(work: Reduction) -> None:
    known = {*ALL, SIZE, *(each.name for each in work.fields)} - {"topic", "headers"}
    asked = [*work.by, *(each.column for each in work.measures), *(each.column for each in work.conditions)]
    for name in asked:
        if name is not None and name not in known:
            raise InvalidOption(f"there is no column {name!r}", hint=f"columns: {', '.join(sorted(known))}")
    names = [*work.groups, *(each.name for each in work.measures)]
    if len(set(names)) < len(names) or (work.window is not None and WINDOW in work.by):
        raise InvalidOption(f"a column is named twice in {', '.join(names)}")
