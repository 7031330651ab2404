"""Topics as DataFrames by one call, which plans what a condition and the chosen columns leave to be read.

    from penstock.spark import read

    late = read(spark, "data", "orders", where="offset >= 1000 AND partition = 3", columns=["value"])

A topic with an archive is read from both as one: what the table has by Spark itself, the rest from the log.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from datetime import tzinfo
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from penstock.errors import InvalidOption, NotAStore
from penstock.parse import topic_name
from penstock.spark.archive_files import AUTO, NativePast, find_past
from penstock.spark.executors import rows_of
from penstock.spark.session import advise_session
from penstock.spark.source.filter_parse import columns_in, understood
from penstock.spark.source.filters import FilterBounds, bounds, to_text
from penstock.spark.source.options import parse, refuse_for_batch, store_path
from penstock.spark.source.schema import ALL, DEFAULT, NEVER_NULL, REFERENCE, TYPES, check_names
from penstock.spark.source.survey import STORE_HINT, count_messages, opened_store, planned_tasks
from penstock.spark.user_session import cores, is_connect
from penstock.store import Store

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


#: Options that say where to begin or end: with one of these the source reads all, history included.
_PLACES = ("starting", "ending")


def read(
    spark: SparkSession, store: str | os.PathLike[str], topic: str, *, where: str | Column | None = None,
    columns: str | Iterable[str] | None = None, archive: str | os.PathLike[str] | None = AUTO, **options: str,
) -> DataFrame:  # fmt: skip
    """The messages of a topic for which `where` is true, with the chosen `columns`.

    `where` is SQL (or a Column) over the columns of a message. Comparisons of `offset`, `partition` and
    `written_at` with constants, joined by AND, keep whole ranges from being read; all of it is applied by
    Spark as well. `columns` are those of docs/spark.md, "*" is all, by default Kafka's six; only they, and
    those that `where` names, are read.

    `archive` is the topic's archive table: what it holds is read by Spark itself, as Parquet, and only what
    came since through Python. "auto" takes the one that the store knows of, None leaves it out.
    `options` are those of `format("penstock")`, such as `failOnDataLoss="false"`.

    Raises `UnknownTopic`, `InvalidOption`, or `HistoryChanged` when archive and log do not belong together.
    """
    asked = _asked(spark, store, topic, where, columns)
    placed = [name for name in options if name.lower().startswith(_PLACES)]
    if "history" in options or REFERENCE in asked.needed:
        archive = None
    table = None if archive is None else os.fspath(archive)
    with _seen_store(spark, asked, table) as seen:
        past = None
        if seen is not None:
            past = find_past(seen, seen.topic(asked.topic).open_topic, table, asked.bounds)
        if past is not None and placed:  # the source then takes from the table what lies between the places
            options, past = {**options, "history": past.table}, None
        if past is None or not past.files:
            frame = _live(spark, asked, past, options, seen)
        elif not past.has_tail:
            _refuse_taken(options)
            frame = _archived(spark, asked, past)
        else:
            frame = _archived(spark, asked, past).union(_live(spark, asked, past, options, seen))
    if where is not None:
        frame = frame.where(where)
    return frame if asked.columns == asked.needed else frame.select(*asked.columns)


def count(
    spark: SparkSession, store: str | os.PathLike[str], topic: str, *, where: str | Column | None = None,
    archive: str | os.PathLike[str] | None = AUTO,
) -> int:  # fmt: skip
    """How many messages a topic has, or how many of them pass `where`; archive and log together.

    Without a condition nothing is read and Spark is not asked: segments and tables know it.
    """
    if where is not None:
        return read(spark, store, topic, where=where, columns="offset", archive=archive).count()
    asked = _asked(spark, store, topic, None, "offset")
    with opened_store(asked.store, STORE_HINT) as opened:
        found = opened.topic(topic).open_topic
        past = find_past(opened, found, None if archive is None else os.fspath(archive), asked.bounds)
        begin = {} if past is None else past.next
        rows = 0 if past is None else past.rows
        return rows + sum(count_messages(log, begin.get(log.partition, 0)) for log in found.logs())


class _Asked(NamedTuple):
    """What is to be read."""

    store: str
    topic: str
    #: What the caller gets, in this order.
    columns: tuple[str, ...]
    #: What must be read for that: those, and the ones that the condition names.
    needed: tuple[str, ...]
    bounds: FilterBounds


def _asked(
    spark: SparkSession, store: str | os.PathLike[str], topic: str, where: str | Column | None,
    columns: str | Iterable[str] | None,
) -> _Asked:  # fmt: skip
    chosen = _columns(columns)
    words = columns_in(where) if isinstance(where, str) else set() if where is None else set(ALL)
    needed = tuple(name for name in TYPES if name in chosen or name in words)
    found = FilterBounds()
    if isinstance(where, str):
        zone = session_zone(spark)
        found = bounds(understood(where, zone).comparisons, zone)
    return _Asked(store_path(os.fspath(store)), topic_name(topic), chosen, needed, found)


def session_zone(spark: SparkSession) -> tzinfo | None:
    """The time zone in which the session understands times that do not name one.

    None for one that Java knows and Python does not, such as "PST" or "UTC-05:00".
    """
    try:
        return ZoneInfo(str(spark.conf.get("spark.sql.session.timeZone", "UTC")))
    except (ZoneInfoNotFoundError, ValueError):
        return None


def _columns(columns: str | Iterable[str] | None) -> tuple[str, ...]:
    if columns is None:
        return DEFAULT
    if isinstance(columns, str):
        columns = ALL if columns.strip() == "*" else [name.strip() for name in columns.split(",")]
    names = tuple(columns)
    check_names(names)
    return names


def _seen_store(
    spark: SparkSession, asked: _Asked, table: str | None
) -> AbstractContextManager[Store | None]:
    """The store, if it is needed to find the topic's archive: opened once, also for what is planned then."""
    if table is None:
        return nullcontext()
    try:
        return opened_store(asked.store, STORE_HINT)
    except NotAStore:
        if is_connect(spark) and table == AUTO:  # the store lies where the server is: it reads the log alone
            return nullcontext()
        raise


