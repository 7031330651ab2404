"""A short run of what sessions do (read, aggregate, stream, write), after which Java writes its classes down.

    python -m penstock.spark.rehearsal FILE

`penstock.spark.java_classes` runs it in a process of its own: Java ends after Python, then writes the file.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from penstock.spark.read_topic import read
from penstock.spark.session import session
from penstock.spark.write_topic import to_topic
from penstock.store import open_store

_TOPIC, _COPY = "rehearsal", "copy"


def rehearse(file: str) -> None:
    """Run Spark over a store of its own, with Java told to write its classes to `file` at its end."""
    spark = session("local[2]", **{"spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={file}"})
    with tempfile.TemporaryDirectory(prefix="penstock-rehearsal-") as folder:
        place = Path(folder) / "data"
        with open_store(place) as store:
            store.create_topic(_COPY)
            topic = store.create_topic(_TOPIC, partitions=2)
            topic.write_many([b'{"n": 1}'] * 100, keys=[b"%d" % (n % 7) for n in range(100)])
        frame = read(spark, place, _TOPIC)
        frame.groupBy("key").count().orderBy("count").collect()
        frame.selectExpr("sum(length(value))", "max(timestamp)").collect()
        messages = spark.readStream.format("penstock").option("topic", _TOPIC).load(str(place))
        written = messages.select("key", "value")
        query = to_topic(written, place, _COPY, checkpoint=f"{folder}/checkpoint", once=True)
        if query is not None:
            query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    rehearse(sys.argv[1])
