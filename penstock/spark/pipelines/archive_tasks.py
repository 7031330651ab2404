"""What the tasks of an archive do on executors: read segments and write Parquet; put small files together.

They touch segment files and the table's files, and nothing else. What they wrote counts when the driver
commits it, and not before.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from penstock.errors import Corrupt, NotATable
from penstock.lake import parquet_files
from penstock.lake.layout import RAW_SCHEMA, Kind, LakeFile, in_files
from penstock.lake.parquet_files import FileTarget
from penstock.lake.storage import Storage
from penstock.spark.source import batches
from penstock.spark.source.plan import Slice, part

logger = logging.getLogger("penstock.spark")

_COLUMNS = {each.name: each.nullable for each in in_files(RAW_SCHEMA)}


class Filling(NamedTuple):
    """A range of a partition, and the table it goes to."""

    planned: Slice
    target: FileTarget
    kind: Kind


class Merging(NamedTuple):
    """Neighbouring files that are to become one."""

    files: list[LakeFile]
    target: FileTarget


def fill(work: Filling) -> list[LakeFile]:
    """Write a range of a partition as files of the table."""
    check_seen(work.target.storage)
    return parquet_files.write(_shaped(_readable(work.planned), work), work.target)


def merge(work: Merging) -> list[LakeFile]:
    """Write the rows of several files into new ones."""
    check_seen(work.target.storage)
    return parquet_files.merge(work.files, work.target)


def check_seen(place: Storage) -> None:
    """Raise `NotATable` where the table's folder is not: a task must not make one of its own."""
    if place.is_local and not os.path.isdir(os.path.join(place.uri, "_delta_log")):
        raise NotATable(
            f"{socket.gethostname()} does not see the table {place.uri}",
            hint="executors write the files themselves: they must see the folder under the same path",
        )


def _readable(planned: Slice) -> Iterator[pa.RecordBatch]:
    """The messages of a range; damage is skipped if that was asked for, and raises `Corrupt` if not."""
    behind = planned.start
    try:
        for batch in batches.read(planned, _COLUMNS):
            yield batch
            behind = batch.column("offset")[-1].as_py() + 1
    except Corrupt as error:
        if not planned.may_skip or error.first is None or error.stop is None:
            raise
        logger.warning("passed over: %s", error)
        damaged = max(error.first, behind)
        yield from _readable(part(planned, behind, damaged))
        yield from _readable(part(planned, max(error.stop, damaged + 1), planned.stop))


def _shaped(rows: Iterator[pa.RecordBatch], work: Filling) -> Iterator[pa.RecordBatch]:
    if work.kind == "raw":
        return rows
    from penstock.lake.json_columns import Parser

    parser = Parser(in_files(work.target.schema))
    return map(parser.divided, rows)
