"""Messages that a writer has accepted and not yet appended, and how they become columns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from operator import itemgetter
from typing import NamedTuple

from penstock.message import Headers
from penstock.parse import identifier, nanoseconds
from penstock.topic.delayed import Extras
from penstock.topic.write_batch import WriteBatch

NO_EXTRAS = Extras(None, None, None)


def checked_extras(
    headers: Headers | None, timestamp: int | datetime | None, partition: int | None, group: str | None
) -> Extras:
    """With a user's timestamp and group, checked; headers and partition are known to be sound."""
    moment = None if timestamp is None else nanoseconds("timestamp", timestamp)
    return Extras(headers, moment, partition, None if group is None else identifier("group", group))


_VALUE, _KEY, _EXTRAS = itemgetter(0), itemgetter(1), itemgetter(2)

#: One message: value, key, and what few have besides.
Entry = tuple[bytes | None, bytes | None, Extras | None]


def columns(entries: Sequence[Entry], now_ns: int) -> WriteBatch:
    """Messages as columns; those without a timestamp get the present one."""
    values, keys = list(map(_VALUE, entries)), list(map(_KEY, entries))
    with_keys = keys if any(key is not None for key in keys) else None
    if not any(map(_EXTRAS, entries)):
        return WriteBatch(values, with_keys)
    rows = [extras or NO_EXTRAS for _, _, extras in entries]
    has_headers = any(row.headers for row in rows)
    has_times = any(row.timestamp is not None for row in rows)
    has_partitions = any(row.partition is not None for row in rows)
    return WriteBatch(
        values,
        with_keys,
        [row.headers for row in rows] if has_headers else None,
        [now_ns if row.timestamp is None else row.timestamp for row in rows] if has_times else None,
        [row.partition for row in rows] if has_partitions else None,
        groups=[row.group for row in rows] if any(row.group for row in rows) else None,
    )


class Special(NamedTuple):
    """Stands in the place of a value among pairs: a message with something besides."""

    value: bytes | None
    extras: Extras


#: Value, key, value, key, … (a producer's writer: value, key, seqno, …): a list of them is quicker to fill
#: and to take apart than one of tuples.
Pairs = list[bytes | Special | int | None]


def pair_columns(
    values: Pairs, keys: Pairs, now_ns: int, *, plain: bool, extras: Extras | None
) -> WriteBatch:
    """Pairs as columns. `plain` promises that none is special; `extras` are those of all others."""
    if plain and extras is None:
        with_keys = keys if any(key is not None for key in keys) else None
        return WriteBatch(values, with_keys)  # type: ignore[arg-type]
    entries = [
        (value.value, key, value.extras) if isinstance(value, Special) else (value, key, extras)
        for value, key in zip(values, keys, strict=True)
    ]
    return columns(entries, now_ns)  # type: ignore[arg-type]


def weight(entry: Entry) -> int:
    """Bytes of a message's value and headers."""
    value, _, extras = entry
    size = len(value) if value is not None else 0
    if extras is not None and extras.headers:
        size += sum(len(name) + len(value) for name, value in extras.headers.items())
    return size
