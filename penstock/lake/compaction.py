"""Small files put together: which ones is a plain function, doing it needs pyarrow alone.

Only neighbours are put together, in offset order, of one partition and one day; so a table that was
compacted reads as before, with fewer files. (`optimize.compact` and `z_order` of deltalake would mix
partitions and destroy the order: never use them on an archive.)

Sizes go by steps of eight, and small neighbours are put together when that takes them over a step: so a
message is rewritten a few times at most, however often little is added. A day that is over, to which nothing
is added any more, is put together whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, groupby

from penstock.errors import DataError
from penstock.lake.layout import LakeFile
from penstock.lake.reading import read
from penstock.lake.writing import Target, write
from penstock.options import KIB

_STEP = 8
_FIRST_STEP_BYTES = 16 * KIB


def chosen(files: Sequence[LakeFile], file_bytes: int) -> list[list[LakeFile]]:
    """Neighbours that are worth putting together, each list into one file of about `file_bytes` at most.

    `files` are in the order of partition and offset.
    """
    found: list[list[LakeFile]] = []
    for _, partition in groupby(files, key=lambda each: each.partition):
        days = [list(day) for _, day in groupby(partition, key=lambda each: each.date)]
        for day in days[:-1]:
            found += [run for run in _runs(day, file_bytes // 2, file_bytes) if len(run) > 1]
        found += _of_present_day(days[-1], file_bytes)
    return found


def merge(files: Sequence[LakeFile], target: Target) -> list[LakeFile]:
    """Write the rows of neighbouring files into new ones; raises `DataError` unless all are there."""
    rows = chain.from_iterable(read(target.storage, each, schema=target.schema) for each in files)
    made = write(rows, target)
    before, after = (sum(each.rows for each in some) for some in (files, made))
    if before != after:
        target.storage.delete(each.path for each in made)
        raise DataError(
            f"{before} rows were to be put together in {target.storage.uri}, and {after} were found",
            hint="the table is as it was; a file of it holds other rows than the table says",
        )
    return made


def _of_present_day(day: Sequence[LakeFile], file_bytes: int) -> list[list[LakeFile]]:
    """By the lowest step that some neighbours would get over together."""
    step = _FIRST_STEP_BYTES
    while True:
        step = min(step, file_bytes // 2)
        found = [run for run in _runs(day, step, file_bytes) if len(run) > 1 and _bytes(run) >= step]
        if found or step == file_bytes // 2:
            return found
        step *= _STEP


def _runs(day: Sequence[LakeFile], limit: int, file_bytes: int) -> Iterator[list[LakeFile]]:
    """Neighbours below the limit, cut so that each run fits into one file."""
    run: list[LakeFile] = []
    for file in day:
        is_small = file.bytes < limit
        if run and (not is_small or _bytes(run) + file.bytes > file_bytes):
            yield run
            run = []
        if is_small:
            run.append(file)
    if run:
        yield run


def _bytes(files: Sequence[LakeFile]) -> int:
    return sum(each.bytes for each in files)
