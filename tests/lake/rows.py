"""A log and its archive as rows, to be compared: everything of a message, times to the nanosecond."""

from collections.abc import Iterator

import penstock
from tests.kit.archives import RAW_SCHEMA, open_archive, storage
from tests.kit.archives import layout_module as layout
from tests.kit.archives import parquet_files_module as parquet_files
from tests.kit.values import arrow_module as arrow

_TIMES = ("timestamp", "written_at")
_COLUMNS = tuple(name for name in RAW_SCHEMA.names if name in arrow.schema().names)


def of_log(topic: penstock.Topic) -> list[dict]:
    """All messages that can be read, by partition, in offset order."""
    return [
        row
        for number in range(topic.options.partitions)
        for batch in topic.scan(partition=number, columns=_COLUMNS).record_batches()
        for row in _exact(batch)
    ]


def of_table(table, **options) -> list[dict]:
    """All rows of an archive, in the order in which its files say they come."""
    place = storage(table, **options)
    return [
        row
        for file in open_archive(place).files()
        for batch in parquet_files.read(place, file)
        for row in _exact(batch)
    ]


def check_files(table) -> None:
    """No file mixes days, files of a partition do not overlap, and each says truly what it holds."""
    place = storage(table)
    behind: dict[int, int] = {}
    for file in open_archive(place).files():
        rows = [row for batch in parquet_files.read(place, file) for row in batch.to_pylist()]
        offsets = [row["offset"] for row in rows]
        assert offsets == sorted(set(offsets))
        assert (file.first, file.stop, file.rows) == (offsets[0], offsets[-1] + 1, len(rows))
        assert file.first >= behind.get(file.partition, 0)
        behind[file.partition] = file.stop
        assert {(row["partition"], row["written_at"].date()) for row in rows} == {(file.partition, file.date)}


def _exact(batch) -> Iterator[dict]:
    there = dict(zip(batch.schema.names, batch.columns, strict=True))
    for name in _TIMES:
        if f"{name}_nanos" in there:
            there[name] = layout.nanoseconds(there[name], there[f"{name}_nanos"])
        there[name] = there[name].view("int64")
    columns = [there[name].to_pylist() for name in _COLUMNS]
    for values in zip(*columns, strict=True):
        yield dict(zip(_COLUMNS, values, strict=True))
