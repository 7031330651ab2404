"""What cannot be history is refused: other tables, other topics, missing extras; and secrets stay secret."""

import sys

import pyarrow as pa
import pytest

import penstock
from tests.kit.archives import RAW_SCHEMA, ArchiveOrigin, json_schema, open_or_create, storage
from tests.kit.slices import parse
from tests.lake.archived_topic import slices, streamed


def test_a_table_that_is_not_this_topics_archive_is_refused(past, tmp_path):
    store = past.store
    other = store.create_topic("other")
    foreign, divided = tmp_path / "foreign", tmp_path / "json"
    open_or_create(storage(foreign), ArchiveOrigin(store.id, other.id, "other"), "raw", RAW_SCHEMA)
    open_or_create(
        storage(divided),
        ArchiveOrigin(store.id, past.topic.id, "orders"),
        "json",
        json_schema([pa.field("id", pa.int64())]),
    )
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("x")
    for error, told, table in (
        (penstock.ForeignArchive, "is the archive of 'other'", foreign),
        (penstock.NotAnArchive, "holds values divided into columns", divided),
        (penstock.NotATable, "there is nothing at", tmp_path / "nowhere"),
        (penstock.NotATable, "there is no Delta table at", tmp_path / "folder"),
        (penstock.InvalidOption, "a table cannot lie at 'http://x/y'", "http://x/y"),
    ):
        with pytest.raises(error, match=told):
            past.topic.scan(history=table)
        for plan in (slices, streamed):
            with pytest.raises(error, match=told):
                plan(store, history=str(table))


def test_options_without_a_table_or_with_several_topics_are_refused(past):
    with pytest.raises(penstock.InvalidOption, match="storage_options without history"):
        past.topic.scan(storage_options={"AWS_REGION": "x"})
    with pytest.raises(penstock.InvalidOption, match="storage_options are for s3:// only"):
        past.topic.scan(history=past.table(1), storage_options={"AWS_REGION": "x"})
    path = {"path": past.store.path}
    for options in (
        {"subscribe": "orders,other", "history": "x"},
        {"subscribePattern": "o.*", "history": "x"},
        {"topic": "orders", "view": "segments", "history": "x"},
    ):
        with pytest.raises(penstock.InvalidOption, match="history is for reading one topic"):
            parse(path | options)
    with pytest.raises(penstock.InvalidOption, match=r"history.aws_region without history"):
        parse(path | {"topic": "orders", "history.AWS_REGION": "x"})


@pytest.mark.parametrize("missing", ["pyarrow", "deltalake"])
def test_without_the_extra_it_is_said_what_to_install(past, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(penstock.MissingExtra, match=r"pip install .*penstock\[arrow\]"):
        past.topic.scan(history=past.table(1))


def test_secrets_are_in_no_text():
    options = {
        "path": "data",
        "topic": "orders",
        "history": "s3://b/t",
        "history.AWS_SECRET_ACCESS_KEY": "hush",
    }
    assert parse(options).history.delta_options == {"aws_secret_access_key": "hush"}
    assert "hush" not in repr(parse(options))
