"""Columns of an archive's files are compressed where that gains something, and only there (issue 18)."""

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.kit.archives import RAW_SCHEMA, FileTarget, in_files, json_schema, storage, write
from tests.lake.kit import batch

RANDOM = random.Random(18)


def written(tmp_path, given: pa.RecordBatch, schema: pa.Schema = RAW_SCHEMA) -> dict[str, str]:
    """The compression of each column of the file that these rows are written into."""
    (file,) = write([given], FileTarget(storage(tmp_path), schema, 0))
    group = pq.read_metadata(tmp_path / file.path).row_group(0)
    found = [group.column(number) for number in range(group.num_columns)]
    assert pq.read_table(tmp_path / file.path, columns=["offset"]).num_rows == given.num_rows
    return {each.path_in_schema: each.compression for each in found}


def with_column(given: pa.RecordBatch, name: str, values: list[bytes | None]) -> pa.RecordBatch:
    at = given.schema.get_field_index(name)
    return given.set_column(at, given.schema.field(at), pa.array(values, given.schema.field(at).type))


def test_values_that_cannot_become_smaller_lie_there_as_they_are(tmp_path):
    given = with_column(batch(range(2000)), "value", [RANDOM.randbytes(200) for _ in range(2000)])
    given = with_column(given, "key", [b"customer-%d" % (at % 7) for at in range(2000)])
    found = written(tmp_path, given)
    assert found.pop("value") == "UNCOMPRESSED"
    assert set(found.values()) == {"ZSTD"}, found  # those inside headers too


def test_values_alike_only_from_row_to_row_are_compressed(tmp_path):
    orders = [b'{"id": %d, "sum": %d}' % (at, RANDOM.randrange(1000)) for at in range(2000)]
    assert written(tmp_path, with_column(batch(range(2000)), "value", orders))["value"] == "ZSTD"


@pytest.mark.parametrize("size", [0, 1, 100_000])
def test_few_values_null_empty_or_large(tmp_path, size):
    found = written(tmp_path, with_column(batch(range(3)), "value", [None, b"x" * size, b"y" * size]))
    assert set(found) >= {"value", "key", "headers.key_value.key", "headers.key_value.value"}


def test_what_comes_first_does_not_decide_alone(tmp_path):
    """A few random values before many that are alike."""
    values = [RANDOM.randbytes(200) for _ in range(200)] + [b"%0200d" % at for at in range(1800)]
    assert written(tmp_path, with_column(batch(range(2000)), "value", values))["value"] == "ZSTD"


def test_columns_inside_others_are_compressed(tmp_path):
    items = pa.field("items", pa.list_(pa.struct([pa.field("n", pa.int32())])))
    schema = in_files(json_schema([items, pa.field("note", pa.string())]))
    given = batch(range(50)).select([name for name in RAW_SCHEMA.names if name in schema.names])
    there = dict(zip(given.schema.names, given.columns, strict=True))
    there["items"] = pa.array([[{"n": at}] * 3 for at in range(50)], items.type)
    there["note"] = pa.array([RANDOM.randbytes(75).hex() for _ in range(50)])
    arrays = [there.get(field.name, pa.nulls(50, field.type)) for field in schema]
    found = written(tmp_path, pa.RecordBatch.from_arrays(arrays, schema=schema), schema)
    assert found["items.list.element.n"] == "ZSTD"
    assert found["note"] == "ZSTD"  # the digits of hexadecimal: half as large
