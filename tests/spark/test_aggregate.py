"""`penstock.spark.aggregate`: the same figures as Spark's own groupBy over all rows (18.8c)."""

import json

import pytest

import penstock
from penstock.spark import aggregate, read
from penstock.spark.pipelines.archive import archive
from tests.kit.pipelines import floored_to_windows
from tests.kit.topics import inside

HOUR = 3600 * 10**9


@pytest.fixture
def orders(store):
    topic = store.create_topic("orders", partitions=2, sync="os", segment_bytes="64KiB")
    values = [
        json.dumps({"country": ["de", "fr", "it"][n % 3], "amount": n / 4, "n": n}) if n % 50 else "broken"
        for n in range(3000)
    ]
    stamps = [(1_760_000_000 + n * 7) * 10**9 if n % 11 else -n * 10**9 for n in range(3000)]
    topic.write_many(values, keys=[f"k{n % 13}" for n in range(3000)], timestamps=stamps)
    topic.write(None, key="gone")
    return topic


def rows(frame, *order: str) -> list[tuple]:
    return sorted((tuple(row) for row in frame.select(*order).collect()), key=repr)


def test_figures_are_those_of_a_group_by_over_all_rows(spark, store, orders):
    from pyspark.sql import functions as f

    made = aggregate(
        spark, store.path, "orders",
        {"count": "count", "bytes": "sum(size)", "least": "min(offset)", "most": "max(written_at)"},
        by=["key"], window="1h",
    )  # fmt: skip
    size = f.expr("coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0)")
    whole = read(spark, store.path, "orders", columns="*").withColumn("span", f.window("timestamp", "1 hour"))
    expected = whole.groupBy("span", "key").agg(
        f.count("*").alias("count"), f.sum(size).alias("bytes"), f.min("offset").alias("least"),
        f.max("written_at").alias("most"),
    ).withColumn("window_start", f.col("span.start"))  # fmt: skip
    order = ("window_start", "key", "count", "bytes", "least", "most")
    assert rows(made, *order) == rows(expected, *order)


def test_fields_of_json_conditions_and_means(spark, store, orders):
    made = aggregate(
        spark, store.path, "orders", {"n": "count", "mean": "mean(amount)", "sum": "sum(n)"}, by=["country"],
        fields="country string, amount double, n int", where="n >= 100 and country in ('de', 'fr')",
    )  # fmt: skip
    expected = {}
    for n in range(100, 3000):
        if n % 50 and n % 3 < 2:
            count, total = expected.get(n % 3, (0, 0))
            expected[n % 3] = count + 1, total + n
    found = {row.country: (row.n, row["mean"], row["sum"]) for row in made.collect()}
    assert found == {
        ["de", "fr"][which]: (count, pytest.approx(total / 4 / count), total)
        for which, (count, total) in expected.items()
    }


def test_all_of_a_topic_is_one_row_and_history_counts(spark, store, orders, tmp_path):
    archive(store.path, "orders", tmp_path / "lake", spark=spark)
    inside(orders).log(0).trim(inside(orders).log(0).bounds().end // 2)
    (row,) = aggregate(spark, store.path, "orders", {"n": "count"}).collect()
    assert row.n == 3001
    (row,) = aggregate(spark, store.path, "orders", {"n": "count"}, where="partition = 1").collect()
    assert row.n == inside(orders).log(1).bounds().end


@pytest.mark.parametrize(
    ("measures", "options", "told"),
    [
        ({}, {}, "no measures"), ({"n": "median(size)"}, {}, "measure 'n'"),
        ({"n": "sum(price)"}, {}, "no column"), ({"n": "sum(key)"}, {}, "no sum of binary"),
        ({"n": "count"}, {"where": "length(key) > 3"}, "more than"),
        ({"key": "count"}, {"by": ["key"]}, "named twice"), ({"n": "count"}, {"window": "0s"}, "no time"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused_with_a_hint(spark, store, orders, measures, options, told):
    with pytest.raises(penstock.InvalidOption, match=told):
        aggregate(spark, store.path, "orders", measures, **options)


def test_windows_begin_at_whole_numbers_also_before_1970():
    import pyarrow as pa

    window = 3_600_000_000
    micros = [0, 1, window - 1, window, -1, -window, -window - 1, 2**53 + 1, 1_760_000_400_000_001]
    times = pa.array(micros, pa.timestamp("us", tz="UTC"))
    assert floored_to_windows(times, window).cast(pa.int64()).to_pylist() == [
        at // window * window for at in micros
    ]
