"""`state.db` by single statements: what one leaves behind for the next, and for others."""

import os
import sqlite3
from contextlib import closing

import pytest

import penstock
from penstock.state.database import Database


@pytest.fixture
def database(tmp_path):
    with closing(
        Database(os.fspath(tmp_path / "state.db"), penstock.Files(), create=True, read_only=False)
    ) as made:
        yield made


def test_the_first_row_of_many_leaves_no_read_open(database):
    """A read that stays open would keep SQLite's log from being emptied, for as long as the store is open."""
    assert len(database.rows("SELECT name FROM sqlite_master")) > 2
    assert database.row("SELECT name FROM sqlite_master") is not None
    assert database.quick("INSERT INTO meta VALUES ('a', 'b')", ()) == 1
    assert database.row("SELECT name FROM sqlite_master") is not None
    with closing(sqlite3.connect(database.path)) as other:
        busy, left, moved = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    assert (busy, left, moved) == (0, 0, 0)


def test_a_read_inside_a_read_has_its_own_answer(database):
    """As in a signal handler: neither gets what the other asked for."""
    inner = []

    def read_meanwhile():
        inner.append(database.row("SELECT 'inner'"))
        return "outer"

    database._connection.create_function("read_meanwhile", 0, read_meanwhile)
    for _ in range(2):
        assert database.row("SELECT read_meanwhile()") == ("outer",)
    assert inner == [("inner",)] * 2
    assert database.row("SELECT 1 WHERE 0") is None
