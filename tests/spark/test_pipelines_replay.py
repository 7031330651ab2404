"""An archive replayed into a topic: each message once, to the nanosecond."""

import pytest

import penstock
from penstock.spark.pipelines.archive import archive
from penstock.spark.pipelines.replay_table import replay_table
from tests.e2e.command import Command
from tests.kit.pipelines import plan_replay_table, wanted_of
from tests.require import require
from tests.spark.streams import as_bytes

require("deltalake")


def content(topic) -> list[tuple]:
    """A table has headers as bytes; all else comes back as it was."""
    return [
        (m.partition, m.key, m.value, as_bytes(m.headers), m.timestamp)
        for m in topic.scan().messages()
    ]  # fmt: skip


def fill(topic, first: int, count: int) -> None:
    numbers = range(first, first + count)
    topic.write_many(
        [None if n % 9 == 0 else b"%d" % n for n in numbers], keys=[b"k%d" % (n % 13) for n in numbers],
        timestamps=[1_700_000_000_000_000_123 + n for n in numbers], headers=[{"n": str(n)} for n in numbers],
    )  # fmt: skip


def test_everything_comes_back_once_and_later_what_was_archived_since(spark, store, tmp_path):
    source = store.create_topic("a", partitions=2)
    sink = store.create_topic("b", partitions=2)
    table = str(tmp_path / "table")
    fill(source, 0, 400)
    archive(store.path, "a", table, spark=spark)
    plan = plan_replay_table(store, table, "b")
    assert (plan.messages, [each.stop for each in plan.partitions]) == (
        400,
        [b.end for b in source.stats().partitions],
    )
    assert replay_table(store, table, "b", spark=spark).messages == 400
    assert content(sink) == content(source)
    fill(source, 400, 100)
    archive(store.path, "a", table, spark=spark)
    assert replay_table(store, table, "b", spark=spark).messages == 100
    assert replay_table(store, table, "b", spark=spark).messages == 0
    assert content(sink) == content(source)
    command = Command(tmp_path)
    (tmp_path / "penstock-data").symlink_to(store.path)
    store.create_topic("some")
    words = (
        "pipeline",
        "replay",
        "--from-table",
        "table",
        "some",
        "--from",
        "0:10,1:20",
        "--to",
        "0:15,1:25",
    )
    assert command.quick_json(*words, "--dry-run")["messages"] == 10
    assert command.quick_json(*words, "--name", "some")["result"]["messages"] == 10
    assert sorted(m.value or b"" for m in store.topic("some").scan().messages()) == sorted(
        m.value or b""
        for n, start in ((0, 10), (1, 20))
        for m in source.read(partition=n, start=start, stop=start + 5)
    )
    assert command.quick(*words, "--rate", "5/s").code == 2


def test_places_in_an_archive():
    assert wanted_of(1, {0: 5}, {1: 9}, 0)[:2] == (0, 9)
    assert wanted_of(0, 7, "latest", 0)[:2] == (7, 2**63 - 1)
    assert wanted_of(0, "1970-01-01T00:00:01Z", "1970-01-01T00:00:02Z", 0)[2:] == (10**9, 2 * 10**9)
    with pytest.raises(penstock.InvalidOption, match="no latest message"):
        wanted_of(0, "latest", "latest", 0)


def test_what_is_no_archive_is_refused(store, tmp_path):
    store.create_topic("b")
    with pytest.raises(penstock.NotATable):
        replay_table(store, str(tmp_path / "nothing"), "b")
    with pytest.raises(penstock.UnknownTopic):
        replay_table(store, str(tmp_path / "nothing"), "c")
    assert store.pipelines() == []
