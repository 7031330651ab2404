"""What pipelines that stream one topic into others share: the query run, each batch written once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.parse import Duration
from penstock.spark.pipelines.expressions import interval
from penstock.spark.sink.checkpoint import refuse_put_back
from penstock.store import PipelineRun, open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class StreamPace:
    """How long a stream runs, and how often a batch of it begins."""

    #: End when all that is there now is done.
    once: bool = False
    trigger: Duration | None = None

    def __post_init__(self) -> None:
        if self.trigger is not None:
            interval("trigger", self.trigger)

    @property
    def every(self) -> str | None:
        """The interval of batches as Spark spells it."""
        return None if self.trigger is None else interval("trigger", self.trigger)


def run_into(
    run: PipelineRun, rows: DataFrame, store: str, options: Mapping[str, str], pace: StreamPace,
    on_batch: Callable[[Any], None] | None = None,
) -> None:  # fmt: skip
    """Stream rows into topics of a store until it is stopped; each batch is written once.

    The writer is named after the pipeline, and not after its checkpoint: one that was lost is refused.
    """
    from penstock.spark.stream_run import run_stream

    app = f"pipeline/{run.name}/{run.created}"
    with open_store(store, create=False, read_only=True) as target:
        refuse_put_back(target, app, run.checkpoint)
    writer = rows.writeStream.format("penstock").outputMode("append")
    writer = writer.options(**options).option("path", store).option("txnAppId", app)
    run_stream(run, writer, once=pace.once, trigger=pace.every, on_batch=on_batch)
