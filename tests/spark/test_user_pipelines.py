"""`@penstock.pipeline` in a real session: what it reads, writes, refuses, and how it goes on."""

import json
from pathlib import Path

import pytest
from pyspark.sql import functions as F

import penstock
from tests.kit.pipelines import check_table, load, read_table
from tests.spark.streams import stored

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"


def example(name: str):
    return load(str(EXAMPLES / name))


def documents(topic: penstock.Topic) -> list[dict]:
    return [json.loads(message.value) for message in stored(topic)]


@pytest.fixture
def orders(store):
    store.create_topic("out")
    return store.create_topic("orders", partitions=2)


@pytest.mark.slow
def test_enrichment_reads_a_table_and_goes_on_where_it_stopped(spark, store):
    orders = store.create_topic("orders")
    store.create_topic("orders.enriched")
    orders.write('{"id": 1, "customer": 7, "total": 30}')
    orders.write('{"id": 2, "customer": 1, "total": 3}')
    enrich = example("enrich.py")
    run = enrich.run(store, once=True, spark=spark, parameters={"least": "10"})
    assert (run.facts.rows, run.facts.error) == (2, None)
    (only,) = stored(store.topic("orders.enriched"))
    assert (only.key, json.loads(only.value)) == (
        b"Chloe", {"customer": 7, "id": 1, "total": 30.0, "name": "Chloe", "country": "NL"},
    )  # fmt: skip
    shown = store.pipeline("enrich")
    assert (shown.kind, shown.state, shown.consumer, shown.lag) == ("run", "ended", "enrich", 0)
    assert shown.options["parameters"] == {"least": 10.0}
    orders.write('{"id": 3, "customer": 2, "total": 40}')
    assert store.pipeline("enrich").lag == 1
    enrich.run(store.path, once=True, spark=spark)
    assert [each["id"] for each in documents(store.topic("orders.enriched"))] == [1, 3]


def test_balances_are_exact_over_restarts(spark, store):
    """S001-37: all payments of an account are summed, once, and its balances lie in order."""
    payments = store.create_topic("payments", partitions=3)
    out = store.create_topic("balances", partitions=2)
    balances = example("balances.py")
    for number in range(2):
        for account in range(6):
            payments.write(str(10 * number + account), key=f"account-{account}")
        balances.run(store, once=True, spark=spark)
    last = {message.key.decode(): int(message.value) for message in stored(out)}
    assert last == {f"account-{account}": 10 + 2 * account for account in range(6)}
    assert len(stored(out)) == 12


@pytest.mark.slow
def test_sessions_end_at_pauses_and_by_the_watermark_over_restarts(spark, store):
    """`transformWithState`: what it keeps, and its timers, are there in the second run."""
    clicks, out = store.create_topic("clicks"), store.create_topic("sessions")
    sessions = example("sessions.py")

    def click(visitor, second):
        clicks.write("/", key=visitor, timestamp=(1_700_000_000 + second) * 10**9)

    for visitor, second in (("a", 0), ("b", 5), ("a", 20)):
        click(visitor, second)
    sessions.run(store, once=True, spark=spark, parameters={"pause_s": 60})
    assert not stored(out)
    for visitor, second in (("a", 40), ("a", 200), ("c", 1000)):
        click(visitor, second)
    sessions.run(store, once=True, spark=spark, parameters={"pause_s": 60})
    found = sorted((row["visitor"], row["began"][-9:-1], row["clicks"]) for row in documents(out))
    assert found == [("a", "22:13:20", 3), ("a", "22:16:40", 1), ("b", "22:13:25", 1)]


