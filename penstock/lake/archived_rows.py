"""Rows of an archive as messages again, with times to the nanosecond.

Only `stored` differs: an archive keeps values unpacked, whatever their `codec`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any

import pyarrow as pa

from penstock import arrow
from penstock.lake.layout import HEADERS_TEXT, RAW_SCHEMA, in_files, nanoseconds
from penstock.message import NO_HEADERS, Headers, Message, Rows, all_typed

#: What the columns of `penstock.arrow.schema` are made of, where that is not a column of the same name.
_MADE_OF = {
    "topic": (),
    "timestamp": ("timestamp", "timestamp_nanos"),
    "written_at": ("written_at", "written_at_nanos"),
}


def columns_for(names: arrow.Names) -> list[str]:
    """The table's columns that these of `penstock.arrow.schema` are made of; None is for whole messages."""
    if names is None:
        return list(in_files(RAW_SCHEMA).names)
    wanted = [part for name in names for part in _MADE_OF.get(name, (name,))]
    return list(dict.fromkeys(("offset", *wanted)))


class ArchivedRows:
    """Messages of one partition in a record batch of an archive."""

    __slots__ = ("_batch", "_partition", "_topic")

    def __init__(self, topic: str, partition: int, batch: pa.RecordBatch) -> None:
        self._topic = topic
        self._partition = partition
        self._batch = batch

    @property
    def partition(self) -> int:
        """The partition that the rows are of."""
        return self._partition

    def __len__(self) -> int:
        return int(self._batch.num_rows)

    @property
    def first(self) -> int:
        """The offset of the first row."""
        return int(self._batch.column("offset")[0].as_py())

    @property
    def stop(self) -> int:
        """The offset behind the last row."""
        return int(self._batch.column("offset")[-1].as_py()) + 1

    def messages(self, decode: Callable[[bytes], Any] | None = None) -> list[Message]:
        """Return the rows as messages; their values are what `decode` makes of them, if it is given."""
        made = map(
            Message,
            repeat(self._topic),
            repeat(self._partition),
            self._list("offset"),
            self._list("key"),
            self._list("value"),
            self._time("timestamp").view("int64").to_pylist(),
            self._time("written_at").view("int64").to_pylist(),
            _headers(self._list("headers"), self._list(HEADERS_TEXT)),
            self._list("producer_id"),
            self._list("group"),
            self._list("seqno"),
            self._list("codec"),
        )
        return list(made) if decode is None else all_typed(made, decode)

    def record_batch(self, names: arrow.Names = None) -> pa.RecordBatch:
        """Return the rows as one Arrow record batch."""
        chosen = arrow.schema(names)
        return pa.RecordBatch.from_arrays([self._column(name) for name in chosen.names], schema=chosen)

    def joined(self, following: Sequence[Rows]) -> pa.RecordBatch:
        """Return these messages and the following ones as one Arrow record batch."""
        return arrow.combined(rows.record_batch() for rows in (self, *following))

    def _column(self, name: str) -> pa.Array:
        if name == "topic":
            return pa.repeat(pa.scalar(self._topic, pa.string()), len(self))
        return self._time(name) if name in _MADE_OF else self._batch.column(name)

    def _time(self, name: str) -> pa.Array:
        return nanoseconds(self._batch.column(name), self._batch.column(f"{name}_nanos"))

    def _list(self, name: str) -> list[Any]:
        return list(self._batch.column(name).to_pylist())


def _headers(
    entries: Iterable[Sequence[tuple[str, bytes]] | None], are_text: Iterable[Sequence[bool] | None]
) -> list[Headers]:
    return [
        {
            name: value.decode() if is_text else value
            for (name, value), is_text in zip(each, texts or repeat(False), strict=False)
        }
        if each
        else NO_HEADERS
        for each, texts in zip(entries, are_text, strict=True)
    ]
