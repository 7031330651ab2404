"""The door to Spark's sink: rows, tasks, commits."""

from penstock.spark.sink import frames as frames_module
from penstock.spark.sink.commit import WriterCommit, abort, commit, commits, is_repeated, superseded, target
from penstock.spark.sink.rows import Column, Shape, WriteRows, shape
from penstock.spark.sink.sink import TopicStreamWriter, WriteOptions, parse
from penstock.spark.sink.task import TaskResult, stage, stage_rows
