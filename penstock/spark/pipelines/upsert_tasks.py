"""What the tasks of `upsert` do on executors: read a slice, keep the latest message of each key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.json_columns import Parser
from penstock.lake.layout import RAW_SCHEMA, in_files, json_schema
from penstock.spark.source import batches
from penstock.spark.source.plan import Slice

#: True for a tombstone: its key's row is deleted.
DELETED = "_deleted"
#: Ours beside the value or the fields of its JSON, in the order of the table.
PLACES = ("timestamp", "partition", "offset")
_ORDER = "written_at"
_RAW = {each.name: each.nullable for each in in_files(RAW_SCHEMA)}
_FEW = {name: _RAW[name] for name in ("partition", "offset", "timestamp", "written_at", "key", "value")}
#: Rows are reduced whenever so many have gathered.
_GATHERED = 200_000


class Latest(NamedTuple):
    """A slice to be reduced, and the fields of its values' JSON; None: values stay whole."""

    planned: Slice
    fields: pa.Schema | None


def latest(work: Latest) -> pa.Table:
    """The latest message of each key of a slice, as rows of the table, tombstones marked."""
    waiting: list[pa.Table] = []
    count = 0
    for batch in batches.read(work.planned, _FEW if work.fields is None else _RAW):
        keyed = batch.filter(pc.is_valid(batch.column("key")))
        waiting.append(_shaped(keyed, work.fields))
        count += keyed.num_rows
        if count >= _GATHERED:
            waiting = [newest(waiting)]
            count = waiting[0].num_rows if waiting[0].num_rows < _GATHERED // 2 else 0
    return newest(waiting)


def newest(tables: Sequence[pa.Table]) -> pa.Table:
    """The latest row of each key among rows that come in the order of their slices.

    A key lies in one partition but where partitions were added; then the message written last counts.
    """
    if not tables:
        return pa.table({})
    whole = pa.concat_tables(tables).combine_chunks()
    if not whole.num_rows:
        return whole
    order = pc.sort_indices(
        whole, [(_ORDER, "ascending"), ("partition", "ascending"), ("offset", "ascending")]
    )
    sorted_ = whole.take(order)
    numbered = pa.table({"key": sorted_["key"], "row": pa.array(range(sorted_.num_rows), pa.int64())})
    last = numbered.group_by("key").aggregate([("row", "max")])
    return sorted_.take(last["row_max"].sort())


def _shaped(batch: pa.RecordBatch, fields: pa.Schema | None) -> pa.Table:
    gone = pc.is_null(batch.column("value"))
    if fields is None:
        columns = {"value": batch.column("value")}
    else:
        divided = Parser(in_files(json_schema(list(fields)))).divided(batch)
        names = [*fields.names, "_error"]
        columns = {name: divided.column(name) for name in names}
    rest = {name: batch.column(name) for name in PLACES}
    key = {"key": batch.column("key")}
    return pa.table({**key, **columns, **rest, _ORDER: batch.column(_ORDER), DELETED: gone})
