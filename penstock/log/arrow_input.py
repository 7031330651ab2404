"""Arrow columns on their way into a frame: their buffers are copied whole, no string becomes an object.

A frame's columns have Arrow's own layout, so what is left to do is to let offsets begin at 0 and to leave out
what other slices of the same buffers hold.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from operator import sub
from typing import Any, overload

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidOption, WrongType
from penstock.log.frame_columns import PackedStrings, pack_bits, padded
from penstock.log.header_column import PackedHeaders
from penstock.parse import HEADERS_BYTES_MAX

#: Offsets of a column have 32 bits.
_BYTES_MOST = 2**31 - 1
#: Kinds of columns that are laid out as a frame's are: 32-bit offsets, and the strings back to back.
_AS_IN_FRAMES = frozenset((pa.binary().id, pa.string().id))


class ArrowStrings(Sequence[bytes | None]):
    """A column of binary or text in Arrow's buffers; bytes objects only for those who ask for them."""

    __slots__ = ("_array", "_data", "_first", "_offsets", "_stop")

    def __init__(self, column: pa.Array) -> None:
        self._array = column
        _, offsets, self._data = column.buffers()
        self._first, self._stop, self._offsets = _bounds(offsets, column.offset, len(column))

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __iter__(self) -> Iterator[bytes | None]:
        return iter(self._array.view(pa.binary()).to_pylist())

    @overload
    def __getitem__(self, index: int) -> bytes | None: ...
    @overload
    def __getitem__(self, index: slice) -> ArrowStrings: ...
    def __getitem__(self, index: int | slice) -> bytes | ArrowStrings | None:
        if isinstance(index, slice):
            return ArrowStrings(self._array[index])
        found: bytes | None = self._array.view(pa.binary())[index].as_py()
        return found

    def __contains__(self, string: object) -> bool:
        return self._array.null_count > 0 if string is None else string in list(self)

    @property
    def size(self) -> int:
        """Bytes of all its strings."""
        return self._stop - self._first

    def fits(self, limit: int) -> bool:
        """Whether no string has more bytes than `limit`."""
        size = self._stop - self._first
        return size <= limit or _neighbours_fit(self._offsets, size, limit) or self.longest <= limit

    @property
    def longest(self) -> int:
        """Bytes of its longest string."""
        return pc.max(pc.binary_length(self._array)).as_py() or 0

    @property
    def is_empty(self) -> bool:
        """Whether there is no string, only nulls."""
        return bool(self._array.null_count == len(self._array))

    def take(self, places: Sequence[int]) -> ArrowStrings:
        """Those at `places`, in that order."""
        return ArrowStrings(self._array.take(_indices(places)))

    def packed(self) -> PackedStrings:
        """Return the column as a frame holds it."""
        column = self._array
        if column.null_count:
            filled = pc.fill_null(column, b"" if pa.types.is_binary(column.type) else "")
            return ArrowStrings(filled).packed()._replace(nulls=padded(_bits(pc.is_valid(column))))
        first, size = self._first, self._stop - self._first
        if first:
            offsets = _rebased(column.buffers()[1], column.offset, len(self))[2]
        else:
            offsets = padded(self._offsets.tobytes())
        return PackedStrings(offsets, (self._data.slice(first, size),) if size else (), b"", size)


class ArrowHeaders(Sequence[Any]):
    """A column of headers in Arrow's buffers: a map without nulls among names and values."""

    __slots__ = ("_array",)

    def __init__(self, column: pa.Array) -> None:
        self._array = column

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, index: Any) -> Any:
        found = self._array[index]
        return ArrowHeaders(found) if isinstance(index, slice) else dict(found.as_py() or ())

    def __iter__(self) -> Iterator[Any]:
        return iter([dict(each or ()) for each in self._array.to_pylist()])

    def take(self, places: Sequence[int]) -> ArrowHeaders:
        """Those at `places`, in that order."""
        return ArrowHeaders(self._array.take(_indices(places)))

    @property
    def is_empty(self) -> bool:
        """Whether no message has any."""
        first, stop, _ = _rebased(self._array.buffers()[1], self._array.offset, len(self._array))
        return first == stop

    def packed(self) -> PackedHeaders:
        """Return the column as a frame holds it."""
        column = self._array
        first, stop, bounds = _rebased(column.buffers()[1], column.offset, len(column))
        names, values = column.keys.slice(first, stop - first), column.items.slice(first, stop - first)
        packed_names, packed_values = ArrowStrings(names).packed(), ArrowStrings(values).packed()
        is_text = pack_bits([pa.types.is_string(values.type)] * len(values))
        columns = bounds, packed_names.offsets, packed_values.offsets, is_text
        return PackedHeaders(columns, packed_names.parts, packed_values.parts)


def _indices(places: Sequence[int]) -> pa.Array:
    numbers = places if isinstance(places, array) else array("q", places)
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def strings(column: pa.Array | pa.ChunkedArray) -> ArrowStrings | None:
    """A column of text or binary of any kind; None for any other, and for one beyond 2 GiB."""
    kind = column.type
    is_as_in_frames = kind.id in _AS_IN_FRAMES
    if is_as_in_frames and (isinstance(column, pa.Array) or column.num_chunks == 1):
        return ArrowStrings(_one_chunk(column))
    if not is_as_in_frames and not any(is_kind(kind) for is_kind in _TEXTS):
        return None
    if column.nbytes > _BYTES_MOST:
        return None
    whole = _one_chunk(column)
    return ArrowStrings(whole if is_as_in_frames else whole.cast(pa.binary()))


_TEXTS = tuple(
    test
    for name in ("large_binary", "large_string", "binary_view", "string_view", "fixed_size_binary")
    if (test := getattr(pa.types, f"is_{name}", None)) is not None
)


