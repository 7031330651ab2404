"""`df.write.format("penstock")` and `df.writeStream`: rows become messages, all of a write or none.

Tasks stage frames (`task`), the driver commits them (`commit`). The commit of a stream runs in a Python
of its own that knows nothing of what was planned: what it needs comes with the messages of the tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.errors import ConflictError, InvalidOption
from penstock.parse import identifier, topic_name
from penstock.spark.executors import settle_in
from penstock.spark.sink.commit import WriterCommit
from penstock.spark.sink.rows import Column, Shape, shape
from penstock.spark.sink.task import WriteTarget
from penstock.spark.source.kafka_options import hint_for
from penstock.spark.source.options import store_path
from penstock.spark.source.table_options import OFFSET

if TYPE_CHECKING:
    import pyarrow

    from penstock.spark.sink.task import TaskResult


_NAMES = ("topic", "keyColumn", "txnAppId", "txnVersion", "txnEveryVersion")
#: What Spark, or its caller, passes on to every sink.
_SPARKS = ("path", "checkpointLocation", "queryName")
_VERSION_MAX = 2**63 - 1


class WriteOptions(NamedTuple):
    """What a write asks for."""

    store: str
    #: None: the column `topic` says it, row by row.
    topic: str | None
    key_column: str | None
    app: str | None
    version: int | None
    #: Versions follow each other: one that was left out was lost.
    every_version: bool = False
    #: Where Spark keeps what each batch was planned to read, if it says so.
    checkpoint: str | None = None


def parse(options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """Understand the options of a write; raises `InvalidOption` that names the wrong one."""
    given = {name.lower(): value for name, value in options.items()}
    known = {name.lower() for name in (*_NAMES, *_SPARKS)}
    for name in given:
        if name not in known:
            raise InvalidOption(f"unknown option {name!r}", hint=hint_for(name, _NAMES))
    if not given.get("path"):
        start = '.start("data") names its folder; with .toTable(…) give the options path and topic'
        raise InvalidOption("which store?", hint=start if streaming else '.save("data") names it')
    app = given.get("txnappid")
    return WriteOptions(
        store=store_path(given["path"]),
        topic=topic_name(given["topic"]) if "topic" in given else None,
        key_column=given.get("keycolumn"),
        app=None if app is None else identifier("txnAppId", app),
        version=_version(given.get("txnversion"), app, streaming=streaming),
        every_version=given.get("txneveryversion", "false").lower() == "true",
        checkpoint=given.get("checkpointlocation"),
    )


def _version(text: str | None, app: str | None, *, streaming: bool) -> int | None:
    if streaming:
        if text is not None:
            raise InvalidOption("txnVersion is for batch writes", hint="a stream counts its batches itself")
        return None
    if (text is None) != (app is None):
        raise InvalidOption("txnAppId and txnVersion belong together", hint="give both, or neither")
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and int(text) <= _VERSION_MAX):
        raise InvalidOption(f"txnVersion={text!r} is not a whole number from 0 on")
    return int(text)


class StagedMessage(WriterCommitMessage):
    """What a task tells the driver."""

    def __init__(self, share: TaskResult, query: str | None) -> None:
        self.share = share
        #: The id of the query that the task is part of, if there is one.
        self.query = query


class _Write(NamedTuple):
    """A write as it was planned."""

    options: WriteOptions
    shape: Shape
    target: WriteTarget

    def stage(self, batches: Iterator[pyarrow.RecordBatch]) -> StagedMessage:
        from penstock.spark.sink.task import TaskResult, stage

        settle_in()
        task = TaskContext.get()
        assert task is not None, "this runs in a task"
        number = task.partitionId()
        topics = stage(batches, self.shape, self.target, turn=number)
        plans = {name: self.target.topics[name] for name in topics}
        return StagedMessage(
            TaskResult(number, topics, plans), task.getLocalProperty("sql.streaming.queryId")
        )

    def commit(
        self, messages: Sequence[StagedMessage], number: int | None, *, is_counted: bool = False
    ) -> None:
        from penstock.spark.sink.checkpoint import batch_mark
        from penstock.spark.sink.commit import commit

        settle_in()
        shares = [message.share for message in messages]
        once = None
        if number is not None:
            rows = sum(share.rows for share in shares)
            once = WriterCommit(
                messages[0].query, number, rows, self.options.app, is_counted, self._counted_for(),
                batch_mark(self.options.checkpoint, number),
            )  # fmt: skip
            if once.query is once.app is None:
                raise ConflictError(
                    "Spark did not say which query this batch belongs to: nothing was written"
                )
        commit(self.options.store, shares, once)

    def _counted_for(self) -> int | None:
        """The topic that a txnVersion is counted for; a stream's batches are counted whatever they name."""
        topic = self.options.topic
        return None if topic is None or self.options.version is None else self.target.topics[topic].id

    def abort(self, messages: Sequence[StagedMessage | None]) -> None:
        from penstock.spark.sink.commit import abort

        abort(self.options.store, [message.share for message in messages if message is not None])


class TopicWriter(DataSourceArrowWriter):
    """A batch write."""

    def __init__(self, write: _Write) -> None:
        self._write = write

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> StagedMessage:
        """Stage the rows of one task."""
        return self._write.stage(iterator)

    def commit(self, messages: list[Any]) -> None:
        """Commit what all tasks staged, in one transaction."""
        options = self._write.options
        self._write.commit(messages, options.version, is_counted=options.every_version)

    def abort(self, messages: list[Any]) -> None:
        """Remove what tasks staged."""
        self._write.abort(messages)


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write; each batch of it is committed once, however often Spark repeats it."""

    def __init__(self, write: _Write) -> None:
        self._write = write

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> StagedMessage:
        """Stage the rows of one task."""
        return self._write.stage(iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:
        """Commit what all tasks staged, in one transaction; a batch that was committed before is skipped."""
        self._write.commit(messages, batchId, is_counted=True)

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Remove what tasks staged."""
        self._write.abort(messages)


def planned(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool, streaming: bool,
    into_table: bool = False,
) -> _Write:  # fmt: skip
    """Understand and check a write, on the driver, before anything of it runs."""
    from penstock.spark.sink.commit import target

    asked = parse(options, streaming=streaming)
    if overwrite:
        what = 'outputMode("complete")' if streaming else 'mode("overwrite")'
        hint = "penstock.spark.to_topic(…) writes every output mode" if streaming else 'mode("append")'
        raise InvalidOption(f"{what}: a topic is only ever appended to", hint=hint)
    columns = [Column(field.name, field.dataType.simpleString()) for field in schema.fields]
    found = shape(columns, topic_given=asked.topic is not None, key_column=asked.key_column)
    names = [each.name for each in columns]
    if into_table and OFFSET in names:
        found = found._replace(unset=names.index(OFFSET))
    return _Write(asked, found, target(asked.store, asked.topic))
