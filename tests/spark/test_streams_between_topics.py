"""From topic to topic with Spark's own API: complete and without doubles, also over restarts."""

import pytest

from tests.spark.streams import numbers


@pytest.mark.slow
def test_stream_from_topic_to_topic_is_complete_and_distinct_over_restarts(spark, store, tmp_path):
    """Three runs from one checkpoint; behind the second, Spark's note of its last batch is lost."""
    source = store.create_topic("orders", partitions=3)
    sink = store.create_topic("copies", partitions=2)

    def run():
        stream = (
            spark.readStream.format("penstock").option("topic", "orders").option("consumer", "copy")
            .option("maxOffsetsPerTrigger", 150).load(store.path)
        )  # fmt: skip
        query = (
            stream.select("key", "value").writeStream.format("penstock").option("topic", "copies")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True).start(store.path)
        )  # fmt: skip
        query.awaitTermination()

    for begin in (0, 200, 400):
        values = range(begin, begin + 200)
        source.write_many([b"%d" % n for n in values], keys=[f"key-{n % 7}" for n in values])
        run()
        if begin == 200:
            commits = tmp_path / "checkpoint" / "commits"
            last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
            for name in (f"{last}", f".{last}.crc"):
                (commits / name).unlink(missing_ok=True)
    assert numbers(sink) == list(range(600))
    assert source.consumers()[0].lag == 0
