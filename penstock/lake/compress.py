"""Which columns of a file are compressed: all of them, but for bytes and text that would stay as large.

Values that are random, encrypted or compressed already gain nothing, and each reader pays for taking them
apart: Spark read one column of such values a fifth faster from files that held them as they are.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from penstock.parse import KIB

_CODEC, LEVEL = "zstd", 1
#: A column is compressed when it becomes this much smaller, of one.
_WORTH = 0.2
#: Looked at of a column: so many stretches, of so many bytes each.
_STRETCHES, _STRETCH_BYTES = 8, 32 * KIB


def compressions(rows: pa.Table) -> dict[str, str]:
    """The compression of each column of a file, by its path in Parquet; `rows` are the first ones."""
    found = {}
    for field in rows.schema:
        name = _CODEC if _is_worth_it(rows.column(field.name)) else "none"
        found.update(dict.fromkeys(_leaves(field.name, field.type), name))
    return found


def _is_worth_it(column: pa.ChunkedArray) -> bool:
    """Whether a column gets smaller; tried only for plain bytes and text."""
    if not (pa.types.is_binary(column.type) or pa.types.is_string(column.type)):
        return True
    sample = b"".join(_stretches(column))
    return not sample or _compressed_size(sample) <= (1 - _WORTH) * len(sample)


def _compressed_size(sample: bytes) -> int:
    return int(pa.Codec(_CODEC, LEVEL).compress(sample).size)


def _stretches(column: pa.ChunkedArray) -> Iterator[bytes]:
    """Parts of a column, evenly apart: neighbours together, since what they have in common counts."""
    rows = max(_STRETCH_BYTES * len(column) // max(column.nbytes, 1), 1)
    for first in range(0, len(column), max(len(column) // _STRETCHES, rows)):
        yield _bytes_of(column.slice(first, rows).combine_chunks())[:_STRETCH_BYTES]


def _bytes_of(array: pa.Array) -> bytes:
    """The bytes of all values, one behind the other."""
    _, bounds, data = array.buffers()
    if data is None:
        return b""
    ends = memoryview(bounds).cast("i")
    return bytes(data[ends[array.offset] : ends[array.offset + len(array)]])


def _leaves(path: str, kind: pa.DataType) -> Iterator[str]:
    """The paths that Parquet gives to the columns of which a column consists."""
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path
