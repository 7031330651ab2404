"""What is said of a commit is true: before its record "not committed", behind it only "committed"."""

import sqlite3
from pathlib import Path

import pytest

import penstock
from tests.kit.logs import Syncer
from tests.kit.stores import Database, Transactions


@pytest.fixture
def store(tmp_path):
    with penstock.open(tmp_path) as store:
        store.create_topic("payments")
        yield store


def paid(store):
    return [message.value for message in store.topic("payments").read()]


def test_a_commit_whose_record_cannot_be_removed_is_a_commit(store, monkeypatch):
    def full(*_):
        raise penstock.Unavailable("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Transactions, "finish", full)
        with store.transaction() as tx:
            tx.write("payments", b"100 EUR")
    assert paid(store) == [b"100 EUR"]
    with penstock.open(store.path) as again:
        assert paid(again) == [b"100 EUR"]


def test_what_fails_behind_the_record_says_that_it_is_committed(store, monkeypatch):
    def stuck(*_):
        raise penstock.LockTimeout("process 7 holds the tail", pid=7)

    with monkeypatch.context() as patch:
        patch.setattr(Syncer, "sync", stuck)
        with pytest.raises(penstock.errors.NotYetDurable, match="the transaction is committed") as raised:
            with store.transaction() as tx:
                tx.write("payments", b"100 EUR")
    assert not raised.value.retryable
    store.topic("payments").write(b"200 EUR")  # whose sync covers what came before
    assert paid(store) == [b"100 EUR", b"200 EUR"]


def test_a_write_that_could_not_wait_for_its_sync_says_that_it_is_in_the_log(store, monkeypatch):
    def stuck(*_):
        raise penstock.LockTimeout("process 7 holds the tail", pid=7)

    with monkeypatch.context() as patch:
        patch.setattr(Syncer, "sync", stuck)
        with pytest.raises(penstock.errors.NotYetDurable, match="not yet durable") as raised:
            store.topic("payments").write(b"100 EUR")
    assert not raised.value.retryable
    store.topic("payments").write(b"200 EUR")
    assert paid(store) == [b"100 EUR", b"200 EUR"]


class FailingConnection:
    """A connection whose COMMIT fails as a disk does, so many times."""

    def __init__(self, connection, failures):
        self._connection = connection
        self.failures = failures

    def execute(self, sql, *arguments):
        if sql == "COMMIT" and self.failures:
            self.failures -= 1
            raise sqlite3.OperationalError("disk I/O error")
        return self._connection.execute(sql, *arguments)

    def __getattr__(self, name):
        return getattr(self._connection, name)


def fail(store, failures, monkeypatch):
    (database,) = {each for each in DATABASES if each.path.startswith(store.path)}
    monkeypatch.setattr(database, "_connection", FailingConnection(database._connection, failures))


DATABASES = set()


@pytest.fixture(autouse=True)
def databases(monkeypatch):
    """The databases that a test opens."""
    make = Database.__init__

    def noted(self, *arguments, **options):
        make(self, *arguments, **options)
        DATABASES.add(self)

    monkeypatch.setattr(Database, "__init__", noted)
    yield
    DATABASES.clear()


def test_a_failed_commit_that_was_written_over_did_not_happen_and_may_be_tried_again(store, monkeypatch):
    with monkeypatch.context() as patch:
        fail(store, 1, patch)
        with pytest.raises(penstock.Unavailable) as raised:
            with store.transaction() as tx:
                tx.write("payments", b"100 EUR")
        assert raised.value.retryable
    assert paid(store) == []
    with store.transaction() as tx:
        tx.write("payments", b"100 EUR")
    assert paid(store) == [b"100 EUR"]


def test_a_commit_that_nobody_knows_of_is_said_to_be_unknown_and_keeps_what_it_staged(store, monkeypatch):
    with monkeypatch.context() as patch:
        fail(store, 2, patch)
        with pytest.raises(penstock.errors.OutcomeUnknown) as raised:
            with store.transaction() as tx:
                tx.write_many("payments", [b"x" * 100_000] * 100)
        assert not raised.value.retryable
        assert "look" in raised.value.hint
    staged = list(Path(store.path).rglob("*.staged"))
    assert staged, "what it staged is needed if it turns out to be committed"
