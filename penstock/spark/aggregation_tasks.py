"""What the tasks of `aggregate` do on executors: read a slice, keep sums of its groups, by Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidOption
from penstock.parse import MIB
from penstock.spark.source import batches
from penstock.spark.source.batches import arrow_schema
from penstock.spark.source.filter_parse import Comparison
from penstock.spark.source.plan import Slice
from penstock.spark.source.schema import ALL

FUNCTIONS = ("count", "sum", "min", "max", "mean")
#: The bytes of key and value of a message.
SIZE = "size"
WINDOW = "window_start"
#: Rows of several batches are reduced together.
_GATHERED = 262_144
_GATHERED_BYTES = 64 * MIB
_TIME = pa.timestamp("us", tz="UTC")
_COMPARE = {"=": pc.equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}


class Measure(NamedTuple):
    """What is measured of a group; `column` is None for a count of messages."""

    name: str
    function: str
    column: str | None

    @property
    def parts(self) -> tuple[str, ...]:
        """The columns of its partial results."""
        if self.function == "mean":
            return f"{self.name}/sum", f"{self.name}/count"
        return (f"{self.name}/{self.function}",)


class Reduction(NamedTuple):
    """What is to be measured."""

    measures: tuple[Measure, ...]
    by: tuple[str, ...]
    #: Microseconds; None: there are no windows.
    window: int | None
    time: str
    conditions: tuple[Comparison, ...]
    #: Of the values' JSON.
    fields: tuple[Any, ...]

    @property
    def groups(self) -> tuple[str, ...]:
        """The columns that make a group."""
        return self.by if self.window is None else (WINDOW, *self.by)

    @property
    def columns(self) -> dict[str, bool]:
        """The columns of messages that must be read, and whether they may be null."""
        asked = {
            *self.by,
            *(each.column for each in self.measures),
            *(each.column for each in self.conditions),
        }
        asked |= {self.time} if self.window is not None else set()
        asked |= {"key", "value"} if SIZE in asked else set()
        asked |= {"value"} if asked & {each.name for each in self.fields} else set()
        found = [name for name in ALL if name in asked]
        return dict.fromkeys(found or ["offset"], True)

    @property
    def kinds(self) -> dict[str, pa.DataType]:
        """The Arrow types of everything that can be grouped by or measured."""
        known = {each.name: each.type for each in arrow_schema(dict.fromkeys(ALL, True))}
        return known | {SIZE: pa.int64(), WINDOW: _TIME} | {each.name: each.type for each in self.fields}


def partial_columns(work: Reduction) -> list[tuple[str, str]]:
    """Names and Spark types of partial results."""
    return [(name, _spark(kind)) for name, kind in _partial_kinds(work).items()]


def reduced(planned: Slice, work: Reduction) -> pa.Table:
    """The partial results of a slice: one row for each of its groups."""
    parser = _parser(work)
    waiting: list[pa.RecordBatch] = []
    results: list[pa.Table] = []
    rows = size = 0
    for batch in batches.read(planned, work.columns, together=parser is not None):
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.get_total_buffer_size()
        if rows >= _GATHERED or size >= _GATHERED_BYTES:
            results.append(_first(_shaped(waiting, work, parser), work))
            waiting, rows, size = [], 0, 0
    if waiting:
        results.append(_first(_shaped(waiting, work, parser), work))
    schema = pa.schema(list(_partial_kinds(work).items()))
    if not results:
        return schema.empty_table()
    whole = results[0] if len(results) == 1 else _again(pa.concat_tables(results), work)
    return whole.select(schema.names).cast(schema)


def _parser(work: Reduction) -> Any:
    if not work.fields:
        return None
    from penstock.lake.json_columns import Parser
    from penstock.lake.layout import ERROR, RAW

    return Parser(pa.schema([*work.fields, pa.field(ERROR, pa.string()), pa.field(RAW, pa.binary())]))


def _shaped(rows: Sequence[pa.RecordBatch], work: Reduction, parser: Any) -> pa.Table:
    """The rows that count, with the columns that groups and measures are made of."""
    whole = pa.Table.from_batches(rows)
    found = dict(zip(whole.schema.names, whole.columns, strict=True))
    if parser is not None and "value" in found:
        divided = pa.Table.from_batches([parser.divided(batch) for batch in rows])
        found |= {each.name: divided.column(each.name) for each in work.fields}
    wanted = {*work.by, *(each.column for each in work.measures), *(each.column for each in work.conditions)}
    if SIZE in wanted:
        lengths = (
            pc.fill_null(pc.binary_length(found[name]), 0).cast(pa.int64()) for name in ("key", "value")
        )
        found[SIZE] = pc.add(*lengths)
    if work.window is not None:
        found[WINDOW] = _floored(found[work.time], work.window)
    used = {*work.groups, *(wanted - {None})} or {next(iter(found))}
    table = pa.table({name: column for name, column in found.items() if name in used})
    for each in work.conditions:
        table = table.filter(_passes(table.column(each.column), each))
    return table


def _floored(times: pa.Array, window: int) -> pa.Array:
    """The beginning of the window in which each time lies; windows are counted from 1970, UTC."""
    micros = times.cast(_TIME).cast(pa.int64())
    start = pc.multiply(pc.divide(micros, window), window)  # towards 1970
    start = pc.if_else(pc.greater(start, micros), pc.subtract(start, window), start)
    return start.cast(_TIME)


def _passes(column: pa.ChunkedArray, given: Comparison) -> Any:
    values = given.value if given.operator == "in" else (given.value,)
    try:
        known = [pa.scalar(_like(value, column.type), column.type) for value in values]
    except (pa.ArrowInvalid, pa.ArrowTypeError, AttributeError, ValueError) as error:
        raise InvalidOption(f"{given.column} is {column.type}, and compared with {given.value!r}") from error
    if given.operator == "in":
        return pc.is_in(column, value_set=pa.array([each.as_py() for each in known], column.type))
    return _COMPARE[given.operator](column, known[0])


def _like(value: Any, kind: pa.DataType) -> Any:
    """A constant as the column has it: text of a binary column is UTF-8."""
    return value.encode() if pa.types.is_binary(kind) and isinstance(value, str) else value


def _first(rows: pa.Table, work: Reduction) -> pa.Table:
    """Rows reduced to one a group."""
    asked: list[Any] = []
    for each in work.measures:
        if each.column is None:
            asked.append(([], "count_all"))
        elif each.function == "mean":
            asked += [(each.column, "sum"), (each.column, "count")]
        else:
            asked.append((each.column, each.function))
    return _grouped(rows, work, asked)


def _again(partials: pa.Table, work: Reduction) -> pa.Table:
    """Partial results put together."""
    asked = [
        (part, each.function if each.function in ("min", "max") else "sum")
        for each in work.measures
        for part in each.parts
    ]
    return _grouped(partials, work, asked)


def _grouped(rows: pa.Table, work: Reduction, asked: Sequence[Any]) -> pa.Table:
    made = rows.group_by(list(work.groups), use_threads=False).aggregate(asked)
    return made.rename_columns([*work.groups, *(part for each in work.measures for part in each.parts)])


def _partial_kinds(work: Reduction) -> dict[str, pa.DataType]:
    kinds = work.kinds
    found = {name: kinds[name] for name in work.groups}
    for each in work.measures:
        kind = pa.int64() if each.column is None else kinds[each.column]
        for part in each.parts:
            found[part] = _result(part.rpartition("/")[2], kind)
    return found


def _result(function: str, kind: pa.DataType) -> pa.DataType:
    if function in ("min", "max"):
        return kind
    if function == "count" or pa.types.is_integer(kind):
        return pa.int64()
    if not pa.types.is_floating(kind):
        raise InvalidOption(
            f"there is no sum of {kind}", hint="sums are of numbers; cast the field as double"
        )
    return pa.float64()


def _spark(kind: pa.DataType) -> str:
    names = {
        pa.string(): "string", pa.binary(): "binary", pa.int16(): "smallint", pa.int32(): "int",
        pa.int64(): "bigint", pa.float32(): "float", pa.float64(): "double", pa.bool_(): "boolean",
        pa.date32(): "date", _TIME: "timestamp",
    }  # fmt: skip
    if kind not in names:
        raise InvalidOption(f"{kind} cannot be grouped by or measured", hint="use a field of a plain type")
    return names[kind]
