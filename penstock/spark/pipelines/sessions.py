"""`sessions`: messages of a group that follow each other without a long pause, as one row each.

    sessions(store, "clicks", "visits", gap="30m")

A session ends when nothing of its group came for `gap`. It is written once, as JSON with the group as key,
when `late` has passed behind its end; messages that come later still are counted and said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.parse import Duration, one_of, seconds
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
from penstock.spark.pipelines.sink_run import StreamPace, run_into
from penstock.store import Store
from penstock.store.pipelines import Watch, claim, unwatched
from penstock.store.replay import identity_of, two_topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_GROUP = "group"


@dataclass(frozen=True)
class SessionsFound:
    """What a run of `sessions` did."""

    source: str
    sink: str
    read: int
    #: Messages that came after their session was written: in none.
    late: int


def sessions(
    store: Store, source: str, sink: str, *, gap: Duration, by: str = "key", where: str | None = None,
    time: Time = "timestamp", late: Duration = "1m", once: bool = False, trigger: Duration | None = None,
    name: str | None = None, spark: SparkSession | None = None, master: str | None = None,
    watch: Watch = unwatched,
) -> SessionsFound:  # fmt: skip
    """Write the sessions of `source` into `sink`: a row for each run of messages of a group.

    `by` is "key" or an SQL expression over a message's columns and `text`; `where` says which messages count.
    A row has `session_start`, `session_end` (the last message), `seconds`, `group`, `count` and `bytes`.
    """
    origin, target = two_topics(store, source, sink)
    one_of("time", time, TIMES)
    pause = interval("gap", gap)
    delay = interval("late", late) if seconds("late", late) else "0 microseconds"
    pace = StreamPace(once, trigger)
    called = name or f"sessions-{source}"
    columns = columns_for((time, "key", "value"), [by, where])
    running = started(spark, master, is_stream=True)
    found(no_messages(running, columns), by, where, time, pause)  # a wrong expression is said before all else
    identity = {**identity_of(origin, target), "gap": pause, "by": by, "where": where, "time": time}
    with claim(
        store, called, kind="sessions", identity=identity, consumer=called, options={"once": once}
    ) as run, watch(run):  # fmt: skip
        dropped = Late(called)
        messages = topic_stream(running, store, source, columns, called).withWatermark(time, delay)
        rows = found(messages, by, where, time, pause)
        options = {"topic": sink, "keyColumn": _GROUP}
        run_into(run, rows, store.path, options, pace, dropped.on_batch)
        return SessionsFound(source, sink, run.facts.rows, dropped.rows)


def found(messages: DataFrame, by: str, where: str | None, time: Time, pause: str) -> DataFrame:
    """A row for each session; raises `InvalidOption` for a wrong expression."""
    from pyspark.sql import functions as F

    known = with_text(messages)
    if where is not None:
        check_expression(known, "where", where, is_condition=True)
        known = known.where(where)
    check_expression(known, "by", by)
    size = F.expr("coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0)")
    grouped = known.groupBy(
        F.session_window(time, pause).alias("span"), F.expr(by).cast("string").alias(_GROUP)
    )
    rows = grouped.agg(
        F.max(time).alias("session_end"), F.count("*").alias("count"), F.sum(size).alias("bytes")
    )
    start = F.col("span.start")
    length = F.col("session_end").cast("double") - start.cast("double")
    return rows.select(
        start.alias("session_start"), "session_end", length.alias("seconds"), _GROUP, "count", "bytes"
    )
