"""Archives in S3: the same table, the same promises."""

import os
import pickle

import polars
import pytest
from deltalake import DeltaTable

import penstock
from tests.kit.archives import ArchivedSpan, open_archive, storage
from tests.kit.topics import inside
from tests.lake.archived_topic import slices, streamed, table_of, write_all_kinds
from tests.lake.rows import of_log, of_table
from tests.s3 import s3_server


@pytest.fixture(scope="module")
def s3():
    with s3_server() as server:
        yield server


def test_table_in_s3_equals_log(store, run, s3):
    topic = store.create_topic("orders", partitions=2)
    into = s3.table("orders")
    for _ in range(9):
        topic.write_many([os.urandom(100) for _ in range(30)], keys=[f"{n}" for n in range(30)])
        run(into=into, storage_options=s3.options)
    assert of_table(into, options=s3.options) == of_log(topic)
    assert polars.read_delta(into, storage_options=s3.options).height == 270
    archive = open_archive(storage(into, s3.options))
    assert len(archive.files()) < 18
    assert archive.vacuum(0)
    assert DeltaTable(into, storage_options=s3.options).to_pyarrow_table().num_rows == 270


def test_a_stale_committer_is_refused_in_s3_too(store, run, s3):
    topic = store.create_topic("orders")
    topic.write_many([b"x"] * 10)
    into = s3.table()
    run(into=into, storage_options=s3.options)
    place = storage(into, s3.options)
    ours, theirs = open_archive(place), open_archive(place)
    ours.append([], {0: ArchivedSpan(10, 20)})
    with pytest.raises(penstock.ConflictError):
        theirs.append([], {0: ArchivedSpan(10, 20)})
    assert open_archive(place).next_offset(0) == 20


def test_history_in_s3_is_one_with_the_log(store, run, s3, caplog):
    """The secrets travel with the slices, and are in no text."""
    topic = store.create_topic("orders", partitions=3)
    write_all_kinds(topic, 1)
    before = list(topic.scan().messages())
    into = s3.table("orders")
    run(into=into, storage_options=s3.options)
    rows = table_of(slices(store))
    for trimmed in (5, 12):
        inside(topic).log(1).trim(trimmed)
        options = {"history": into} | {f"history.{name}": value for name, value in s3.options.items()}
        for plan in (slices, streamed):
            planned = plan(store, **options)
            assert table_of(pickle.loads(pickle.dumps(planned))).equals(rows)
            assert "penstock-secret" not in repr(planned)
        assert list(topic.scan(history=into, storage_options=s3.options).messages()) == before
    with pytest.raises(penstock.Unavailable) as told:
        slices(store, **options | {"history.AWS_SECRET_ACCESS_KEY": "hush-hush"})
    assert "hush" not in str(told.value) + caplog.text


def test_wrong_keys_are_told_without_the_secret(store, run, s3):
    store.create_topic("orders").write(b"x")
    wrong = s3.options | {"AWS_SECRET_ACCESS_KEY": "hush-hush"}
    with pytest.raises(penstock.Unavailable) as told:
        run(into=s3.table(), storage_options=wrong)
    assert "hush" not in str(told.value)
