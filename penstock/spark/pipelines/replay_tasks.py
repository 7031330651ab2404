"""What a task of a table's replay does: it reads files of an archive and stages their messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.layout import LakeFile, nanoseconds
from penstock.lake.parquet_files import read
from penstock.lake.storage import Storage
from penstock.spark.sink.rows import WriteRows
from penstock.spark.sink.task import TaskResult, WriteTarget, stage_rows

_COLUMNS = ("timestamp", "timestamp_nanos", "written_at", "written_at_nanos", "key", "value", "headers")


class TableJob(NamedTuple):
    """All that a task is told: files of one partition, and what is wanted of them."""

    place: Storage
    files: tuple[LakeFile, ...]
    #: Offsets.
    start: int
    stop: int
    #: Times of writing, in nanoseconds.
    since: int
    until: int
    target: WriteTarget
    #: How many partitions the archived topic had.
    partitions: int


def stage_table(job: TableJob) -> TaskResult:
    """Stage what is wanted of the files, durably; nothing of it stays when this raises."""
    name = job.target.topic
    assert name is not None
    topics = stage_rows(_rows(job), job.target, turn=job.files[0].partition)
    return TaskResult(0, topics, {name: job.target.topics[name]} if topics else {})


def _rows(job: TableJob) -> Iterator[WriteRows]:
    plan = job.target.topics[job.target.topic or ""]
    for file in job.files:
        for batch in read(job.place, file, start=job.start, stop=job.stop, columns=_COLUMNS):
            chosen = _in_time(batch, job.since, job.until)
            if chosen.num_rows:
                same = plan.rows.active == tuple(range(job.partitions)) and plan.rows.even
                asked = pa.repeat(pa.scalar(file.partition, pa.int32()), chosen.num_rows) if same else None
                yield WriteRows(_messages(chosen), None, asked)


def _in_time(batch: pa.RecordBatch, since: int, until: int) -> pa.RecordBatch:
    written = nanoseconds(batch.column("written_at"), batch.column("written_at_nanos")).cast(pa.int64())
    return batch.filter(pc.and_(pc.greater_equal(written, since), pc.less(written, until)))


def _messages(batch: pa.RecordBatch) -> pa.RecordBatch:
    times = nanoseconds(batch.column("timestamp"), batch.column("timestamp_nanos")).cast(pa.int64())
    columns = {
        "value": batch.column("value"), "key": batch.column("key"), "headers": batch.column("headers"),
        "time": times,
    }  # fmt: skip
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
