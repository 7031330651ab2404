"""Dedup: each message once, the first of those that are alike within a time.

    dedup(store, "clicks", "clicks.once", by="key", within="10m", once=True)

Spark remembers what it saw for `within`, by the log's time of writing, in the pipeline's checkpoint. Each
batch is then put back into the order of the source, partition by partition, and committed once, by a name
that holds the query's id and the batch's number.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import InvalidOption
from penstock.parse import Duration, one_of
from penstock.spark.pipelines.engine import started
from penstock.spark.pipelines.expressions import (
    TEXT,
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
from penstock.store import PipelineRun, Store
from penstock.store.pipelines import Watch, claim, unwatched
from penstock.store.replay import identity_of, two_topics
from penstock.topic.copy import is_same_layout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


#: Names for what is not an expression: a value is compared by a hash that no two values share in practice.
_NAMED = {"key": "key", "value": "sha2(value, 256)"}
_ALWAYS = ("partition", "offset", "timestamp", "key", "value", "headers")
_LIKE = "_like"
_ALONE = "_alone"


@dataclass(frozen=True)
class Deduplicated:
    """What a run of `dedup` did."""

    source: str
    sink: str
    read: int
    written: int
    duplicates: int
    #: Written so much earlier than others before them that Spark had closed their time: not written.
    late: int


def dedup(
    store: Store, source: str, sink: str, *, within: Duration, by: str = "key", time: Time = "written_at",
    once: bool = False, trigger: Duration | None = None, name: str | None = None,
    spark: SparkSession | None = None, master: str | None = None, watch: Watch = unwatched,
) -> Deduplicated:  # fmt: skip
    """Write each message of `source` to `sink` unless one like it came less than `within` before.

    `by` is "key", "value", or an SQL expression; a message for which it is null is like no other. Runs until
    it is stopped, or with `once` until all that is there now is done; it goes on where it stopped.
    """
    origin, target = two_topics(store, source, sink)
    one_of("time", time, TIMES)
    delay = interval("within", within)
    every = None if trigger is None else interval("trigger", trigger)
    if not by.strip():
        raise InvalidOption("by is empty", hint="key, value, or an SQL expression")
    called = name or f"dedup-{source}"
    columns = columns_for((*_ALWAYS, time), [by])
    running = started(spark, master, is_stream=True)
    check_expression(with_text(no_messages(running, columns)), "by", _NAMED.get(by, by))
    identity = {**identity_of(origin, target), "within": delay, "by": by, "time": time}
    with claim(
        store, called, kind="dedup", identity=identity, consumer=called, options={"once": once}
    ) as run, watch(run):  # fmt: skip
        from penstock.spark.stream_run import run_stream

        messages = topic_stream(running, store, source, columns, called)
        same = is_same_layout(origin.open_topic.tree, target.open_topic.tree)
        late = Late(called)
        writer = (
            unlike(messages, by, time, delay)
            .writeStream.outputMode("append")
            .foreachBatch(_writing(store, sink, run, partition_column="partition" if same else None))
        )
        run_stream(run, writer, once=once, trigger=every, on_batch=late.on_batch)
        read = run.facts.rows
        return Deduplicated(source, sink, read, late.kept, read - late.kept - late.rows, late.rows)


def unlike(messages: DataFrame, by: str, time: Time, delay: str) -> DataFrame:
    """The messages less those that are like an earlier one."""
    from pyspark.sql import functions as F

    return (
        with_text(messages)
        .withColumn(_LIKE, F.expr(_NAMED.get(by, by)))
        .withColumn(_ALONE, F.expr(f"if({_LIKE} IS NULL, struct(partition, offset), NULL)"))
        .drop(TEXT)
        .withWatermark(time, delay)
        .dropDuplicatesWithinWatermark([_LIKE, _ALONE])
    )


def _writing(
    store: Store, sink: str, run: PipelineRun, *, partition_column: str | None
) -> Callable[[DataFrame, int], None]:
    """What is done with each batch: in order, once."""
    columns = ["key", "value", "headers", "timestamp"]
    if partition_column is not None:
        columns.append(partition_column)

    def write(batch: DataFrame, number: int) -> None:
        # Not "pipeline/…", as the others are called: a dedup that was begun under this name would find none
        # of its batches under another, and be refused as one whose store was put back.
        app = f"{run.name}/{_query_id(run.checkpoint)}"
        ordered = batch.repartition("partition").sortWithinPartitions("partition", "offset").select(*columns)
        options: dict[str, Any] = {"topic": sink, "txnAppId": app, "txnVersion": number}
        options |= {"txnEveryVersion": "true", "checkpointLocation": run.checkpoint}
        ordered.write.format("penstock").options(**options).mode("append").save(store.path)

    return write


def _query_id(checkpoint: str) -> str:
    """The id of the query; a checkpoint made anew has another, and its batches are others."""
    with open(os.path.join(checkpoint, "metadata"), encoding="utf-8") as file:
        found: str = json.load(file)["id"]
        return found
