"""Messages as an archive gets them, without a log: batches, files and tables made by hand."""

import datetime
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from tests.kit.archives import (
    FILE_BYTES,
    RAW_SCHEMA,
    TIME,
    Archive,
    ArchiveOrigin,
    FileTarget,
    Storage,
    in_files,
    open_or_create,
    storage,
    write,
)

ORIGIN = ArchiveOrigin("store-1", 7, "orders")
DAY_US = 86400 * 1_000_000
NOON_US = int(datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC).timestamp()) * 1_000_000


def batch(offsets: Sequence[int], *, partition: int = 0, written: Sequence[int] | None = None):
    """A record batch of messages with these offsets; values tell their offset."""
    offsets = list(offsets)
    count = len(offsets)
    written = [NOON_US + at for at in offsets] if written is None else list(written)
    columns = {
        "partition": pa.array([partition] * count, pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        "timestamp": pa.array([at - 5 for at in written], TIME),
        "timestamp_nanos": pa.array([at % 1000 for at in offsets], pa.int16()),
        "written_at": pa.array(written, TIME),
        "written_at_nanos": pa.array([(at * 7) % 1000 for at in offsets], pa.int16()),
        "key": pa.array([None if at % 3 else b"k%d" % at for at in offsets], pa.binary()),
        "value": pa.array([value(at) for at in offsets], pa.binary()),
        "headers": pa.array(
            [[("n", b"%d" % at)] if at % 2 else None for at in offsets], pa.map_(pa.string(), pa.binary())
        ),
        "headers_text": pa.array([[True] if at % 2 else None for at in offsets], pa.list_(pa.bool_())),
        "producer_id": pa.array([None] * count, pa.string()),
        "group": pa.array([None] * count, pa.string()),
        "seqno": pa.array(offsets, pa.int64()),
        "codec": pa.array(["raw"] * count, pa.string()),
    }
    return pa.RecordBatch.from_pydict(columns, schema=in_files(RAW_SCHEMA))


def value(offset: int) -> bytes | None:
    """A tombstone, an empty value, or one that tells its offset."""
    return None if offset % 10 == 3 else b"" if offset % 10 == 4 else b"value %d" % offset


def target(place: Storage, *, partition: int = 0, file_bytes: int = FILE_BYTES) -> FileTarget:
    return FileTarget(place, RAW_SCHEMA, partition, file_bytes)


def staged(place: Storage, start: int, stop: int, *, partition: int = 0):
    """Files with these offsets, not committed yet."""
    return write([batch(range(start, stop), partition=partition)], target(place, partition=partition))


def new_table(folder: Path) -> Archive:
    return open_or_create(storage(folder), ORIGIN, "raw", RAW_SCHEMA)


def parquet_paths(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.glob("*/*.parquet")}
