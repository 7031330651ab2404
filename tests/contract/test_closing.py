"""A store that is closed under those who wait says so, at whatever moment it happens."""

import pytest

import penstock
from tests.kit.logs import Log
from tests.kit.system import OpenFile

#: A descriptor that is not open.
_CLOSED = 1_000_000


@pytest.fixture
def closing_store(tmp_path, monkeypatch):
    """A store that is closed just when somebody looks after what dead processes left behind."""
    store = penstock.open(tmp_path / "data")
    store.create_topic("t").write(b"x")
    store.events()
    really_help = Log.help

    def help_too_late(log):
        store.close()
        bad = OpenFile(log.folder.files, _CLOSED)
        monkeypatch.setattr(log.folder, "_pair", (bad, bad))  # read before, as it were, and used now
        really_help(log)

    def arm():
        monkeypatch.setattr(Log, "help", help_too_late)
        return store

    yield arm
    store.close()


def test_a_subscriber_hears_closed_and_no_bad_descriptor(closing_store):
    store = closing_store()
    events = store.events()
    cursor = events.subscribe("k").next
    with pytest.raises(penstock.Closed):
        events.subscribe("k", cursor, timeout=30)


def test_a_reader_hears_closed_and_no_bad_descriptor(closing_store):
    store = closing_store()
    with store.topic("t").reader() as reader:
        assert reader.receive(30).value == b"x"
        with pytest.raises(penstock.Closed):
            reader.receive(30)
