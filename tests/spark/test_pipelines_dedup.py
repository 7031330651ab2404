"""Dedup: the first of those that are alike within a time, in order, once, also when a batch is run again."""

import pytest

import penstock
from penstock.spark.pipelines.dedup import dedup
from penstock.testing import Clock
from tests.e2e.command import Command
from tests.spark.streams import as_bytes

SECOND = 1_000_000_000


def values(topic, number=None):
    return [m.value for m in topic.scan(partition=number).messages()]


def copied(messages) -> list[tuple]:
    """What comes through Spark: microseconds, and headers as bytes."""
    return [(m.partition, m.key, m.value, as_bytes(m.headers), m.timestamp // 1000) for m in messages]


def test_first_ones_in_order_and_each_batch_once(spark, store, tmp_path):
    source, sink = store.create_topic("a", partitions=2), store.create_topic("b", partitions=2)
    source.write_many(
        [b"%d" % n for n in range(300)], keys=[b"k%d" % (n % 40) for n in range(300)],
        headers=[{"n": str(n)} for n in range(300)],
    )  # fmt: skip
    source.write(b"alone"), source.write(b"alone")
    wanted = {}
    for m in source.scan().messages():
        wanted.setdefault(m.key or (m.partition, m.offset), m)
    done = dedup(store, "a", "b", within="10m", once=True, spark=spark)
    assert (done.read, done.written, done.duplicates, done.late) == (302, 42, 260, 0)
    assert copied(sink.scan().messages()) == copied(wanted.values())

    # As if Spark had died between our commit of the last batch and its own: it comes again, and is skipped.
    source.write_many([b"again", b"new"], keys=["k1", "other"])
    assert dedup(store, "a", "b", within="10m", once=True, spark=spark).written == 1
    commits = tmp_path / "data" / "pipelines" / "dedup-a" / "checkpoint" / "commits"
    last = max((path for path in commits.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    for path in (last, commits / f".{last.name}.crc"):
        path.unlink(missing_ok=True)
    source.write_many([b"again", b"newer"], keys=["k2", "another"])
    dedup(store, "a", "b", within="10m", once=True, spark=spark)
    assert len(values(sink)) == 44
    assert sorted(values(sink))[-3:] == sorted([b"alone", b"new", b"newer"])
    assert store.pipeline("dedup-a").lag == 0


@pytest.mark.slow
def test_what_is_alike_by_an_expression_and_only_within_the_time(spark, tmp_path):
    clock = Clock(1_700_000_000 * SECOND)
    with penstock.open(tmp_path / "timed", clock=clock) as store:
        source, sink = store.create_topic("a"), store.create_topic("b", partitions=3)
        source.write(b'{"id": 1, "n": 1}')
        source.write(b'{"id": 1, "n": 2}')
        source.write(b"no json"), source.write(b"no json")
        dedup(store, "a", "b", within="10m", by="get_json_object(text, '$.id')", once=True, spark=spark)
        assert sorted(values(sink)) == sorted([b'{"id": 1, "n": 1}', b"no json", b"no json"])
        clock.advance(3600)
        source.write(b'{"id": 2, "n": 3}')
        dedup(store, "a", "b", within="10m", by="get_json_object(text, '$.id')", once=True, spark=spark)
        source.write(b'{"id": 1, "n": 4}')
        dedup(store, "a", "b", within="10m", by="get_json_object(text, '$.id')", once=True, spark=spark)
        assert len(values(sink)) == 5
        with pytest.raises(penstock.PipelineChanged, match=r"by .*not 'key'"):
            dedup(store, "a", "b", within="10m", once=True, spark=spark)


def test_a_wrong_expression_is_told_in_a_line_and_leaves_nothing(spark, store, capfd):
    store.create_topic("a"), store.create_topic("b")
    for wrong, said in (("nosuch", "UNRESOLVED_COLUMN"), ("lower(", "PARSE_SYNTAX_ERROR")):
        with pytest.raises(penstock.InvalidOption, match=said) as caught:
            dedup(store, "a", "b", within="1m", by=wrong, once=True, spark=spark)
        assert "\n" not in str(caught.value)
    assert store.pipelines() == []
    assert "stacktrace" not in capfd.readouterr().err


def test_the_command(spark, tmp_path):
    command = Command(tmp_path)
    with penstock.open(command.store) as store:
        store.create_topic("b")
        store.create_topic("a").write_many([b"1", b"1", b"2"])
    result = command.quick_json("pipeline", "dedup", "a", "b", "--by", "value", "--within", "1m", "--once")
    assert result["kind"] == "dedup"
    assert result["result"]["duplicates"] == 1
    with penstock.open(command.store) as store:
        assert values(store.topic("b")) == [b"1", b"2"]
