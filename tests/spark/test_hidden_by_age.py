"""What has expired by age is not returned to Spark, also before it is removed (S001-48)."""

import pytest

from tests.kit.expired_topics import half_expired

YOUNG = [(offset, f"young {offset - 5}") for offset in range(5, 10)]


@pytest.fixture
def folder(tmp_path):
    with half_expired(tmp_path / "data"):
        yield str(tmp_path / "data")


def test_a_batch_read_leaves_out_what_is_over(spark, folder):
    frame = spark.read.format("penstock").option("topic", "orders").load(folder)
    assert sorted((row.offset, bytes(row.value).decode()) for row in frame.collect()) == YOUNG
    assert frame.count() == 5


def test_a_stream_from_the_earliest_begins_behind_what_is_over(spark, folder, tmp_path):
    frame = (
        spark.readStream.format("penstock").options(topic="orders", startingOffsets="earliest").load(folder)
    )
    query = (
        frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        .option("path", str(tmp_path / "out")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted((row.offset, bytes(row.value).decode()) for row in rows) == YOUNG
