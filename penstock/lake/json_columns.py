"""JSON values parsed into columns of a schema; a row that does not fit keeps `_error` and `_raw`.

pyarrow reads a text of many objects at once, and tells nothing of where each began. That no row shifts is
seen to like this: a block holds only values that begin with "{", end with "}" and have no newline. Joined by
newlines, no object can reach from one value into the next ("}" before "{" needs a comma between), so each
value gives at least one row, and as many rows as values means one each. A block that fails is halved until
what is wrong stands alone. A row comes out the same whatever its neighbours are.

    {"id": 1}      the columns          {}           all null
    null (JSON)    an error             no value     an error without _raw: a tombstone
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from penstock.lake.layout import ERROR, RAW, json_schema

NO_VALUE = "no value"
_NOT_AN_OBJECT = "not a JSON object"
_NOT_UTF8 = "not UTF-8"
_BLANKS = b" \t\r\n"
#: Positions are within a block, and mean nothing to the reader of the message.
_WHERE = re.compile(r" in row \d+$|^JSON parse error: ")


class Parser:
    """Divides the values of record batches into the columns of one table."""

    def __init__(self, columns: pa.Schema) -> None:
        """`columns` are those of the table's files, ours among them."""
        ours = set(json_schema(()).names)
        self._columns = columns
        self._fields = pa.schema([each for each in columns if each.name not in ours])
        readable = pa.schema([pa.field(each.name, _readable(each.type)) for each in self._fields])
        self._options = pj.ParseOptions(explicit_schema=readable, unexpected_field_behavior="ignore")

    def divided(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the messages with the schema's columns in place of `value`."""
        values = batch.column("value")
        found = self._rows(values) if _is_plain(values) else self._mixed(values)
        there = {**_by_name(batch), **_by_name(found)}
        nothing = pa.scalar(None, pa.binary())
        there[RAW] = pc.if_else(pc.is_valid(there[ERROR]), values, nothing)
        return pa.RecordBatch.from_arrays([there[name] for name in self._columns.names], schema=self._columns)

    def _mixed(self, values: pa.Array) -> pa.RecordBatch:
        """Columns of values of which some are not plain: those that are by blocks, the others one by one."""
        texts = [value if value is None else value.strip(_BLANKS) for value in values.to_pylist()]
        together: list[int] = []
        alone: list[int] = []
        for at, text in enumerate(texts):
            if text and text[:1] == b"{" and text[-1:] == b"}":
                (alone if b"\n" in text else together).append(at)
        found = pa.concat_batches(
            [
                self._rows(_binary([texts[at] for at in together])),
                *(self._rows(_binary([texts[at]])) for at in alone),
            ]
        )
        places: list[int | None] = [None] * len(texts)
        for place, at in enumerate(together + alone):
            places[at] = place
        spread = found.take(pa.array(places, pa.int64()))
        reasons = [
            None if place is not None else NO_VALUE if text is None else _NOT_AN_OBJECT
            for place, text in zip(places, texts, strict=True)
        ]
        errors = pc.coalesce(spread.column(ERROR), pa.array(reasons, pa.string()))
        return self._made(spread.columns[:-1], errors)

    def _rows(self, values: pa.Array) -> pa.RecordBatch:
        """Columns of plain values, or of a single one."""
        parts = self._halved(values)
        return parts[0] if len(parts) == 1 else pa.concat_batches(parts)

    def _halved(self, values: pa.Array) -> list[pa.RecordBatch]:
        """Columns of all values, in order, in as many batches as it took."""
        try:
            return [self._block(values)]
        except _Misfit as error:
            if len(values) == 1:
                nothing = [pa.nulls(1, each.type) for each in self._fields]
                return [self._made(nothing, pa.array([str(error)], pa.string()))]
        half = len(values) // 2
        return self._halved(values[:half]) + self._halved(values[half:])

    def _block(self, values: pa.Array) -> pa.RecordBatch:
        """All of them at once; raises `_Misfit` unless each is an object of the schema."""
        errors = pa.nulls(len(values), pa.string())
        if not len(values):
            return self._made([pa.nulls(0, each.type) for each in self._fields], errors)
        try:
            values.cast(pa.string())  # pyarrow.json lets bytes pass that are no UTF-8
        except pa.ArrowInvalid:
            raise _Misfit(_NOT_UTF8) from None
        data = b"\n".join(values.to_pylist()) + b"\n"
        try:
            read = pj.read_json(
                pa.BufferReader(data), pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
                self._options,
            )  # fmt: skip
            columns = [_whole(read.column(each.name)).cast(each.type) for each in self._fields]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise _Misfit(_WHERE.sub("", str(error).splitlines()[0])) from None
        if read.num_rows != len(values):
            raise _Misfit(_NOT_AN_OBJECT)
        return self._made(columns, errors)

    def _made(self, columns: list[pa.Array], errors: pa.Array) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([*columns, errors], names=[*self._fields.names, ERROR])


class _Misfit(Exception):
    """Some value of a block is not what the schema says."""


def _is_plain(values: pa.Array) -> bool:
    """Whether every value is there, begins with "{", ends with "}", and has no newline."""
    if values.null_count:
        return False
    shaped = pc.and_(pc.starts_with(values, "{"), pc.ends_with(values, "}"))
    if not pc.all(shaped, min_count=0).as_py():
        return False
    return b"\n" not in b"".join(values.to_pylist())  # in a third of the time of match_substring


def _readable(kind: pa.DataType) -> pa.DataType:
    """What pyarrow.json can be asked for; dates come as text and are cast behind it."""
    if pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _readable(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(_readable(kind.value_type))
    return kind


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _binary(values: list[bytes | None]) -> pa.Array:
    return pa.array(values, pa.binary())


def _by_name(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return dict(zip(batch.schema.names, batch.columns, strict=True))
