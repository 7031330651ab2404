"""What an archive has of partitions that were split and are gone (S001-27)."""

from collections.abc import Callable

import pyarrow as pa
import pytest

import penstock
from penstock.spark.pipelines.archive import archive
from tests.kit.pipelines import executors_module as executors
from tests.lake.archived_topic import slices, stream_query, table_of
from tests.lake.conftest import spread_here


@pytest.fixture
def store(clocked_store) -> penstock.Store:
    return clocked_store


@pytest.fixture
def topic(store) -> penstock.Topic:
    return store.create_topic("orders", retention="1h", sync="os", autopartitioning="paused")


@pytest.fixture
def run(store, table, monkeypatch) -> Callable:
    monkeypatch.setattr(executors, "spread", spread_here)
    return lambda **options: archive(store.path, "orders", table, spark=object(), **options)


def write(topic, partition, *values):
    topic.write_many([value.encode() for value in values], partition=partition)


def removed(topic, clock):
    """Partition 0, archived with a and b, is gone; 1 and 2 have c and d, which are not archived."""
    clock.advance("2h")
    assert topic.vacuum().removed == (0,)
    write(topic, 1, "c")
    write(topic, 2, "d")


def test_history_finds_what_a_removed_partition_held(store, topic, run, table, clock):
    write(topic, 0, "a", "b")
    topic.split(0)
    run()
    removed(topic, clock)
    scan = topic.scan(history=table)
    assert [(m.partition, m.offset, m.value) for m in scan.messages()] == [
        (0, 0, b"a"), (0, 1, b"b"), (1, 0, b"c"), (2, 0, b"d"),
    ]  # fmt: skip
    assert [m.value for m in topic.scan(partition=0, start=1, history=table).messages()] == [b"b"]
    assert [m.value for m in topic.scan(start="1h", history=table).messages()] == [b"c", b"d"]
    assert scan.to_arrow().column("value").to_pylist() == [b"a", b"b", b"c", b"d"]
    planned = slices(store, history=str(table))
    assert table_of(planned).column("value").to_pylist() == [b"a", b"b", b"c", b"d"]


def test_a_stream_reads_a_removed_partition_from_its_archive_before_its_children(
    store, topic, run, table, clock
):
    write(topic, 0, "a", "b")
    topic.split(0)
    run()
    removed(topic, clock)
    query = stream_query(store, history=str(table))
    begin, found = query.initial(), []
    while (end := query.latest(begin, 1, None)) != begin:
        found += table_of(query.planned(begin, end)).column("value").to_pylist()
        begin = end
    query.close()
    assert found[:2] == [b"a", b"b"]
    assert sorted(found[2:]) == [b"c", b"d"]


def test_what_the_table_does_not_have_either_is_told(topic, run, table, clock):
    write(topic, 0, "a")
    run()
    write(topic, 0, "b")
    topic.split(0)
    removed(topic, clock)
    with pytest.raises(penstock.OffsetTrimmed, match="offsets 1 to 1 of 'orders' partition 0 are gone"):
        list(topic.scan(history=table).messages())
    with pytest.raises(penstock.OffsetTrimmed, match="partition 0, offsets 1 to 1"):
        run()
    run(on_gap="skip")
    assert run().rows == 0


def test_an_archive_that_begins_later_begins_with_what_is_there(topic, run, table, clock):
    write(topic, 0, "a")
    topic.split(0)
    removed(topic, clock)
    run()
    assert run().rows == 0
    assert [m.value for m in topic.scan(history=table).messages()] == [b"c", b"d"]
    assert isinstance(topic.scan(history=table).to_arrow(), pa.Table)


def test_an_archive_goes_on_when_what_it_has_is_removed(topic, run, clock):
    write(topic, 0, "a")
    run()
    topic.split(0)
    removed(topic, clock)
    assert run().rows == 2
