"""Redrive, on both engines: dead letters that fit come again to their consumers, others stay."""

import pytest

import penstock
from penstock.spark.pipelines.redrive import redrive
from tests.e2e.command import Command


@pytest.fixture
def topic(store):
    topic = store.create_topic("orders", partitions=2)
    for number in range(20):
        topic.write(f"m{number}", key=f"k{number}", partition=number % 2)
    for consumer in ("billing", "mail"):
        with topic.reader(consumer=consumer) as reader:
            for _ in range(20):
                message = reader.receive(timeout=5)
                reader.reject(message, "odd" if message.partition else "even")
    return topic


@pytest.fixture
def store(tmp_path):
    with penstock.open(tmp_path / "penstock-data") as opened:
        yield opened


def received(topic, consumer):
    found = []
    with topic.reader(consumer=consumer) as reader:
        while (message := reader.receive(timeout=0.2)) is not None:
            found.append(message.text)
            reader.commit(message)
    return sorted(found)


@pytest.mark.parametrize("engine", ["python", "spark"])
def test_those_that_fit_come_again(spark, store, topic, engine):
    store.dead_letters("orders").drop([0])
    options = {"engine": engine, "spark": spark}
    assert redrive(store, "orders", consumer="billing", reason="odd", **options).replayed in (9, 10)
    back = received(topic, "billing")
    assert set(back) <= {f"m{number}" for number in range(1, 20, 2)}
    assert received(topic, "mail") == []
    left = store.dead_letters("orders").count()
    assert left == 39 - len(back)
    assert redrive(store, "orders", consumer="billing", reason="odd", **options).replayed == 0


def test_sql_chooses(spark, store, topic):
    where = "consumer = 'mail' AND CAST(value AS STRING) IN ('m3', 'm4') AND attempts = 1 AND offset < 5"
    assert redrive(store, "orders", where=where, spark=spark).replayed == 2
    assert received(topic, "mail") == ["m3", "m4"]
    with pytest.raises(penstock.InvalidOption, match="needs Spark"):
        redrive(store, "orders", where=where, engine="python")


def test_the_command(store, topic, tmp_path):
    command = Command(tmp_path)
    done = command.quick_json("pipeline", "redrive", "orders", "--engine", "python", "--consumer", "mail")
    assert done["result"] == {"topic": "orders", "engine": "python", "replayed": 20}
    assert store.pipeline("redrive-orders").kind == "redrive"
