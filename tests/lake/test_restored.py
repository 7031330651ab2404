"""An archive notices when its store was put back to an earlier state (18.1)."""

import shutil

import pytest

import penstock
from penstock.spark.pipelines.archive import archive
from tests.kit.slices import parse, survey
from tests.lake.rows import of_log, of_table


@pytest.fixture
def restored(store, run, table, tmp_path):
    """The table has 100 messages, of which the store has 60: it was put back."""
    topic = store.create_topic("orders")
    topic.write_many([b"x"] * 60)
    shutil.copytree(store.path, tmp_path / "backup")
    topic.write_many([b"y"] * 40)
    run()
    return tmp_path / "backup"


def test_an_archive_of_a_later_state_is_refused(restored, table, run):
    with pytest.raises(penstock.HistoryChanged, match=r"stands at 100.*ends at 60.*another table"):
        archive(str(restored), "orders", table, spark=object())


@pytest.mark.parametrize("on_gap", ["raise", "skip"])
def test_an_archive_of_another_history_is_refused_and_stays_as_it_is(restored, table, run, on_gap):
    before = of_table(table)
    with penstock.open(restored) as store:
        store.topic("orders").write_many([b"z"] * 100)
    with pytest.raises(penstock.HistoryChanged, match="offset 99 is another message now"):
        archive(str(restored), "orders", table, spark=object(), on_gap=on_gap)
    assert of_table(table) == before


def test_an_archive_goes_on_in_a_store_that_was_moved(store, run, table, tmp_path):
    topic = store.create_topic("orders", partitions=2)
    topic.write_many([b"x"] * 50, keys=[f"{n}" for n in range(50)])
    run()
    topic.write_many([b"y"] * 50, keys=[f"{n}" for n in range(50)])
    moved = tmp_path / "moved"
    shutil.copytree(store.path, moved)
    archive(str(moved), "orders", table, spark=object())
    assert of_table(table) == of_log(topic)


def test_history_of_another_state_is_not_read_with_the_log(restored, table):
    with pytest.raises(penstock.HistoryChanged, match=r"stands at 100.*read without history"):
        survey(parse({"path": str(restored), "topic": "orders", "history": str(table)}))