def _archived(spark: SparkSession, asked: _Asked, past: NativePast) -> DataFrame:
    """What the table has, read by Spark; files are listed here, so later commits change nothing."""
    kinds = ", ".join(f"`{name}` {TYPES[name]}" for name in asked.needed if name != "topic")
    frame = spark.read.schema(kinds or f"offset {TYPES['offset']}").parquet(*past.paths)
    return _with_topic(frame, asked)


def _live(
    spark: SparkSession, asked: _Asked, past: NativePast | None, options: dict[str, Any], seen: Store | None
) -> DataFrame:
    """What comes through Python: the log from where the table ends.

    It is planned here, where the store can be seen: else Spark would start a Python process to have one
    choose the source, and to have it planned, which takes as long as 50,000 rows. `seen` is the store, if it
    is open already.
    """
    _refuse_taken(options)
    known = {"path": asked.store, "topic": asked.topic, **options}
    if there := cores(spark):
        known["cores"] = str(there)
    if not asked.bounds.is_everything:
        known["bounds"] = to_text(asked.bounds)
    if past is not None and past.next:
        begin = {str(number): at for number, at in past.next.items()}
        known["startingOffsets"] = json.dumps({asked.topic: begin})
    names = [name for name in asked.needed if name != "topic"] or ["offset"]
    kinds = ", ".join(f"`{name}` {TYPES[name]}{' NOT NULL' * (name in NEVER_NULL)}" for name in names)
    if is_connect(spark):
        frame = spark.read.format("penstock").schema(kinds).options(**known).load()
    else:
        from penstock.spark.source.batches import read_slices

        advise_session(spark)
        read_options = parse(known)
        refuse_for_batch(read_options)
        read_task = partial(
            read_slices, columns={name: name not in NEVER_NULL for name in names}, asked=read_options
        )
        frame = rows_of(spark, read_task, planned_tasks(read_options, seen), kinds)
    return _with_topic(frame, asked)


def _refuse_taken(options: Iterable[str]) -> None:
    """Raise `InvalidOption` for options that say again what arguments say."""
    for taken in ("topic", "subscribe", "subscribePattern", "columns", "includeHeaders", "view"):
        if taken in options:
            raise InvalidOption(
                f"{taken} is not an option here", hint="topic and columns are arguments of read()"
            )


def _with_topic(frame: DataFrame, asked: _Asked) -> DataFrame:
    """What is needed, in that order; the topic as a constant of Spark's, which need not be sent for each row.

    In one step, if any: Spark goes through the whole plan at each.
    """
    from pyspark.sql import functions as F

    if "topic" not in asked.needed:
        return frame
    return frame.select(*(F.lit(asked.topic).alias(n) if n == "topic" else n for n in asked.needed))