def headers(column: pa.Array | pa.ChunkedArray) -> ArrowHeaders | None:
    """A column of maps that can be stored as they are; None for one that has to be looked at row by row.

    That is one with nulls where none may be, with a name that may come twice, or with rows that may be too
    large: the rows say which.
    """
    whole = _one_chunk(column)
    kind = whole.type
    if not pa.types.is_map(kind) or not pa.types.is_string(kind.key_type):
        return None
    if not (pa.types.is_binary(kind.item_type) or pa.types.is_string(kind.item_type)):
        return None
    first, stop, _ = _bounds(whole.buffers()[1], whole.offset, len(whole))
    if first == stop:
        return ArrowHeaders(whole)
    names, values = whole.keys.slice(first, stop - first), whole.items.slice(first, stop - first)
    bounds = pa.Array.from_buffers(
        pa.int32(), len(whole) + 1, [None, whole.buffers()[1]], offset=whole.offset
    )
    counts = pc.subtract(bounds[1:], bounds[:-1])
    if names.null_count or values.null_count or pc.sum(counts.filter(whole.is_null())).as_py():
        return None  # the last: a null that holds something
    most = pc.max(counts).as_py()
    if most * (ArrowStrings(names).longest + ArrowStrings(values).longest) > HEADERS_BYTES_MAX:
        return None
    lists = pa.ListArray.from_arrays(pc.subtract(bounds, bounds[0]), names)
    return None if most > 1 and _has_twice(lists) else ArrowHeaders(whole)


def _neighbours_fit(offsets: memoryview, size: int, limit: int) -> bool:
    """Whether strings side by side stay within `limit` together, so that each does by itself.

    That is a few subtractions instead of one for each string; where it says no, a single one may still fit.
    """
    count = len(offsets) - 1
    together = limit * count // (2 * size)  # as many as take half of the limit, if all are alike
    if not together:
        return False
    edges = offsets[::together].tolist()
    edges.append(offsets[count])
    longest: int = max(map(sub, edges[1:], edges))
    return longest <= limit


def header_rows(column: pa.Array | pa.ChunkedArray) -> list[dict[Any, Any] | None]:
    """A column of headers as dicts: of maps, of structs, or of lists of pairs, as maps come elsewhere."""
    kind, rows = column.type, column.to_pylist()
    entry = kind.value_type if pa.types.is_list(kind) or pa.types.is_large_list(kind) else None
    if entry is not None and pa.types.is_struct(entry) and entry.num_fields == 2:
        name, value = entry.field(0).name, entry.field(1).name
        rows = [each and [(pair[name], pair[value]) for pair in each] for each in rows]
    elif not (pa.types.is_map(kind) or pa.types.is_struct(kind) or pa.types.is_null(kind)) and (
        entry is None or not pa.types.is_list(entry)
    ):
        raise WrongType(f"headers are a column of maps, not of {kind}")
    try:
        return [dict(each) if each else None for each in rows]
    except (TypeError, ValueError):
        raise WrongType(f"headers are a column of maps, not of {kind}") from None


def moments(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """A column of moments as nanoseconds since 1970; those without a zone are in UTC, as Arrow has it."""
    if pa.types.is_int64(column.type):
        return column
    try:
        return column.cast(pa.timestamp("ns", tz="UTC")).cast(pa.int64())
    except pa.ArrowNotImplementedError:
        raise WrongType(
            f"timestamps are a column of moments or of int64 nanoseconds, not of {column.type}"
        ) from None
    except pa.ArrowException as error:
        raise InvalidOption(f"timestamps of a column of {column.type} cannot be stored: {error}") from error


def _has_twice(lists: pa.ListArray) -> bool:
    """Whether a list holds a string twice."""
    strings = lists.values
    entries = pa.table({"list": pc.list_parent_indices(lists), "string": strings})
    return bool(entries.group_by(["list", "string"]).aggregate([]).num_rows < len(strings))


def numbers(column: pa.Array | pa.ChunkedArray) -> array[int] | None:
    """A column of 64-bit numbers; None when some are null."""
    if column.null_count:
        return None
    whole = _one_chunk(column)
    made = array("q")
    if len(whole):
        made.frombytes(whole.buffers()[1].slice(8 * whole.offset, 8 * len(whole)))
    return made


def _one_chunk(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _bounds(offsets: pa.Buffer | None, at: int, count: int) -> tuple[int, int, memoryview]:
    """The first and the last of `count + 1` offsets from the one at `at` on, and all of them."""
    if offsets is None or not offsets.size:
        return 0, 0, memoryview(bytes(4 * (count + 1))).cast("i")
    cut = memoryview(offsets).cast("i")[at : at + count + 1]
    return cut[0], cut[count], cut


def _rebased(offsets: pa.Buffer | None, at: int, count: int) -> tuple[int, int, bytes]:
    """The first and last of `count + 1` offsets from the one at `at` on; and all of them less the first."""
    first, stop, cut = _bounds(offsets, at, count)
    if first:
        numbers = pa.Array.from_buffers(pa.int32(), count + 1, [None, offsets], offset=at)
        cut = memoryview(pc.subtract(numbers, numbers[0]).buffers()[1]).cast("i")[: count + 1]
    return first, stop, padded(cut.tobytes())


def _bits(flags: pa.Array) -> bytes:
    if flags.offset:
        return pack_bits(flags.to_pylist())
    stored: bytes = flags.buffers()[1].slice(0, (len(flags) + 7) // 8).to_pybytes()
    spare = -len(flags) % 8
    return stored[:-1] + bytes([stored[-1] & 0xFF >> spare])
