"""Arrow columns as frames: the bytes of a frame are laid out as Arrow has them, so they are only copied."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.log.columns import pack_bits, padded
from penstock.log.encode import Draft
from penstock.log.head import HEADERS, KEY_NULLS, KEYS, TIMES, VALUE_NULLS
from penstock.options import MIB

#: Frames are about as large as those of other writers.
FRAME_BYTES = MIB
FRAME_MESSAGES = 10_000


def drafts(messages: pa.RecordBatch, created: int, *, compress: bool) -> Iterator[Draft]:
    """A batch of messages as frames of about 1 MiB, in order; messages without a time get `created`."""
    for part in _cut(messages):
        yield _draft(part, created, compress=compress)


def _cut(messages: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Slices of equal count; where a few large values make one too large, that one is cut again."""
    count = messages.num_rows
    parts = max(-(-messages.nbytes // FRAME_BYTES), -(-count // FRAME_MESSAGES))
    parts = min(parts, count)
    if parts <= 1:
        if count:
            yield messages
        return
    bounds = [count * i // parts for i in range(parts + 1)]
    for first, stop in pairwise(bounds):
        yield from _cut(messages.slice(first, stop - first))


def _draft(messages: pa.RecordBatch, created: int, *, compress: bool) -> Draft:
    there = dict(zip(messages.schema.names, messages.columns, strict=True))
    flags = 0
    fixed: list[Any] = []
    strings: list[Any] = []
    key_nulls = b""
    keys = there.get("key")
    if keys is not None and keys.null_count < len(keys):
        offsets, data, key_nulls = _strings(keys)
        flags |= KEYS | (KEY_NULLS if key_nulls else 0)
        fixed.append(offsets)
        strings.append(data)
    offsets, data, value_nulls = _strings(there["value"])
    flags |= VALUE_NULLS if value_nulls else 0
    fixed += (offsets, key_nulls, value_nulls)
    strings.append(data)
    if "time" in there:
        created, times = _times(there["time"], created)
        flags |= TIMES if times else 0
        fixed.append(times)
    if "headers" in there:
        columns, texts = _headers(there["headers"])
        flags |= HEADERS if texts else 0
        fixed += columns
        strings += texts
    return Draft((*fixed, *strings), count=messages.num_rows, flags=flags, created=created, compress=compress)


def _strings(column: pa.Array) -> tuple[bytes, Any, bytes]:
    """Offsets from 0 on, the strings back to back, and the bitmap of those there are ("" when all are)."""
    nulls = b""
    if column.null_count:
        nulls = padded(_bits(pc.is_valid(column)))
        column = pc.fill_null(column, b"" if pa.types.is_binary(column.type) else "")
    _, offsets, data = column.buffers()
    first, stop, packed = _rebased(offsets, column.offset, len(column))
    return packed, (data.slice(first, stop - first) if stop > first else b""), nulls


def _rebased(offsets: pa.Buffer | None, at: int, count: int) -> tuple[int, int, bytes]:
    """`count + 1` offsets from the one at `at` on, less the first; and the first and the last."""
    if offsets is None or not offsets.size:
        return 0, 0, padded(bytes(4 * (count + 1)))
    cut = pa.Array.from_buffers(pa.int32(), count + 1, [None, offsets], offset=at)
    first, stop = cut[0].as_py(), cut[count].as_py()
    if first:
        offsets, at = pc.subtract(cut, pa.scalar(first, pa.int32())).buffers()[1], 0
    return first, stop, padded(offsets.slice(4 * at, 4 * (count + 1)).to_pybytes())


def _bits(flags: pa.Array) -> bytes:
    if flags.offset:
        return pack_bits(flags.to_pylist())
    stored: bytes = flags.buffers()[1].slice(0, (len(flags) + 7) // 8).to_pybytes()
    spare = -len(flags) % 8
    return stored[:-1] + bytes([stored[-1] & 0xFF >> spare])


def _times(column: pa.Array, created: int) -> tuple[int, bytes]:
    """What the frame says of its time: one for all, or one each."""
    if column.null_count:
        column = pc.fill_null(column, pa.scalar(created, pa.int64()))
    least, most = pc.min_max(column).as_py().values()
    if least == most:
        return least, b""
    return created, column.buffers()[1].slice(8 * column.offset, 8 * len(column)).to_pybytes()


def _headers(column: pa.Array) -> tuple[list[bytes], list[Any]]:
    first, stop, bounds = _rebased(column.buffers()[1], column.offset, len(column))
    if first == stop:
        return [], []
    names, values = column.keys.slice(first, stop - first), column.items.slice(first, stop - first)
    name_offsets, name_bytes, _ = _strings(names)
    value_offsets, value_bytes, _ = _strings(values)
    is_text = pack_bits([pa.types.is_string(values.type)] * len(values))
    return [bounds, name_offsets, value_offsets, is_text], [name_bytes, value_bytes]
