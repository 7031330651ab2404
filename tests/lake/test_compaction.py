"""Small files put together: rows and order stay, and little is rewritten often."""

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from tests.kit.archives import LakeFile, read, storage, write
from tests.kit.archives import parquet_files_module as parquet_files
from tests.kit.values import KIB, MIB
from tests.lake.kit import batch, parquet_paths, staged, target

DAY = datetime.date(2026, 3, 1)
NEXT_DAY = datetime.date(2026, 3, 2)


def file(first: int, size: int, *, date: datetime.date = DAY, partition: int = 0) -> LakeFile:
    return LakeFile(f"f{partition}-{first}", date, partition, first, first + 1, 1, size, (0, 0), (0, 0))


def test_neighbours_are_chosen_when_they_make_something_larger():
    files = [file(at, 2 * KIB) for at in range(8)]
    assert parquet_files.chosen(files, 128 * MIB) == [files]
    assert parquet_files.chosen(files[:7], 128 * MIB) == []
    assert parquet_files.chosen([file(8, 40 * KIB), *files[:7]], 128 * MIB) == []


def test_partitions_and_days_are_not_mixed():
    files = [file(at, 3 * KIB, partition=at // 5) for at in range(10)]
    assert parquet_files.chosen(files, MIB) == []
    files = [file(at, 3 * KIB, date=DAY if at < 5 else NEXT_DAY) for at in range(10)]
    assert parquet_files.chosen(files, MIB) == [files[:5]]  # that day is over


def test_a_large_file_among_small_ones_is_left_alone():
    files = [file(at, MIB if at == 8 else 2 * KIB) for at in range(17)]
    assert parquet_files.chosen(files, MIB) == [files[:8], files[9:]]


def test_a_day_that_is_over_stays_as_it_is_once_its_files_are_large():
    files = [file(0, 600 * KIB), file(1, 600 * KIB), file(2, KIB, date=NEXT_DAY)]
    assert parquet_files.chosen(files, MIB) == []


def test_a_message_is_rewritten_a_few_times_at_most():
    files: list[LakeFile] = []
    rewritten = 0
    for at in range(4000):
        files.append(file(at, 4 * KIB))
        for group in parquet_files.chosen(files, 8 * MIB):
            size = sum(each.bytes for each in group)
            rewritten += size
            place = files.index(group[0])
            files[place : place + len(group)] = [group[0]._replace(bytes=size)]
    assert rewritten <= 4 * 4000 * 4 * KIB
    assert len(files) < 40


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(1, 2 * MIB)), max_size=60),
    st.integers(1, 4 * MIB),
)
def test_chosen_are_neighbours_of_one_day_and_partition_and_fit(shapes, file_bytes):
    shapes.sort(key=lambda each: each[:2])
    files = [
        file(at, size, date=DAY + datetime.timedelta(day), partition=partition)
        for at, (partition, day, size) in enumerate(shapes)
    ]
    for group in parquet_files.chosen(files, file_bytes):
        place = files.index(group[0])
        assert files[place : place + len(group)] == group
        assert len({(each.partition, each.date) for each in group}) == 1
        assert len(group) > 1
        assert sum(each.bytes for each in group) <= file_bytes


def test_merged_files_hold_the_same_rows_in_the_same_order(tmp_path):
    place = storage(tmp_path)
    files = [*write([batch([0, 1, 5])], target(place)), *write([batch([6, 9])], target(place))]
    (merged,) = parquet_files.merge(files, target(place))
    assert (merged.first, merged.stop, merged.rows) == (0, 10, 5)
    rows = [row for each in read(place, merged) for row in each.to_pylist()]
    assert rows == [row for part in files for each in read(place, part) for row in each.to_pylist()]


def test_rows_that_are_missing_are_noticed(tmp_path):
    place = storage(tmp_path)
    (wrong,) = staged(place, 0, 5)
    with pytest.raises(penstock.DataError, match="6 rows were to be"):
        parquet_files.merge([wrong._replace(rows=6)], target(place))
    assert parquet_paths(tmp_path) == {wrong.path}
