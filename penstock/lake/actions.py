"""Data files as Delta's log tells of them: actions that add and remove them, with their statistics."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa

from penstock.errors import DataError
from penstock.lake.layout import DATE, LakeFile
from penstock.options import datetime_ns, utc


def added(file: LakeFile, *, is_new: bool = True) -> Any:
    """The action that brings a file into the table; not `is_new` says that its rows were there before."""
    from deltalake.transaction import AddAction

    return AddAction(
        path=file.path,
        size=file.bytes,
        partition_values={DATE: file.date.isoformat()},
        modification_time=time.time_ns() // 1_000_000,
        data_change=is_new,
        stats=json.dumps(_statistics(file)),
    )


def removed(file: LakeFile, now_ms: int) -> Any:
    """The action that takes a file out of the table because its rows are in another one."""
    from deltalake.transaction import RemoveAction

    return RemoveAction(
        file.path, False, now_ms, size=file.bytes, partition_values={DATE: file.date.isoformat()}
    )


def files(actions: pa.Table) -> Iterator[LakeFile]:
    """The files that a table's add actions tell of, in no order; raises `DataError` for one not of ours."""
    for row in actions.to_pylist():
        if row.get("min.offset") is None or row.get("max.written_at") is None:
            raise DataError(
                f"the table holds {row['path']}, which no archive wrote",
                hint="nothing else may write into an archive: restore the version before that",
            )
        yield LakeFile(
            path=row["path"],
            date=row[f"partition.{DATE}"],
            partition=row["min.partition"],
            first=row["min.offset"],
            stop=row["max.offset"] + 1,
            rows=row["num_records"],
            bytes=row["size_bytes"],
            timestamps=(_micros(row["min.timestamp"]), _micros(row["max.timestamp"])),
            written=(_micros(row["min.written_at"]), _micros(row["max.written_at"])),
        )


def _statistics(file: LakeFile) -> dict[str, Any]:
    def bound(offset: int, which: int) -> dict[str, Any]:
        return {
            "partition": file.partition,
            "offset": offset,
            "timestamp": _text(file.timestamps[which]),
            "written_at": _text(file.written[which]),
        }

    least = bound(file.first, 0)
    return {
        "numRecords": file.rows,
        "minValues": least,
        "maxValues": bound(file.stop - 1, 1),
        "nullCount": dict.fromkeys(least, 0),
    }


def _text(micros: int) -> str:
    return utc(micros * 1000).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _micros(moment: datetime) -> int:
    return datetime_ns(moment) // 1000
