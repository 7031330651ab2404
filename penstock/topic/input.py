"""What a caller gives to write, checked and turned into columns before anything is stored."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from operator import gt
from typing import Any

from penstock.errors import InvalidOption, WrongType
from penstock.headers import checked_header_column, checked_headers
from penstock.keys import Key, checked_key
from penstock.log.frame import RAW
from penstock.log.frame_columns import Lengths, measure
from penstock.log.frame_encode import MessageColumns
from penstock.message import Batch, value_bytes
from penstock.parse import KEY_BYTES_MAX, all_are, nanoseconds
from penstock.topic.value_codec import ValuePacker, checked_seqno, checked_times, checked_value
from penstock.topic.write_batch import WriteBatch

Value = bytes | str | None
#: What pandas calls the labels of its rows when they become a column: they are nobody's data.
_ROW_LABELS = re.compile(r"__index_level_\d+__")


def batch_of_one(
    value: Value,
    key: Key,
    headers: Mapping[str, str | bytes] | None,
    timestamp: int | datetime | None,
    partition: int | None,
    limit: int,
) -> WriteBatch:
    """Check one message and make it a batch."""
    if value.__class__ is not bytes or len(value) > limit:
        value = checked_value(value, limit)
    return WriteBatch(
        MessageColumns(
            (value,),
            None if key is None else (checked_key(key),),
            None if not headers else (checked_headers(headers),),
            None if timestamp is None else (nanoseconds("timestamp", timestamp),),
        ),
        None if partition is None else (partition,),
    )


def batch_of_many(
    values: Any,
    keys: Any,
    headers: Any,
    timestamps: Any,
    partition: int | None,
    limit: int,
    packer: ValuePacker | None = None,
) -> WriteBatch:
    """Check many messages and make them a batch.

    They are lists, Arrow arrays, an Arrow table or record batch, a `Batch`, or any Arrow stream. Values of a
    table or a `Batch` are bytes, also for a typed topic.
    """
    values = _in_arrow(values)
    names = getattr(values, "column_names", None)
    is_whole = isinstance(values, Batch) or names is not None
    if is_whole and not (keys is None and headers is None and timestamps is None):
        raise InvalidOption("a table or a Batch brings its own keys, headers and timestamps")
    if isinstance(values, Batch):
        return _of_batch(values, partition, limit, packer)
    if isinstance(values, (str, bytes, bytearray, memoryview)):
        raise WrongType("write_many takes a list of values; for one value there is write()")
    if is_whole:
        values, keys, headers, timestamps = _table_columns(values, tuple(names or ()))
    stored, value_lengths = _values(values, limit, packer, are_bodies=is_whole)
    count = len(stored)
    stored_keys, key_lengths = _keys(keys, count)
    columns = MessageColumns(
        stored,
        stored_keys,
        _headers(headers, count),
        _times(timestamps, count),
        codecs=RAW if packer is None else packer.codec,
        lengths=(value_lengths, key_lengths),
    )
    return WriteBatch(columns, None if partition is None else [partition] * count)


def _values(
    given: Any, limit: int, packer: ValuePacker | None, *, are_bodies: bool
) -> tuple[Sequence[bytes | None], Lengths | None]:
    """Values as they are stored, and their lengths if that is known and none is None."""
    is_raw = packer is None or (are_bodies and packer.codec == RAW)
    found = _arrow_strings(given) if is_raw else None
    if found is not None and found.fits(limit):
        return found, None
    values = _as_list("values", given)
    if packer is not None:
        return packer.many(values, are_bodies=are_bodies), None
    stored, lengths = _bytes(values)
    if stored is not None and lengths is not None and _longest(lengths) <= limit:
        return stored, lengths
    return [checked_value(value, limit) for value in values], None


def _keys(given: Any, count: int) -> tuple[Sequence[bytes | None] | None, Lengths | None]:
    if given is None:
        return None, None
    found = _arrow_strings(given)
    if found is not None and found.fits(KEY_BYTES_MAX):
        _require_length("keys", found, count)
        return (None if found.is_empty else found), None
    keys = _of_length("keys", given, count)
    assert keys is not None
    stored, lengths = _bytes(keys)
    if stored is not None and lengths is not None and _longest(lengths) <= KEY_BYTES_MAX:
        return stored, lengths
    if all(key is None for key in keys):
        return None, None
    return [checked_key(key) for key in keys], None


def _headers(given: Any, count: int) -> Sequence[Any] | None:
    if given is None:
        return None
    if hasattr(given, "to_pylist"):
        from penstock.log import arrow_input

        found = arrow_input.headers(given)
        if found is not None:
            _require_length("headers", found, count)
            return None if found.is_empty else found
        given = arrow_input.header_rows(given)
    headers = _of_length("headers", given, count)
    return checked_header_column(headers) if headers else None


def _bytes(strings: Sequence[Any]) -> tuple[Sequence[bytes] | None, Lengths | None]:
    """Return all values as bytes, with their lengths, if all are bytes or all are text."""
    kind = type(strings[0]) if strings else None
    if kind not in (bytes, str) or not all_are(kind, strings):
        return None, None
    if kind is str:
        try:
            strings = list(map(str.encode, strings))
        except UnicodeEncodeError:
            return None, None
    return strings, measure(strings)


def _arrow_strings(column: Any) -> Any:
    """A column of text or bytes that lies in Arrow's buffers, to be stored from there; None for any other."""
    if isinstance(column, (list, tuple)) or not hasattr(column, "to_pylist"):
        return None
    from penstock.log import arrow_input

    return arrow_input.strings(column)


