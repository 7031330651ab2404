"""Messages as Arrow: the schema all tables share, and record batches put together.

Needs the `arrow` extra; nothing else of the base does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from penstock.errors import InvalidOption, MissingExtra

if TYPE_CHECKING:
    import pyarrow


def require_pyarrow() -> ModuleType:
    """The pyarrow module, or an error that says how to install it."""
    try:
        import pyarrow
    except ImportError:
        raise MissingExtra("pyarrow", "arrow") from None
    module: ModuleType = pyarrow
    return module


def require_deltalake() -> Any:
    """The deltalake module with its exceptions, or an error that says how to install it."""
    try:
        import deltalake.exceptions
    except ImportError:
        raise MissingExtra("deltalake", "arrow") from None
    return deltalake


def require(name: str) -> Any:
    """A library that takes Arrow tables, or an error that says how to install it."""
    try:
        return import_module(name)
    except ImportError:
        error = MissingExtra(name, "arrow")
        error.hint = f'pip install "penstock[arrow]" {name}'
        raise error from None


#: The columns that are wanted; None means all.
Names = tuple[str, ...] | None


@cache
def schema(names: Names = None) -> pyarrow.Schema:
    """The columns of every table of messages, or those named, in that order; times are UTC, nanoseconds."""
    whole = _whole_schema()
    if names is None:
        return whole
    unknown = [name for name in names if name not in whole.names]
    if unknown or not names:
        raise InvalidOption(
            f"no column {', '.join(unknown) or 'at all'}", hint=f"there are {', '.join(whole.names)}"
        )
    return require_pyarrow().schema([whole.field(name) for name in names])


@cache
def _whole_schema() -> pyarrow.Schema:
    pa = require_pyarrow()
    time = pa.timestamp("ns", tz="UTC")
    return pa.schema(
        [
            pa.field("topic", pa.string(), nullable=False),
            pa.field("partition", pa.int32(), nullable=False),
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("headers", pa.map_(pa.string(), pa.binary())),
            pa.field("timestamp", time, nullable=False),
            pa.field("written_at", time, nullable=False),
            pa.field("producer_id", pa.string()),
            pa.field("group", pa.string()),
            pa.field("seqno", pa.int64()),
            pa.field("codec", pa.string(), nullable=False),
        ]
    )


def combined(batches: Iterable[pyarrow.RecordBatch]) -> pyarrow.RecordBatch:
    """One record batch with the rows of all."""
    pa = require_pyarrow()
    several = list(batches)
    if not several:
        return pa.RecordBatch.from_pylist([], schema=schema())
    return several[0] if len(several) == 1 else pa.concat_batches(several)


def stream(
    batches: Iterator[pyarrow.RecordBatch], requested_schema: object = None, names: Names = None
) -> Any:
    """An Arrow C stream that pulls the batches one at a time."""
    pa = require_pyarrow()
    reader = pa.RecordBatchReader.from_batches(schema(names), batches)
    return reader.__arrow_c_stream__(requested_schema)
