"""Parquet files of an archive: what goes in comes out, divided by partition, day and size."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from tests.kit.archives import RAW_SCHEMA, in_files, read, s3_arguments, storage, write
from tests.kit.archives import layout_module as layout
from tests.kit.archives import parquet_files_module as parquet_files
from tests.lake.kit import DAY_US, NOON_US, batch, parquet_paths, target


def rows(batches) -> list[dict]:
    return [row for each in batches for row in each.to_pylist()]


def test_what_was_written_is_read_with_its_day(tmp_path):
    place = storage(tmp_path)
    given = batch(range(100))
    (file,) = write([given.slice(0, 30), given.slice(30)], target(place))
    assert (file.first, file.stop, file.rows, file.partition) == (0, 100, 100, 0)
    assert file.bytes == (tmp_path / file.path).stat().st_size
    (back,) = read(place, file)
    assert back.schema == RAW_SCHEMA
    assert back.select(given.schema.names) == given
    assert {row["date"] for row in rows([back])} == {file.date}


def test_a_range_is_read_across_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_files, "_GROUP_ROWS", 10)
    place = storage(tmp_path)
    (file,) = write([batch([*range(first, first + 10)]) for first in range(0, 100, 10)], target(place))
    assert pq.read_metadata(tmp_path / file.path).num_row_groups == 10
    for start, stop in [(0, 100), (25, 26), (9, 31), (99, 500), (40, 40)]:
        found = rows(read(place, file, start=start, stop=stop, columns=["offset"]))
        assert found == [{"offset": at} for at in range(start, min(stop, 100))]


def test_gaps_between_offsets_stay_gaps(tmp_path):
    place = storage(tmp_path)
    (file,) = write([batch([5, 6, 20, 21])], target(place))
    assert (file.first, file.stop, file.rows) == (5, 22, 4)
    assert [row["offset"] for row in rows(read(place, file, start=6, stop=21))] == [6, 20]


def test_a_file_holds_one_day_also_when_the_clock_was_set_back(tmp_path):
    place = storage(tmp_path)
    days = [0, 0, 1, 1, 0, -20514]  # the last one lies before 1970
    files = write([batch(range(6), written=[NOON_US + day * DAY_US for day in days])], target(place))
    assert [(each.date.isoformat(), each.first, each.stop) for each in files] == [
        ("2026-03-01", 0, 2), ("2026-03-02", 2, 4), ("2026-03-01", 4, 5), ("1969-12-31", 5, 6),
    ]  # fmt: skip


def test_midnight_belongs_to_the_new_day(tmp_path):
    midnight = NOON_US + DAY_US // 2
    files = write([batch([0, 1], written=[midnight - 1, midnight])], target(storage(tmp_path)))
    assert [each.date.day for each in files] == [1, 2]


def test_files_end_near_the_wanted_size(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_files, "_GROUP_BYTES", 1)
    place = storage(tmp_path)
    files = write([batch([at]) for at in range(50)], target(place, file_bytes=3000))
    assert len(files) > 3
    assert [at for each in files for at in range(each.first, each.stop)] == list(range(50))


def test_no_messages_make_no_file(tmp_path):
    assert write([], target(storage(tmp_path))) == []
    assert write([batch([])], target(storage(tmp_path))) == []


def test_what_fails_in_the_middle_leaves_no_file(tmp_path):
    def failing():
        yield batch([0], written=[NOON_US])
        yield batch([1], written=[NOON_US + DAY_US])
        raise RuntimeError("the segment is damaged")

    with pytest.raises(RuntimeError, match="damaged"):
        write(failing(), target(storage(tmp_path)))
    assert parquet_paths(tmp_path) == set()


def test_keys_and_values_have_no_dictionary_and_offsets_have_statistics(tmp_path):
    (file,) = write([batch(range(100))], target(storage(tmp_path)))
    group = pq.read_metadata(tmp_path / file.path).row_group(0)
    columns = {group.column(n).path_in_schema: group.column(n) for n in range(group.num_columns)}
    assert not columns["value"].has_dictionary_page
    assert not columns["key"].has_dictionary_page
    assert columns["value"].compression == "ZSTD"
    with_statistics = [name for name, each in columns.items() if each.statistics is not None]
    assert with_statistics == ["partition", "offset", "timestamp", "written_at"]
    assert (columns["offset"].statistics.min, columns["offset"].statistics.max) == (0, 99)


def test_nanoseconds_are_put_together_again_also_before_1970():
    exact = [-1, -1_000_000_001, 0, 999, 1_700_000_000_123_456_789, -(2**63), 2**63 - 1]
    micros = pa.array([at // 1000 for at in exact], layout.TIME)
    nanos = pa.array([at % 1000 for at in exact], pa.int16())
    assert layout.nanoseconds(micros, nanos).cast(pa.int64()).to_pylist() == exact


def test_a_vacuumed_file_is_told(tmp_path):
    place = storage(tmp_path)
    (file,) = write([batch([0])], target(place))
    place.delete([file.path])
    with pytest.raises(penstock.NotATable, match=r"\S+ does not see the table .*it was deleted"):
        next(read(place, file))
    (tmp_path / "_delta_log").mkdir()
    with pytest.raises(penstock.Unavailable, match="run it again"):
        next(read(place, file))


def test_a_damaged_file_is_told(tmp_path):
    place = storage(tmp_path)
    (file,) = write([batch([0])], target(place))
    (tmp_path / file.path).write_bytes(b"PAR1 and nothing else PAR1")
    with pytest.raises(penstock.DataError, match=rf"{file.path} of the table .* is damaged"):
        next(read(place, file))


def test_a_column_that_a_file_has_not_yet_is_null(tmp_path):
    place = storage(tmp_path)
    (file,) = write([batch([0])], target(place))
    wider = in_files(RAW_SCHEMA).append(pa.field("more", pa.string()))
    assert rows(read(place, file, schema=wider, columns=["more", "offset"])) == [{"more": None, "offset": 0}]


def test_options_of_s3_have_the_names_of_deltalake():
    assert s3_arguments(
        {
            "AWS_ENDPOINT_URL": "http://127.0.0.1:8333/",
            "aws_access_key_id": "me",
            "SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "eu-1",
            "AWS_ALLOW_HTTP": "true",
            "AWS_CONDITIONAL_PUT": "etag",
        }
    ) == {
        "endpoint_override": "127.0.0.1:8333",
        "scheme": "http",
        "access_key": "me",
        "secret_key": "secret",
        "region": "eu-1",
    }


@pytest.mark.parametrize("table", ["", "gs://bucket/t", "s3://", "http://host/t"])
def test_places_that_are_not_supported_are_refused(table):
    with pytest.raises(penstock.InvalidOption):
        storage(table)


def test_secrets_do_not_show():
    assert "hush" not in repr(storage("s3://bucket/t", {"AWS_SECRET_ACCESS_KEY": "hush"}))
