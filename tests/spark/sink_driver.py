"""A driver of its own, for tests that kill it: `python -m tests.spark.sink_driver '{"store": …}'`.

It runs a stream of files into a topic through a sink that stops or kills everything at a chosen point of
batch 1. The classes are defined in `__main__`, so that Spark sends them to its workers by value.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from penstock.spark import session
from tests.kit.sinks import TopicStreamWriter
from tests.kit.slices import DefaultSource
from tests.kit.spark_settings import SETTINGS

#: Where a driver may die, in the order in which a batch gets there.
POINTS = ("staging", "staged", "committed", "done")
AT_BATCH = 1


def kill(group: int) -> None:
    """End driver and JVM at once, and this worker, which is in a group of its own."""
    os.killpg(group, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


class DyingWriter(TopicStreamWriter):
    """A sink whose driver dies, or waits for a file, at a point of a batch."""

    def __init__(self, write, point: str, group: int, wait_for: str) -> None:
        super().__init__(write)
        self.point, self.group, self.wait_for = point, group, wait_for

    def write(self, iterator):
        from pyspark import TaskContext

        batch = int(TaskContext.get().getLocalProperty("streaming.sql.batchId"))
        return super().write(
            self.dying(iterator) if (self.point, batch) == ("staging", AT_BATCH) else iterator
        )

    def dying(self, iterator):
        yield from iterator
        kill(self.group)

    def commit(self, messages, batchId):
        from tests.kit.stores import Transactions

        if batchId == AT_BATCH and self.point == "staged":
            kill(self.group)
        if batchId == AT_BATCH and self.point == "waiting":
            Path(self.wait_for + ".reached").touch()
            while not os.path.exists(self.wait_for):
                time.sleep(0.05)
        if batchId == AT_BATCH and self.point == "committed":
            record = Transactions.commit

            def dying(*arguments, **named):
                record(*arguments, **named)
                kill(self.group)

            Transactions.commit = dying
        super().commit(messages, batchId)
        if batchId == AT_BATCH and self.point == "done":
            kill(self.group)


class DyingSource(DefaultSource):
    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamWriter(self, schema, overwrite):
        own = {name: self.options.pop(name) for name in ("point", "group", "waitfor")}
        try:
            write = super().streamWriter(schema, overwrite)._write
        finally:
            self.options.update(own)
        return DyingWriter(write, own["point"], int(own["group"]), own["waitfor"])


def main(store: str, files: str, checkpoint: str, point: str, wait_for: str = "") -> None:
    spark = session("local[2]", **SETTINGS)
    spark.dataSource.register(DyingSource)
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(files).selectExpr("value", "value AS key")
    query = (
        lines.writeStream.format("dying").option("topic", "orders").option("checkpointLocation", checkpoint)
        .options(point=point, group=str(os.getpgid(0)), waitfor=wait_for)
        .trigger(availableNow=True).start(store)
    )  # fmt: skip
    query.awaitTermination()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