def test_rows_of_several_sources_go_to_the_topics_they_name(spark, store, orders):
    """One query, two sources and two sinks; rows without a value become JSON, without the topic."""
    store.create_topic("payments").write(b"2", key="k")
    store.create_topic("large")
    orders.write(b"1000", key="k")
    orders.write(b"7", key="k")

    @penstock.pipeline(source=["orders", "payments"], key="who")
    def split(first, second, *, least: int = 100):
        amount = F.col("value").cast("string").cast("long")
        both = first.union(second).select(F.col("key").cast("string").alias("who"), amount.alias("amount"))
        return both.withColumn("topic", F.when(amount_of(both) >= least, "large").otherwise("out"))

    def amount_of(frame):
        return frame.amount

    split.run(store, once=True, spark=spark)
    assert documents(store.topic("large")) == [{"who": "k", "amount": 1000}]
    assert sorted(each["amount"] for each in documents(store.topic("out"))) == [2, 7]
    assert {message.key for message in stored(store.topic("out"))} == {b"k"}
    assert store.pipeline("split").lag == 0
    assert store.pipeline("split").identity["source"] == ["orders", "payments"]


def test_row_for_a_topic_that_is_read_ends_the_run_and_nothing_is_written(spark, store, orders):
    orders.write(b"1")
    orders.write(b"2")

    @penstock.pipeline(source="orders")
    def loop(orders):
        return orders.withColumn("topic", F.when(F.col("value") == b"2", "orders").otherwise("out"))

    with pytest.raises(penstock.PipelineFailed, match="has a row for orders, which it reads"):
        loop.run(store, once=True, spark=spark)
    assert not stored(store.topic("out"))
    assert len(stored(orders)) == 2
    assert "has a row for orders" in store.pipeline("loop").run.error


def test_error_in_the_users_code_is_told_by_its_cause(spark, store, orders):
    orders.write(b"1")

    @penstock.pipeline(source="orders", sink="out")
    def broken(orders):
        return orders.select(F.udf(lambda value: str(1 // 0))("value").alias("value"))

    with pytest.raises(penstock.PipelineFailed, match="failed: ZeroDivisionError: "):
        broken.run(store, once=True, spark=spark)
    assert store.pipeline("broken").state == "failed"


def test_keyed_results_are_what_is_known_of_a_key(spark):
    found = example("keyed.py").test(
        {"orders": [{"product": "chair", "total": 30}, {"product": "table", "total": 99},
                    {"product": "chair", "total": 12}]}, spark=spark,
    )  # fmt: skip
    assert sorted(tuple(row) for row in found) == [("chair", 2, 42.0), ("table", 1, 99.0)]


def test_tables_are_read_from_the_formats_people_have(spark, tmp_path):
    """A Delta table needs no jar."""
    import deltalake
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"id": [1, 2], "name": ["Ada", "Bram"]})
    pq.write_table(table, tmp_path / "t.parquet")
    deltalake.write_deltalake(str(tmp_path / "delta"), table)
    (tmp_path / "t.csv").write_text("id,name\n1,Ada\n2,Bram\n")
    (tmp_path / "t.json").write_text('{"id": 1, "name": "Ada"}\n{"id": 2, "name": "Bram"}\n')
    for name in ("t.parquet", "t.csv", "t.json", "delta"):
        check_table("t", str(tmp_path / name))
        found = read_table(spark, "t", str(tmp_path / name)).select("id", "name").collect()
        assert sorted(map(tuple, found)) == [(1, "Ada"), (2, "Bram")], name
    (tmp_path / "bad.parquet").write_bytes(b"no parquet")
    with pytest.raises(penstock.PipelineFailed, match="reading table 't' failed"):
        read_table(spark, "t", str(tmp_path / "bad.parquet"))


@pytest.mark.slow
def test_the_charts_pipeline_writes_each_second_under_its_product(spark, store):
    """examples/live: what a page hears of the topic is what Spark wrote."""
    orders, sales = store.create_topic("orders"), store.events("sales")
    for second, product, total in ((100, "tea", 2), (100, "tea", 3), (101, "tea", 2), (100, "cake", 5)):
        orders.write(json.dumps({"product": product, "total": total, "time": 1_700_000_000 + second + 0.5}))
    load(str(EXAMPLES.parent / "live" / "sales.py")).run(store, once=True, spark=spark)
    heard = sales.subscribe(["tea"], rewind=10).events
    assert [(event.data["second"] - 1_700_000_000, event.data["total"]) for event in heard] == [
        (100, 5.0), (101, 2.0),
    ]  # fmt: skip