def _longest(lengths: Lengths) -> int:
    return lengths if isinstance(lengths, int) else max(lengths)


def _times(given: Any, count: int) -> Sequence[int] | None:
    if given is None:
        return None
    if not isinstance(given, (list, tuple)) and hasattr(given, "to_pylist"):
        from penstock.log import arrow_input

        given = arrow_input.moments(given)
        numbers = arrow_input.numbers(given)
        if numbers is not None:
            _require_length("timestamps", numbers, count)
            return numbers  # any 64 bits are a moment
    timestamps = _of_length("timestamps", given, count) or ()
    if timestamps and all_are(int, timestamps):
        return checked_times(timestamps)
    return [nanoseconds("timestamp", each) for each in timestamps]


def seqnos_of(column: Any, count: int) -> Sequence[int]:
    """Seqnos that belong to `count` values: whole numbers that do not go back."""
    numbers = column if isinstance(column, range) else _as_list("seqnos", column)
    if len(numbers) != count:
        raise InvalidOption(f"{len(numbers)} seqnos for {count} values")
    if not numbers:
        return numbers
    checked_seqno(numbers[0])
    checked_seqno(numbers[-1])
    numbers = consecutive(numbers)
    if isinstance(numbers, range) and numbers.step == 1:
        return numbers
    for number in numbers:
        checked_seqno(number)
    if any(map(gt, numbers, numbers[1:])):
        raise InvalidOption("seqnos go back", hint="they grow from message to message; gaps are fine")
    return numbers


def consecutive(numbers: Sequence[int]) -> Sequence[int]:
    """Return the numbers as a range, if they are consecutive."""
    first, last = numbers[0], numbers[-1]
    if isinstance(numbers, range) or last - first != len(numbers) - 1:
        return numbers
    counted = range(first, last + 1)
    return counted if (numbers if isinstance(numbers, list) else list(numbers)) == list(counted) else numbers


def _as_list(name: str, column: Any) -> Sequence[Any]:
    if isinstance(column, (list, tuple)):
        return column
    if hasattr(column, "to_pylist"):
        return list(column.to_pylist())
    if isinstance(column, Iterable) and not isinstance(column, (str, bytes, Mapping)):
        return list(column)
    raise WrongType(f"{name} takes a list or an Arrow array, not {type(column).__name__}")


def _of_length(name: str, column: Any, count: int) -> Sequence[Any] | None:
    if column is None:
        return None
    if name == "headers" and isinstance(column, Mapping):
        return [column] * count
    listed = _as_list(name, column)
    _require_length(name, listed, count)
    return listed


def _require_length(name: str, column: Sequence[Any], count: int) -> None:
    if len(column) != count:
        raise InvalidOption(f"{len(column)} {name} for {count} values")


def _of_batch(batch: Batch[Any], partition: int | None, limit: int, packer: ValuePacker | None) -> WriteBatch:
    messages = batch.messages()
    keys = [m.key for m in messages]
    headers = [m.headers or None for m in messages]
    columns = MessageColumns(
        _values([value_bytes(m) for m in messages], limit, packer, are_bodies=True)[0],
        keys if any(key is not None for key in keys) else None,
        headers if any(headers) else None,
        [m.timestamp for m in messages],
        codecs=RAW if packer is None else packer.codec,
    )
    return WriteBatch(columns, None if partition is None else [partition] * len(messages))


def _in_arrow(values: Any) -> Any:
    """A table or a column of another library (Polars, pandas, DuckDB) as Arrow's; all else as it is."""
    is_foreign = hasattr(values, "__arrow_c_stream__") and not hasattr(values, "to_pylist")
    if not is_foreign or isinstance(values, Batch) or hasattr(values, "column_names"):
        return values
    from penstock.arrow import require_pyarrow

    pa = require_pyarrow()
    try:
        return pa.table(values)
    except pa.ArrowException as error:
        try:
            return pa.chunked_array(values)
        except (pa.ArrowException, TypeError):
            raise WrongType(f"no Arrow table can be made of this {type(values).__name__}: {error}") from error


def _table_columns(table: Any, given: tuple[str, ...]) -> tuple[Any, Any, Any, Any]:
    """The columns of an Arrow table that messages are made of; others are an error, not lost."""
    names = _checked_names(given)
    keys = table["key"] if "key" in names else None
    headers = table["headers"] if "headers" in names else None
    timestamps = table["timestamp"] if "timestamp" in names else None
    return table["value"], keys, headers, timestamps


@lru_cache(maxsize=64)
def _checked_names(given: tuple[str, ...]) -> frozenset[str]:
    """The names of a table's columns, if messages can be made of them; mostly those of the table before."""
    from penstock.arrow import schema

    listed = [name for name in given if not _ROW_LABELS.fullmatch(name)]
    names = frozenset(listed)
    if len(names) < len(listed):
        raise InvalidOption(f"the table has two columns of one name: {', '.join(sorted(listed))}")
    if "value" not in names:
        raise InvalidOption(f"the table has no column 'value', only {', '.join(sorted(names))}")
    if unknown := names.difference(schema().names):
        raise InvalidOption(
            f"columns that a message does not have: {', '.join(sorted(unknown))}",
            hint="value, key, headers and timestamp are written",
        )
    return names
