"""An archive table: recognised, committed to once, vacuumed."""

import os
import time

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction

import penstock
from tests.kit.archives import (
    RAW_SCHEMA,
    ArchivedSpan,
    ArchiveOrigin,
    Storage,
    open_archive,
    open_or_create,
    storage,
)
from tests.lake.kit import ORIGIN, new_table, parquet_paths, staged


def test_a_new_table_is_empty_and_knows_whose_it_is(tmp_path):
    new_table(tmp_path / "t")
    archive = open_archive(storage(tmp_path / "t"))
    assert (archive.origin, archive.kind, archive.schema) == (ORIGIN, "raw", RAW_SCHEMA)
    assert archive.files() == []
    assert archive.next_offset(0) is None


def test_committed_files_come_back_as_they_were_written(tmp_path):
    archive = new_table(tmp_path / "t")
    files = staged(archive.storage, 0, 10) + staged(archive.storage, 5, 8, partition=1)
    assert archive.append(files, {0: ArchivedSpan(0, 10), 1: ArchivedSpan(5, 8)})
    again = open_archive(archive.storage)
    assert again.files() == archive.files() == files
    assert again.files(partition=1) == files[1:]
    assert (again.next_offset(0), again.next_offset(1), again.next_offset(2)) == (10, 8, None)


def test_what_is_in_the_table_is_skipped_and_its_files_deleted(tmp_path):
    archive = new_table(tmp_path / "t")
    first = staged(archive.storage, 0, 10)
    archive.append(first, {0: ArchivedSpan(0, 10)})
    assert not archive.append(staged(archive.storage, 0, 10), {0: ArchivedSpan(0, 10)})
    assert not archive.append(staged(archive.storage, 2, 6), {0: ArchivedSpan(2, 6)})
    assert parquet_paths(tmp_path / "t") == {each.path for each in first}


@pytest.mark.parametrize("span", [ArchivedSpan(5, 15), ArchivedSpan(12, 20)])
def test_offsets_that_overlap_or_leave_a_gap_are_refused(tmp_path, span):
    archive = new_table(tmp_path / "t")
    archive.append(staged(archive.storage, 0, 10), {0: ArchivedSpan(0, 10)})
    with pytest.raises(penstock.ConflictError, match="stands at 10"):
        archive.append(staged(archive.storage, span.start, span.stop), {0: span})
    assert len(parquet_paths(tmp_path / "t")) == 1


def test_a_stale_committer_is_refused_and_leaves_nothing(tmp_path):
    ours, theirs = new_table(tmp_path / "t"), open_archive(storage(tmp_path / "t"))
    files = staged(ours.storage, 0, 10)
    assert theirs.next_offset(0) is None
    ours.append(files, {0: ArchivedSpan(0, 10)})
    with pytest.raises(penstock.ConflictError, match="same moment"):
        theirs.append(staged(theirs.storage, 0, 10), {0: ArchivedSpan(0, 10)})
    assert parquet_paths(tmp_path / "t") == {each.path for each in files}
    assert theirs.files() == files


def test_a_commit_that_was_refused_by_its_own_success_is_one(tmp_path, monkeypatch):
    """The answer to the request was lost, it was sent again, and the version was there."""
    archive = new_table(tmp_path / "t")
    commit = DeltaTable.create_write_transaction

    def twice(*arguments, **named):
        commit(*arguments, **named)
        raise CommitFailedError("Concurrent transaction failed")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", twice)
    assert archive.append(files := staged(archive.storage, 0, 10), {0: ArchivedSpan(0, 10)})
    assert parquet_paths(tmp_path / "t") == {each.path for each in files}
    assert open_archive(archive.storage).next_offset(0) == 10


def test_commits_of_different_partitions_do_not_disturb_each_other(tmp_path):
    ours, theirs = new_table(tmp_path / "t"), open_archive(storage(tmp_path / "t"))
    ours.append(staged(ours.storage, 0, 10), {0: ArchivedSpan(0, 10)})
    theirs.append(staged(theirs.storage, 0, 4, partition=1), {1: ArchivedSpan(0, 4)})
    ours.refresh()
    assert [(each.partition, each.stop) for each in ours.files()] == [(0, 10), (1, 4)]


def test_replacing_keeps_offsets_and_says_that_no_data_changed(tmp_path):
    archive = new_table(tmp_path / "t")
    for start in (0, 10):
        archive.append(staged(archive.storage, start, start + 10), {0: ArchivedSpan(start, start + 10)})
    archive.replace(archive.files(), staged(archive.storage, 0, 20))
    again = open_archive(archive.storage)
    assert [(each.first, each.stop) for each in again.files()] == [(0, 20)]
    assert again.next_offset(0) == 20
    assert DeltaTable(archive.storage.uri).count() == 20


def test_of_two_that_replace_the_same_files_one_is_refused(tmp_path):
    archive = new_table(tmp_path / "t")
    archive.append(staged(archive.storage, 0, 10), {0: ArchivedSpan(0, 10)})
    other = open_archive(archive.storage)
    archive.replace(archive.files(), staged(archive.storage, 0, 10))
    with pytest.raises(penstock.ConflictError):
        other.replace(other.files(), staged(other.storage, 0, 10))
    assert len(archive.files()) == 1


