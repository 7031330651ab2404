"""Rolled-up rows as a Delta table: written anew, or continued behind the windows it has."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal

from penstock.errors import MissingExtra, NotATable, PipelineFailed
from penstock.options import one_of

if TYPE_CHECKING:
    import pyarrow

Mode = Literal["overwrite", "append"]
MODES = ("overwrite", "append")


def check(table: str, mode: str) -> None:
    """Raise for a table that cannot be written, before anything runs; nothing is made yet."""
    one_of("mode", mode, MODES)
    _deltalake()
    if "://" in table or not os.path.exists(table) or os.path.isdir(os.path.join(table, "_delta_log")):
        return
    if not os.path.isdir(table) or os.listdir(table):
        raise NotATable(f"{table} is there and is no Delta table", hint="choose a new or empty folder")


def write(table: str, rows: pyarrow.Table, mode: Mode, *, now_ns: int) -> int:
    """Write the rows; "append" leaves out windows that the table has, or that are not over yet.

    Returns how many rows were written.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    delta = _deltalake()
    found = rows.set_column(0, "window_start", _utc(rows["window_start"]))
    found = found.set_column(1, "window_end", _utc(found["window_end"]))
    try:
        if mode == "append":
            now = pa.scalar(now_ns // 1000, pa.int64()).cast(found["window_end"].type)
            found = found.filter(pc.less_equal(found["window_end"], now))
            last = _last_end(delta, table)
            if last is not None:
                found = found.filter(pc.greater_equal(found["window_start"], last))
        if mode == "overwrite" or found.num_rows:
            options = {"schema_mode": "overwrite"} if mode == "overwrite" else {}
            delta.write_deltalake(table, found, mode=mode, **options)
    except (delta.exceptions.DeltaError, OSError) as error:
        raise PipelineFailed(
            f"the table {table} was not written: {str(error).partition(chr(10))[0]}",
            hint="mend it and run it again",
        ) from error
    return int(found.num_rows)


def _utc(column: Any) -> Any:
    import pyarrow as pa

    return column.cast(pa.timestamp("us", tz="UTC"))


def _last_end(delta: Any, table: str) -> Any:
    """The end of the last window in the table; None when it has none."""
    import pyarrow.compute as pc

    if not delta.DeltaTable.is_deltatable(table):
        return None
    ends = delta.DeltaTable(table).to_pyarrow_table(columns=["window_end"])["window_end"]
    return pc.max(_utc(ends)) if len(ends) else None


def _deltalake() -> Any:
    try:
        import deltalake
        import deltalake.exceptions
    except ImportError:
        raise MissingExtra("deltalake", "arrow") from None
    return deltalake
