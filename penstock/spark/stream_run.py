"""A streaming query as a pipeline: started with the pipeline's checkpoint, followed, and ended in order."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.errors import PipelineFailed
from penstock.store import PipelineRun

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


#: How often a running query is looked at; a person at a terminal waits no longer for Ctrl-C to be heard.
_LOOK_S = 0.2
#: A batch under way gets this long to end; then the query is stopped amidst it, and repeats it later.
_LAST_BATCH_S = 30.0
#: The line of a Python traceback that says what went wrong: `penstock.errors.UnknownTopic: no topic 'x'`.
_CAUSE = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*(?:Error|Exception|[A-Z]\w+)): (.+)$", re.MULTILINE)
#: What no second try will mend: checkpoint and stores do not belong together any more.
_FOR_GOOD = ("HistoryChanged", "TopicReplaced", "ConflictError")
#: The hint at the end of such a line.
_HINT_OF_A_QUERY = re.compile(r" \([^()]*(?:checkpointLocation|penstock pipeline drop).*\)$")


def run_stream(
    run: PipelineRun, writer: DataStreamWriter, *, once: bool, trigger: str | None = None,
    on_batch: Callable[[Any], None] | None = None,
) -> None:  # fmt: skip
    """Run a stream until it is stopped, or with `once` until everything that is there now was processed.

    `writer` has its sink and output mode; checkpoint, trigger and name are set here. `trigger` is how often
    a batch begins ("5 seconds"), at once if None. `on_batch` gets Spark's report of each batch, also of one
    without rows. Raises `PipelineFailed` when the query fails.
    """
    clear_unbegun(run.checkpoint)
    writer = writer.option("checkpointLocation", run.checkpoint).queryName(run.name)
    if once:
        writer = writer.trigger(availableNow=True)
    elif trigger is not None:
        writer = writer.trigger(processingTime=trigger)
    try:
        query = writer.start()
    except Exception as error:  # Spark's own, or what our planner raised inside of it
        raise failed(run.name, error) from error
    try:
        _follow(run, query, on_batch)
    except BaseException:
        query.stop()
        raise
    _finish(run, query)


def clear_unbegun(checkpoint: str) -> None:
    """Remove what a query left that was killed while it wrote its first offsets: it has done nothing yet.

    Spark 4.3 refuses such a checkpoint, whose `offsets` holds a temporary file and no offsets. The query's
    id stays, so that nothing that knows it by that takes it for another.
    """
    offsets = os.path.join(checkpoint, "offsets")
    if not os.path.isdir(offsets) or any(name.isdigit() for name in os.listdir(offsets)):
        return
    for name in os.listdir(checkpoint):
        path = os.path.join(checkpoint, name)
        if os.path.isdir(path):
            shutil.rmtree(path)


def failed(name: str, error: BaseException) -> PipelineFailed:
    """An error of Spark's told by its cause: the last line of the Python traceback in it, if there is one.

    What cannot be mended says what makes the pipeline begin anew, and not what would do so for a query.
    """
    text = str(error)
    found = _CAUSE.findall(text)
    told = f"{found[-1][0]}: {found[-1][1]}" if found else text.strip().partition("\n")[0]
    if found and found[-1][0] in _FOR_GOOD:
        told = _HINT_OF_A_QUERY.sub("", told)
        hint = f"penstock pipeline drop {name} makes it begin anew; its rows are then written again"
    else:
        hint = "mend it and run it again: it goes on where it was"
    return PipelineFailed(f"pipeline {name!r} failed: {told}", hint=hint)


def _follow(run: PipelineRun, query: StreamingQuery, on_batch: Callable[[Any], None] | None) -> None:
    """Wait until the query ends by itself, or until its present batch is done when it was asked to end."""
    told = _Told(run, on_batch)
    while query.isActive and not run.stopping:
        time.sleep(_LOOK_S)
        told.tell(query.recentProgress)
    deadline = time.monotonic() + _LAST_BATCH_S
    told.tell(query.recentProgress)  # else a batch that ended just now would pass for the present one
    begun = told.last
    while query.isActive and query.status["isTriggerActive"] and told.last == begun:
        if time.monotonic() > deadline:
            break
        time.sleep(_LOOK_S / 4)
        told.tell(query.recentProgress)
    query.stop()
    told.tell(query.recentProgress)


def _finish(run: PipelineRun, query: StreamingQuery) -> None:
    error = query.exception()
    if error is not None:
        raise failed(run.name, error) from error


class _Told:
    """Spark's reports handed on to the run, each once."""

    def __init__(self, run: PipelineRun, on_batch: Callable[[Any], None] | None) -> None:
        self._run = run
        self._on_batch = on_batch
        #: The latest batch that was reported.
        self.last = -1

    def tell(self, reports: list[Any]) -> None:
        for report in reports:
            if report["batchId"] > self.last and self._on_batch is not None:
                self._on_batch(report)
            if report["batchId"] > self.last and report["numInputRows"]:
                self._run.report(rows=report["numInputRows"], last_batch=report["batchId"])
            self.last = max(self.last, report["batchId"])
