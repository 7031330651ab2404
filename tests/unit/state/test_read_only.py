"""Opening a store with `read_only=True`: nothing appears in the folder, and changes are seen."""

import os
import sqlite3

import pytest

import penstock
from penstock.state.read_only import ReadOnlyConnection


def names(path):
    return sorted(os.listdir(path))


def test_reading_leaves_no_file_behind(tmp_path):
    with penstock.open(tmp_path) as store:
        store.create_topic("orders").write("x")
    before = names(tmp_path)
    with penstock.open(tmp_path, read_only=True) as store:
        assert [topic.name for topic in store.topics()] == ["orders"]
        assert names(tmp_path) == before
    assert names(tmp_path) == before


def test_what_others_write_is_seen_while_they_are_there_and_after_they_left(tmp_path):
    with penstock.open(tmp_path) as store:
        store.create_topic("first")
    with penstock.open(tmp_path, read_only=True) as reader:
        assert [topic.name for topic in reader.topics()] == ["first"]
        with penstock.open(tmp_path) as writer:
            writer.create_topic("second")
            assert [topic.name for topic in reader.topics()] == ["first", "second"]
        with penstock.open(tmp_path) as writer:
            writer.create_topic("third")
        assert [topic.name for topic in reader.topics()] == ["first", "second", "third"]


def test_a_change_between_two_quiet_states_is_seen(tmp_path):
    with penstock.open(tmp_path) as store:
        store.create_topic("first")
    with penstock.open(tmp_path, read_only=True) as reader:
        assert len(reader.topics()) == 1
        with penstock.open(tmp_path) as writer:
            writer.create_topic("second")
        assert len(reader.topics()) == 2


def test_what_a_killed_writer_left_in_the_log_is_read(tmp_path):
    path = str(tmp_path / "state.db")
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE t (x)")
    connection.execute("INSERT INTO t VALUES (7)")
    reader = ReadOnlyConnection(path)
    assert reader.rows("SELECT x FROM t") == [(7,)]
    reader.close()
    connection.close()


def test_damage_met_while_reading_is_a_data_error(tmp_path):
    with penstock.open(tmp_path) as store:
        for number in range(200):
            store.create_topic(f"topic-{number}")
    state = tmp_path / "state.db"
    content = state.read_bytes()
    page = int.from_bytes(content[16:18], "big")
    state.write_bytes(content[: 2 * page] + b"\xee" * (len(content) - 2 * page))
    with pytest.raises(penstock.DataError), penstock.open(tmp_path, read_only=True) as store:
        store.topics()
