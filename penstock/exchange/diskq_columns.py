"""Messages of go-diskq cut out of their file by columns, with pyarrow: none becomes a Python object.

A piece of a `.data` file is taken as one long Arrow array, whose cells lie between neighbouring bounds:

    … | key | time and data length | data | key length of the next | key | …

so that every fourth cell is a key, and so on. Only the fixed encoding has such bounds.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from penstock.exchange.diskq_format import FIXED_BYTES, Misfit, Records

if TYPE_CHECKING:
    import pyarrow

_KEY_LENGTH_BYTES, _HEAD_BYTES = 4, 16
#: Places in an Arrow array of bytes are 32 bits wide.
_DATA_BYTES_MOST = 2**31 - 1


def decode_columns(data: bytes, starts: Sequence[int], sizes: Sequence[int]) -> Records | None:
    """Messages in the fixed encoding, keys and values as Arrow arrays; None where that cannot be done.

    They lie one behind the other. Raises `Misfit` for the first message that is not as long as its size says.
    """
    try:
        import pyarrow as pa
        import pyarrow.compute as pc
    except ImportError:
        return None
    if len(data) > _DATA_BYTES_MOST or not starts or starts[-1] + sizes[-1] > len(data):
        return None
    begin, size = _column(pa, starts), _column(pa, sizes)
    _require(
        pc.greater_equal(size, FIXED_BYTES)
    )  # or bounds would go back, and cells lie outside of the data
    after_length = pc.add(begin, _KEY_LENGTH_BYTES)
    end = pc.add(begin, size)
    lengths = _numbers("I", _chosen(_cells(pa, data, [begin, after_length]), 0, 2))
    key_length = pa.array(lengths, pa.int64())
    _require(pc.less_equal(key_length, pc.subtract(size, FIXED_BYTES)))
    head = pc.add(after_length, key_length)
    body = pc.add(head, _HEAD_BYTES)
    cells = _cells(pa, data, [after_length, head, body, end])
    heads = _numbers("q", _chosen(cells, 1, 4))
    _require(pc.equal(pc.subtract(end, body), _column(pa, heads[1::2])))
    return Records(_chosen(cells, 0, 4), heads[0::2], _chosen(cells, 2, 4))


def _column(pa: Any, numbers: Sequence[int]) -> pyarrow.Array:
    """Numbers below 2^63 as an Arrow array, their memory as it is."""
    if isinstance(numbers, array):
        return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])
    return pa.array(numbers, pa.int64())


def _cells(pa: Any, data: bytes, bounds: list[pyarrow.Array]) -> pyarrow.Array:
    """What lies between neighbouring bounds, message after message."""
    count, width = len(bounds[0]), len(bounds)
    joined = array("q", bytes(8 * (count * width + 1)))
    for number, bound in enumerate(bounds):
        joined[number : count * width : width] = _numbers("q", bound)
    joined[-1] = joined[-2]
    offsets = _column(pa, joined).cast(pa.int32())
    buffers = [None, offsets.buffers()[1], pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), count * width, buffers)


def _chosen(cells: pyarrow.Array, place: int, width: int) -> pyarrow.Array:
    """One cell of each message."""
    return cells.take(_places(place, len(cells), width))


@lru_cache(maxsize=8)  # pieces are of one length, but for the last
def _places(place: int, stop: int, width: int) -> pyarrow.Array:
    import pyarrow as pa

    return pa.array(range(place, stop, width), pa.int32())


def _numbers(kind: str, cells: pyarrow.Array) -> array[int]:
    """The memory of a column as numbers."""
    numbers = array(kind)
    numbers.frombytes(cells.buffers()[-1])
    return numbers


def _require(is_right: pyarrow.BooleanArray) -> None:
    """Raise `Misfit` for the first message of which it is not true."""
    import pyarrow.compute as pc

    if not pc.all(is_right).as_py():
        raise Misfit(pc.index(is_right, False).as_py())
