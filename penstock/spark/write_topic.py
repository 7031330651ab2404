"""A DataFrame into a topic by one call, whatever its output mode; each batch is committed once.

    from penstock.spark import to_topic

    counts = orders.groupBy("key").count()
    to_topic(counts.selectExpr("key", "string(count) AS value"), "data", "order-counts",
             output_mode="update", checkpoint="checkpoints/order-counts")

Spark refuses every output mode but append for sinks written in Python, before it asks them. Batches that are
handed to `foreachBatch` it does not look at, and there our own transaction makes each of them true once.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from penstock.errors import InvalidOption, UsageError
from penstock.parse import one_of, topic_name
from penstock.spark.sink.checkpoint import refuse_put_back
from penstock.spark.source.options import store_path
from penstock.spark.source.survey import STORE_HINT, opened_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


OutputMode = Literal["append", "update", "complete"]
_MODES = ("append", "update", "complete")


def to_topic(
    frame: DataFrame, store: str | os.PathLike[str], topic: str, *, output_mode: OutputMode = "append",
    checkpoint: str | os.PathLike[str] | None = None, app: str | None = None, key_column: str | None = None,
    trigger: str | None = None, once: bool = False, name: str | None = None,
) -> StreamingQuery | None:  # fmt: skip
    """Write a DataFrame to a topic: a batch at once, a stream for as long as it runs.

    A stream needs a `checkpoint` and returns its running query; `once` ends it when all that is there was
    processed, `trigger` is how often a batch begins ("5 seconds"). With "update" each batch writes the rows
    that changed. With "complete" it writes all of them, so the topic must be one whose latest message of a
    key counts: `index="key"`. Columns are those of docs/spark-sink.md; `key_column` is its `keyColumn`.

    Each batch is written once, also through kill -9. `app` names the writer; by default it is the
    checkpoint's path, so a checkpoint that was deleted is refused with `ConflictError` and not written twice.
    """
    one_of("output_mode", output_mode, _MODES)
    place = store_path(os.fspath(store))
    _check(place, topic_name(topic), output_mode)
    options = {"topic": topic} | ({} if key_column is None else {"keyColumn": key_column})
    if not frame.isStreaming:
        if output_mode != "append":
            raise InvalidOption(f"output_mode={output_mode!r} is for streams")
        frame.write.format("penstock").options(**options).mode("append").save(place)
        return None
    if checkpoint is None:
        raise UsageError("a stream needs a checkpoint", hint='checkpoint="checkpoints/orders"')
    options |= {"txnAppId": app or _app(checkpoint), "checkpointLocation": os.fspath(checkpoint)}
    with opened_store(place, STORE_HINT) as opened:
        refuse_put_back(opened, options["txnAppId"], options["checkpointLocation"])
    writer = frame.writeStream.foreachBatch(batch_writer(place, options)).outputMode(output_mode)
    writer = writer.option("checkpointLocation", os.fspath(checkpoint))
    if name is not None:
        writer = writer.queryName(name)
    if once:
        writer = writer.trigger(availableNow=True)
    elif trigger is not None:
        writer = writer.trigger(processingTime=trigger)
    return writer.start()


def batch_writer(store: str, options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """What `foreachBatch` calls with each batch; one that comes again or is missing is noticed."""
    every = {**options, "txnEveryVersion": "true"}

    def write(batch: DataFrame, number: int) -> None:
        writer = batch.write.format("penstock").options(**every).option("txnVersion", number)
        writer.mode("append").save(store)

    return write


def _app(checkpoint: str | os.PathLike[str]) -> str:
    """A name for the writer that has this checkpoint."""
    path = os.fspath(checkpoint)
    known = path if "://" in path else os.path.abspath(path)
    return f"checkpoint/{hashlib.sha256(known.encode()).hexdigest()[:32]}"


def _check(store: str, topic: str, output_mode: OutputMode) -> None:
    with opened_store(store, STORE_HINT) as opened:
        found = opened.topic(topic)
        if output_mode == "complete" and found.options.index != "key":
            raise InvalidOption(
                f"output_mode='complete' writes all rows in each batch, and {topic!r} keeps all of them",
                hint='create it with index="key": the latest message of a key then counts; or use "update"',
            )
