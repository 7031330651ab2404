"""kill -9 in the middle of an import: started again it goes on, and no message comes twice."""

import pytest

import penstock
from penstock.errors import AlreadyExists, InvalidOption
from tests.exchange.diskq_files import all_files, rows, write_folder
from tests.exchange.killed_import import run_until_killed
from tests.kit.stores import StoreVerifier
from tests.kit.values import import_diskq


def test_an_import_killed_again_and_again_loses_nothing_and_brings_nothing_twice(tmp_path):
    found = [{30: rows(330), 400: rows(200)}, {0: rows(120), 120: []}]
    folder = write_folder(tmp_path / "d", found, groups={"g": {0: 100}})
    kills, length = 0, 3
    while run_until_killed("diskq", tmp_path / "store", folder, length):
        kills += 1
        length += 3  # each run lives a little longer, so that all ends are met
    assert kills >= 5
    with penstock.open(tmp_path / "store") as store:
        topic = store.topic("t")
        topic.export_diskq(tmp_path / "again")
        severities = {each.severity for each in StoreVerifier(store.path).findings()}
    assert all_files(tmp_path / "again") == all_files(folder)
    assert severities <= {"note"}


def test_what_was_cut_short_goes_on_only_from_its_own_folder_and_is_not_exported(tmp_path):
    folder = write_folder(tmp_path / "d", [{0: rows(500)}])
    other = write_folder(tmp_path / "other", [{0: rows(500)}])
    assert run_until_killed("diskq", tmp_path / "store", folder, 25)
    with penstock.open(tmp_path / "store") as store:
        assert 0 < len(store.topic("t").read(limit=1000)) < 500
        with pytest.raises(AlreadyExists, match="cut short"):
            store.import_diskq(other, topic="t")
        with pytest.raises(InvalidOption, match="not whole"):
            store.topic("t").export_diskq(tmp_path / "out")
        seen = []
        done = import_diskq(store, folder, "t", progress=lambda done, total: seen.append((done, total)))
        assert done.before > 0
        assert done.before + done.messages == 500
        assert seen[-1] == (500, 500)
        assert [m.offset for m in done.topic.read(limit=1000)] == list(range(500))


def test_an_import_goes_on_wherever_it_was_killed(tmp_path):
    """Also between the making of its topic and its first message: each write is tried."""
    folder = write_folder(tmp_path / "d", [{0: rows(3)}])
    made = kills = 0
    while run_until_killed("diskq", tmp_path / str(kills), folder, kills):
        with penstock.open(tmp_path / str(kills)) as store:
            made += len(store.topics())
            topic = store.import_diskq(folder, topic="t")
            assert [m.offset for m in topic.read()] == [0, 1, 2]
        kills += 1
    assert made > 3