def test_vacuum_takes_only_old_leftovers_of_ours(tmp_path):
    archive = new_table(tmp_path / "t")
    archive.append(live := staged(archive.storage, 0, 10), {0: ArchivedSpan(0, 10)})
    (old,), (fresh,) = staged(archive.storage, 10, 20), staged(archive.storage, 10, 20)
    stranger = tmp_path / "t" / "date=2026-03-01" / "notes.parquet"
    stranger.write_bytes(b"not ours")
    long_ago = time.time() - 8 * 86400
    for path in (tmp_path / "t" / old.path, tmp_path / "t" / live[0].path, stranger):
        os.utime(path, (long_ago, long_ago))
    assert archive.vacuum(dry_run=True) == [old.path]
    assert archive.vacuum() == [old.path]
    assert parquet_paths(tmp_path / "t") == {live[0].path, fresh.path, "date=2026-03-01/notes.parquet"}


def test_vacuum_sees_what_others_committed_meanwhile(tmp_path):
    archive, other = new_table(tmp_path / "t"), open_archive(storage(tmp_path / "t"))
    other.append(files := staged(other.storage, 0, 10), {0: ArchivedSpan(0, 10)})
    os.utime(tmp_path / "t" / files[0].path, (0, 0))
    assert archive.vacuum() == []


def test_columns_can_be_added(tmp_path):
    archive = new_table(tmp_path / "t")
    archive.add_columns([pa.field("more", pa.list_(pa.int64()))])
    assert open_archive(archive.storage).schema.field("more").type.value_type == pa.int64()


def test_nothing_and_no_delta_table_and_no_archive_are_told_apart(tmp_path):
    with pytest.raises(penstock.NotATable, match="nothing at"):
        open_archive(storage(tmp_path / "none"))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("mine")
    with pytest.raises(penstock.NotATable, match="no Delta table"):
        open_archive(storage(tmp_path / "folder"))
    with pytest.raises(penstock.NotATable, match="not a Delta table"):
        open_or_create(storage(tmp_path / "folder"), ORIGIN, "raw", RAW_SCHEMA)
    DeltaTable.create(tmp_path / "delta", pa.schema([pa.field("n", pa.int64())]))
    with pytest.raises(penstock.NotAnArchive, match="no archive"):
        open_or_create(storage(tmp_path / "delta"), ORIGIN, "raw", RAW_SCHEMA)


@pytest.mark.parametrize(
    ("origin", "told"),
    [
        (ArchiveOrigin("store-2", 7, "orders"), "another store"),
        (ArchiveOrigin("store-1", 8, "orders"), "this store: another topic, or an earlier"),
    ],
)
def test_the_archive_of_another_topic_is_refused(tmp_path, origin, told):
    new_table(tmp_path / "t")
    with pytest.raises(penstock.ForeignArchive, match=told):
        open_or_create(storage(tmp_path / "t"), origin, "raw", RAW_SCHEMA)


def test_a_renamed_topic_is_the_same_topic(tmp_path):
    new_table(tmp_path / "t")
    open_or_create(storage(tmp_path / "t"), ORIGIN._replace(topic="bills"), "raw", RAW_SCHEMA)


def test_raw_and_json_are_not_mixed(tmp_path):
    new_table(tmp_path / "t")
    with pytest.raises(penstock.NotAnArchive, match="whole values"):
        open_or_create(storage(tmp_path / "t"), ORIGIN, "json", RAW_SCHEMA)


def test_an_archive_of_a_newer_format_is_refused(tmp_path):
    archive = new_table(tmp_path / "t")
    DeltaTable(archive.storage.uri).alter.set_table_properties(
        {"penstock.format": "2"}, raise_if_not_exists=False
    )
    with pytest.raises(penstock.UnknownFormat):
        open_archive(archive.storage)


def test_a_place_that_cannot_be_written_to_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(penstock.ReadOnly, match="cannot be written to"):
        open_or_create(storage(tmp_path / "file" / "t"), ORIGIN, "raw", RAW_SCHEMA)


def test_a_file_that_someone_else_put_in_is_told(tmp_path):
    archive = new_table(tmp_path / "t")
    strange = AddAction("date=2026-03-01/x.parquet", 1, {"date": "2026-03-01"}, 0, True, "{}")
    DeltaTable(archive.storage.uri).create_write_transaction([strange], "append", RAW_SCHEMA, ["date"])
    with pytest.raises(penstock.DataError, match=r"x\.parquet, which no archive wrote"):
        open_archive(archive.storage).files()


def test_every_commit_is_made_to_last(tmp_path, monkeypatch):
    archive = new_table(tmp_path / "t")
    synced: list[str] = []
    monkeypatch.setattr(Storage, "sync", lambda self, path: synced.append(path))
    archive.append([], {0: ArchivedSpan(0, 1)})
    assert "_delta_log/00000000000000000001.json" in synced
