"""What a pipeline's plan tells before it runs: columns it need not read, changes it cannot take, mistakes."""

import shutil
from functools import partial

import pytest
from pyspark.sql import functions as F

import penstock
from tests.kit.pipelines import build, identity
from tests.kit.slices import ALL
from tests.kit.stores import claim


@pytest.fixture
def orders(store):
    store.create_topic("out")
    store.create_topic("payments")
    return store.create_topic("orders")


@pytest.fixture
def built(spark, store, orders):
    """The query of a function, with the columns that it reads of each topic."""

    def built(function, **options):
        own = penstock.pipeline(**{"source": "orders", "sink": "out", "name": "own", **options})(function)
        query = build(spark, own.definition, partial(function), store=store.path)
        leaves = query.frame._jdf.queryExecution().analyzed().collectLeaves()
        read = [leaves.apply(n).extraOptions().get("columns") for n in range(leaves.size())]
        return query, read, identity(own.definition, query.plan)

    return built


def text(column="value"):
    return F.col(column).cast("string")


PRUNED = {
    "only the value": (lambda o: o.select(F.upper(text()).alias("value")), "value"),
    "a filter counts": (lambda o: o.where("offset > 5").select("value"), "offset,value"),
    "what is selected and dropped again does not": (
        lambda o: o.select("key", "value", "headers").select("value"), "value",
    ),
    "a copy needs what the sink takes": (lambda o: o, "partition,timestamp,key,value,headers"),
    "headers": (lambda o: o.select(F.col("headers")["a"].alias("value")), "headers"),
    "nothing": (lambda o: o.select(F.lit("x").alias("value")), "offset"),
    "keys of state": (lambda o: o.groupBy("key").agg(F.count("*").alias("n")), "key"),
    "a row as JSON is all of it": (lambda o: o.drop("value"), ",".join(n for n in ALL if n != "value")),
}  # fmt: skip


@pytest.mark.parametrize("name", PRUNED)
def test_only_the_columns_that_are_used_are_read(built, name):
    function, columns = PRUNED[name]
    query, read, _ = built(function)
    assert read == [columns]
    assert query.frame.isStreaming


def test_each_topic_is_read_by_its_own_columns(built):
    def join(orders, payments):
        return orders.alias("o").join(payments.alias("p"), F.expr("o.key = p.key")).select("o.value")

    _, read, found = built(join, source=["orders", "payments"])
    assert read == ["key,value", "key"]
    assert found["source"] == ["orders", "payments"]
    assert len(found["state"]) == 1


def per_minute(minutes: int = 1, least: int = 0, by: str = "key"):
    def function(orders):
        shaped = orders.where(F.col("offset") > least).withWatermark("timestamp", "1 minute")
        windows = shaped.groupBy(F.window("timestamp", f"{minutes} minutes"), by)
        return windows.agg(F.count("*").alias("n"))

    return function


def sliding(minutes: int):
    def function(orders):
        windows = orders.withWatermark("timestamp", "1 minute").groupBy(
            F.window("timestamp", "10 minutes", f"{minutes} minutes")
        )
        return windows.count()

    return function


def mapped(kept: str):
    def function(orders):
        return orders.groupBy("key").applyInPandasWithState(
            lambda key, frames, state: iter(()), "n long", kept, "append", "NoTimeout"
        )

    return function


def total(of: str):
    return lambda orders: orders.groupBy("key").agg(F.sum(of).alias("n"))


def test_harmless_changes_leave_the_fingerprint_and_others_do_not(built):
    def state(function, **options):
        return built(function, **options)[2]

    same = state(per_minute())
    assert same == state(per_minute()) == state(per_minute(least=7))
    differing = [
        same, state(per_minute(minutes=5)), state(per_minute(by="partition")), state(total("offset")),
        state(total("partition")), state(lambda o: o.dropDuplicates(["key"])),
        state(lambda o: o.select("value")), state(sliding(5)), state(sliding(2)), state(mapped("a long")),
        state(mapped("a long, b long")),
    ]  # fmt: skip
    told = [str(each["state"]) for each in differing]
    assert len(set(told)) == len(told)
    assert state(lambda o: o.select("value")) == state(lambda o: o.where("offset > 3").select("key", "value"))


def test_pipeline_that_is_not_what_its_checkpoint_was_made_by_is_refused(spark, store, orders, built):
    with claim(store, "n", kind="run", identity=built(total("offset"), name="n")[2]):
        pass
    changed = penstock.pipeline(source="orders", sink="out", name="n")(total("partition"))
    with pytest.raises(penstock.PipelineChanged, match="was made with state") as caught:
        changed.run(store, once=True, spark=spark)
    assert "penstock pipeline drop n" in caught.value.hint


MISTAKES = {
    "a column that is not there": (
        lambda o: o.select("price"), {}, penstock.PipelineFailed, "failed: AnalysisException: .*UNRESOLVED",
    ),
    "an error of its own": (lambda o: {}["x"], {}, penstock.PipelineFailed, "failed: KeyError: 'x'"),
    "returns nothing": (lambda o: None, {}, penstock.WrongType, "returned NoneType, not a DataFrame"),
    "does not stream": (
        lambda o: o.sparkSession.range(3).selectExpr("string(id) AS value"), {}, penstock.InvalidOption,
        "does not stream",
    ),
    "a source is not used": (
        lambda o, p: o, {"source": ["orders", "payments"]}, penstock.InvalidOption, "does not use its source",
    ),
    "a source is joined with itself": (
        lambda o: o.alias("a").join(o.alias("b"), F.expr("a.key = b.key")).select("a.value"), {},
        penstock.InvalidOption, "reads 'orders' 2 times",
    ),
    "no topic": (lambda o: o.drop("topic"), {"sink": None}, penstock.InvalidOption, "which topic"),
    "a column that a message has not": (
        lambda o: o.withColumn("price", F.lit(1)), {}, penstock.InvalidOption, "no 'price'",
    ),
    "no such key": (
        lambda o: o.select("offset"), {"key": "customer"}, penstock.InvalidOption, "is not a column",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_is_told_before_anything_runs(built, name):
    function, options, error, told = MISTAKES[name]
    with pytest.raises(error, match=told):
        built(function, **options)


def test_topic_may_be_a_source_twice(built):
    def pairs(left, right):
        return left.alias("a").join(right.alias("b"), F.expr("a.key = b.key")).select("a.value")

    _, read, found = built(pairs, source=["orders", "orders"])
    assert found["source"] == ["orders", "orders"]
    assert read == ["key,value", "key,value"]


@pytest.mark.slow
def test_lost_checkpoint_is_told_and_nothing_is_written_twice(spark, store, orders):
    orders.write(b"1")
    copy = penstock.pipeline(source="orders", sink="out", name="copy")(lambda o: o.select("value"))
    copy.run(store, once=True, spark=spark)
    shutil.rmtree(store.pipeline("copy").checkpoint)
    with pytest.raises(penstock.PipelineChanged, match="checkpoint of pipeline 'copy' is gone"):
        copy.run(store, once=True, spark=spark)
    store.drop_pipeline("copy")  # that is what begins anew
    copy.run(store, once=True, spark=spark)
    assert [message.value for message in store.topic("out").read()] == [b"1", b"1"]
