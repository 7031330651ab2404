"""The door to Spark's sink: rows, tasks, commits."""

from typing import Any

from penstock.log.frame_encode import EncodedFrame, frames
from penstock.spark.sink import frames as frames_module
from penstock.spark.sink.checkpoint import batch_mark, refuse_put_back
from penstock.spark.sink.commit import WriterCommit, abort, commit, commits, is_repeated, superseded, target
from penstock.spark.sink.rows import Column, Shape, WriteRows, shape
from penstock.spark.sink.sink import TopicStreamWriter, WriteOptions, parse
from penstock.spark.sink.task import TaskResult, stage, stage_rows


def frames_of(messages: Any) -> list[EncodedFrame]:
    """The frames that a task makes of a batch of messages for one partition."""
    return frames(frames_module.columns_of(messages, 0), created=0, compress=False)
