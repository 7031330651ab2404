"""Odd moments, odd files, odd timing: an error that says what to do, never a raw one."""

import sqlite3
import threading
from datetime import UTC, datetime, timedelta, timezone

import pytest

import penstock
from tests.kit.stores import Expiry, apply_repair, plan_repair
from tests.kit.topics import inside

MOMENTS = [
    datetime.min, datetime.max, datetime.min.replace(tzinfo=UTC),
    datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
    datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))),
]  # fmt: skip


@pytest.mark.parametrize("moment", MOMENTS, ids=str)
def test_moments_at_the_ends_of_time_are_refused_by_name(tmp_path, moment):
    with penstock.open(tmp_path) as store:
        topic = store.create_topic("orders")
        writer = topic.writer()
        for act in (
            lambda: topic.write(b"x", timestamp=moment),
            lambda: topic.write_many([b"x"], timestamps=[moment]),
            lambda: writer.write(b"x", timestamp=moment),
            lambda: topic.write(b"x", deliver_at=moment),
            lambda: topic.read(start=moment),
            lambda: topic.add_consumer("c", read_from=moment),
        ):
            with pytest.raises(penstock.InvalidOption, match="1677 to 2262"):
                act()


@pytest.mark.parametrize("read_only", [False, True])
def test_a_database_that_cannot_be_opened(tmp_path, read_only):
    with penstock.open(tmp_path) as store:
        store.create_topic("orders")
    path = tmp_path / "state.db"
    path.rename(tmp_path / "aside")
    path.mkdir()
    with pytest.raises(penstock.NotAStore, match="cannot be read as a store's database"):
        penstock.open(tmp_path, read_only=read_only)


@pytest.mark.parametrize("failure", [FileNotFoundError(2, "gone"), penstock.NotDurable("the disk failed")])
def test_a_topic_dropped_between_append_and_sync(tmp_path, monkeypatch, failure):
    """It is not the disk: the topic is gone, and the message with it."""
    with penstock.open(tmp_path) as store, penstock.open(tmp_path) as other:
        topic = store.create_topic("orders")

        def sync_what_is_gone(*appended):
            other.drop_topic("orders")
            raise failure

        monkeypatch.setattr(inside(topic).log(0).syncer, "sync", sync_what_is_gone)
        with pytest.raises(penstock.TopicReplaced):
            topic.write(b"x")


@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_disk_that_fails_while_a_store_is_made(tmp_path, monkeypatch, call):
    """SQLite's own error is not raised raw; on a disk that is well the store is made after all."""
    seen = []

    class Failing(sqlite3.Connection):
        def executescript(self, script):
            return self._counted(super().executescript, script)

        def execute(self, sql, *arguments):
            return self._counted(super().execute, sql, *arguments)

        def _counted(self, act, sql, *arguments):
            if "synchronous = FULL" in sql or seen:
                seen.append(sql)
            if len(seen) == call:
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorname = "SQLITE_IOERR_FSYNC"
                raise error
            return act(sql, *arguments)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *given, **more: connect(*given, factory=Failing, **more))
    with pytest.raises(penstock.Unavailable, match="disk I/O error"):
        penstock.open(tmp_path / "store")
    with penstock.open(tmp_path / "store") as store:
        assert store.create_topic("orders").write(b"x").offset == 0


def test_a_store_that_could_not_be_opened_keeps_nothing(tmp_path, monkeypatch):
    """No thread goes on in its folder, and others may have it for themselves."""
    with penstock.open(tmp_path) as store:
        store.create_topic("orders").write(b"x", delay="1h")

    def damaged(self):
        raise penstock.DataError("state.db is damaged")

    with monkeypatch.context() as patch:
        patch.setattr(Expiry, "start_if_needed", damaged)
        with pytest.raises(penstock.DataError):
            penstock.open(tmp_path)
    assert not [each.name for each in threading.enumerate() if each.name.startswith("penstock-delayed")]
    apply_repair(plan_repair(tmp_path))
    with penstock.open(tmp_path) as store:
        assert store.topic("orders").stats().messages == 0
