"""A stateful stream into a topic, to be killed: `python -m tests.spark.stream_driver STORE CHECKPOINT`."""

import sys

from penstock.spark import session, to_topic
from tests.kit.spark_settings import SETTINGS


def counts(spark, store: str):
    """How many messages each key has, and where its last one lies."""
    source = spark.readStream.format("penstock").options(
        topic="orders", columns="key,offset", maxOffsetsPerTrigger="40"
    )
    grouped = source.load(store).groupBy("key").agg({"*": "count"})
    return grouped.selectExpr("key", "string(`count(1)`) AS value")


if __name__ == "__main__":
    spark = session("local[2]", **SETTINGS)
    print("begun", flush=True)
    query = to_topic(
        counts(spark, sys.argv[1]),
        sys.argv[1],
        "counts",
        output_mode="update",
        checkpoint=sys.argv[2],
        once=True,
    )
    query.awaitTermination()
    print("done", flush=True)
