"""A running stream with state by key, in a real session, while its topic is split (S001-22)."""

import time

from tests.kit.patience import PATIENCE_S

KEYS = [f"key-{number}" for number in range(10)]


def in_turn(key, frames, state):
    """Counts how often a message of a key is not the one behind the last."""
    import pandas

    last, wrong = state.get if state.exists else (-1, 0)
    rows = pandas.concat(list(frames)).sort_values(["partition", "offset"])
    for value in rows["value"]:
        number = int(bytes(value))
        wrong += number != last + 1
        last = number
    state.update((last, wrong))
    yield pandas.DataFrame({"key": [bytes(key[0]).decode()], "last": [last], "wrong": [wrong]})


def test_state_by_key_sees_each_key_in_order_over_splits(spark, store, tmp_path):
    """No batch has a key's messages from both sides of a split, and none comes before an earlier one."""
    topic = store.create_topic("orders", autopartitioning="paused", sync="os")
    source = spark.readStream.format("penstock").options(topic="orders", consumer="c").load(store.path)
    counted = source.groupBy("key").applyInPandasWithState(
        in_turn, "key string, last int, wrong int", "last int, wrong int", "update", "NoTimeout"
    )
    running = (
        counted.writeStream.format("memory").queryName("in_turn").outputMode("update")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="0 seconds").start()
    )  # fmt: skip
    try:
        written = 0
        for parent in (0, 1):
            for _ in range(5):
                topic.write_many([b"%d" % written] * len(KEYS), keys=KEYS)
                written += 1
            topic.split(parent)
            topic.write_many([b"%d" % written] * len(KEYS), keys=KEYS)
            written += 1
        deadline = time.monotonic() + PATIENCE_S
        while not topic.consumers() or topic.consumers()[0].lag:
            assert time.monotonic() < deadline, running.exception()
            time.sleep(0.1)
    finally:
        running.stop()
    rows = spark.sql("SELECT key, max(last), max(wrong) FROM in_turn GROUP BY key").collect()
    assert sorted(tuple(row) for row in rows) == [(key, written - 1, 0) for key in sorted(KEYS)]
