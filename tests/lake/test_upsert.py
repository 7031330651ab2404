"""`upsert`: a table with the latest message of each key, changed by MERGE, exactly once (18.9)."""

import shutil

import pytest
from deltalake import DeltaTable

import penstock
from tests.kit.archives import CurrentTable
from tests.kit.pipelines import upsert


@pytest.fixture
def topic(store):
    return store.create_topic("users", partitions=2)


def rows(table) -> dict[bytes, bytes]:
    found = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    assert len({row["key"] for row in found}) == len(found)
    return {row["key"]: row["value"] for row in found}


def test_rows_are_the_latest_of_each_key_and_tombstones_delete(store, topic, table):
    topic.write_many([b"%d" % n for n in range(100)], keys=[f"k{n % 10}" for n in range(100)])
    first = upsert(store, "users", table, engine="python")
    assert rows(table) == {b"k%d" % n: b"%d" % (90 + n) for n in range(10)}
    assert (first.read, first.written, first.deleted) == (100, 10, 0)
    topic.write(None, key="k3")
    topic.write(b"new", key="k1")
    topic.write(b"x", key="k11")
    topic.write(None, key="k11")
    topic.write(b"nobody's")
    second = upsert(store, "users", table, engine="python")
    assert (second.read, second.written, second.deleted) == (5, 1, 1)
    there = rows(table)
    assert b"k3" not in there
    assert b"k11" not in there
    assert there[b"k1"] == b"new"
    third = upsert(store, "users", table, engine="python")
    assert (third.read, third.merges) == (0, 0)


def test_messages_without_keys_are_passed_over(store, topic, table):
    topic.write_many([b"nobody's"] * 5)
    first = upsert(store, "users", table, engine="python")
    assert (first.read, first.written) == (5, 0)
    assert upsert(store, "users", table, engine="python").read == 0
    topic.write(b"v", key="a")
    assert upsert(store, "users", table, engine="python").read == 1
    assert rows(table) == {b"a": b"v"}


def test_a_row_tells_where_its_message_lies(store, topic, table):
    where = topic.write(b"v", key="a", timestamp=1_700_000_000_000_000_000)
    upsert(store, "users", table, engine="python")
    (row,) = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    assert (row["partition"], row["offset"]) == (where.partition, where.offset)
    assert row["timestamp"].timestamp() == 1_700_000_000


def test_killed_before_the_commit_or_after_it_every_message_counts_once(store, topic, table, monkeypatch):
    topic.write_many([b"1"] * 10, keys=[f"k{n}" for n in range(10)])
    merge = CurrentTable.merge

    def dies_before(self, found, positions):
        raise KeyboardInterrupt

    def dies_after(self, found, positions):
        merge(self, found, positions)
        raise KeyboardInterrupt

    for dying, there in ((dies_before, 0), (dies_after, 10)):
        monkeypatch.setattr(CurrentTable, "merge", dying)
        with pytest.raises(KeyboardInterrupt):
            upsert(store, "users", table, engine="python")
        assert len(rows(table)) == there
    monkeypatch.setattr(CurrentTable, "merge", merge)
    version = DeltaTable(str(table)).version()
    assert upsert(store, "users", table, engine="python").read == 0
    assert DeltaTable(str(table)).version() == version


def test_a_store_put_back_is_noticed(store, topic, table, tmp_path):
    topic.write_many([b"1"] * 10, keys=[f"k{n}" for n in range(10)])
    shutil.copytree(store.path, tmp_path / "backup")
    topic.write_many([b"2"] * 10, keys=[f"k{n}" for n in range(10)])
    upsert(store, "users", table, engine="python")
    with penstock.open(tmp_path / "backup") as restored, pytest.raises(penstock.HistoryChanged) as raised:
        upsert(restored, "users", table, engine="python")
    assert "checkpointLocation" not in raised.value.hint  # an upsert has none
    assert "another table" in raised.value.hint
    assert "penstock pipeline drop upsert-users" in raised.value.hint  # else that table would be refused


def test_tables_of_something_else_are_refused(store, topic, table, tmp_path):
    store.create_topic("other").write(b"x", key="a")
    topic.write(b"x", key="a")
    upsert(store, "users", table, engine="python")
    with pytest.raises(penstock.ForeignArchive):
        upsert(store, "other", table, name="o", engine="python")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    with pytest.raises(penstock.NotATable):
        upsert(store, "users", tmp_path / "full", name="f", engine="python")
    with pytest.raises(penstock.NotATable, match=r"full/file is a file"):
        upsert(store, "users", tmp_path / "full" / "file", name="f", engine="python")


def test_what_is_refused_leaves_neither_a_pipeline_nor_a_table(store, topic, table, tmp_path):
    """The next try, with the right table, was refused: the pipeline had been made with the wrong one."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    with pytest.raises(penstock.NotATable):
        upsert(store, "users", tmp_path / "full", engine="python")
    with pytest.raises(penstock.InvalidOption, match="engine='java'"):
        upsert(store, "users", tmp_path / "new", engine="java")
    assert (store.pipelines(), (tmp_path / "new").exists()) == ([], False)
    topic.write(b"x", key="a")
    assert upsert(store, "users", table, engine="python").written == 1
    with pytest.raises(penstock.PipelineChanged):
        upsert(store, "users", tmp_path / "new", engine="python")
    assert not (tmp_path / "new").exists()
