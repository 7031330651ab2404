"""What is read and what a write answers: `Message`, `Batch`, `Receipt`, `Receipts`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, overload

import msgspec

from penstock.options import Sync

if TYPE_CHECKING:
    import pandas
    import pyarrow

Headers = Mapping[str, str | bytes]

#: Shared by all messages that have none.
NO_HEADERS: Headers = MappingProxyType({})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message as it lies in the log. Times are nanoseconds since 1970, UTC."""

    topic: str
    partition: int
    offset: int
    #: None when it was written without a key; an empty key is b"".
    key: bytes | None
    #: None is a tombstone, which differs from an empty value.
    value: bytes | None
    #: The producer's own time.
    timestamp: int
    #: Given by the log, never decreasing within a partition's segment; retention and seek go by it.
    written_at: int
    headers: Headers = NO_HEADERS
    producer_id: str | None = None
    group: str | None = None
    seqno: int | None = None
    codec: str = "raw"
    #: 1 at the first delivery; retries count up.
    attempt: int = 1

    @property
    def time(self) -> datetime:
        """`timestamp` as a datetime (UTC, to the microsecond)."""
        return _EPOCH + timedelta(microseconds=self.timestamp // 1000)

    @property
    def text(self) -> str:
        """The value as UTF-8 text; a tombstone is ""."""
        return "" if self.value is None else self.value.decode()


class Rows(Protocol):
    """Messages of one partition that lie together, decoded when asked for."""

    @property
    def partition(self) -> int: ...

    def __len__(self) -> int: ...

    @property
    def first(self) -> int: ...

    @property
    def stop(self) -> int: ...

    def messages(self) -> list[Message]: ...

    def record_batch(self, names: tuple[str, ...] | None = None) -> pyarrow.RecordBatch: ...


class Batch(Sequence[Message]):
    """Messages that a read returned, in order; decoded on first use, to Python or to Arrow."""

    def __init__(self, topic: str, rows: Sequence[Rows]) -> None:
        self.topic = topic
        self._rows = rows
        self._messages: list[Message] | None = None

    def __len__(self) -> int:
        return sum(map(len, self._rows))

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages())

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        return self.messages()[index]

    def messages(self) -> list[Message]:
        """All messages as a list, made once."""
        if self._messages is None:
            made = [rows.messages() for rows in self._rows]
            self._messages = made[0] if len(made) == 1 else list(chain.from_iterable(made))
        return self._messages

    @property
    def rows(self) -> Sequence[Rows]:
        """The runs of neighbouring messages this batch is made of."""
        return self._rows

    def to_arrow(self) -> pyarrow.RecordBatch:
        """The messages as one Arrow record batch (needs the `arrow` extra)."""
        from penstock import arrow

        return arrow.combined(self._record_batches())

    def to_pandas(self) -> pandas.DataFrame:
        """The messages as a pandas DataFrame (needs pandas and the `arrow` extra)."""
        return self.to_arrow().to_pandas()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        from penstock import arrow

        return arrow.stream(self._record_batches(), requested_schema)

    def __repr__(self) -> str:
        return f"<Batch {self.topic}: {len(self)} messages>"

    def _record_batches(self) -> Iterator[pyarrow.RecordBatch]:
        return (rows.record_batch() for rows in self._rows)


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """Where a message was stored, and how safely."""

    partition: int
    offset: int
    #: "disk": it survives a power cut. "os": it survives a crash of the process.
    sync: Sync
    #: The producer had written this seqno before; nothing was stored this time.
    duplicate: bool = False


class Stored(msgspec.Struct, frozen=True, gc=False):
    """A run of messages stored side by side."""

    partition: int
    first: int
    count: int


class Receipts(Sequence[Receipt]):
    """Where many messages were stored: a receipt each, in the order they were given."""

    def __init__(
        self, runs: Sequence[Stored], *, sync: Sync, order: Sequence[tuple[int, int]] | None = None
    ) -> None:
        self.runs = runs
        self.sync = sync
        self._order = order

    def __len__(self) -> int:
        return sum(run.count for run in self.runs)

    @overload
    def __getitem__(self, index: int) -> Receipt: ...
    @overload
    def __getitem__(self, index: slice) -> list[Receipt]: ...
    def __getitem__(self, index: int | slice) -> Receipt | list[Receipt]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError("no such receipt")
        return self._receipt(at)

    def __repr__(self) -> str:
        places = ", ".join(f"{r.partition}:{r.first}..{r.first + r.count - 1}" for r in self.runs[:4])
        return f"<Receipts: {len(self)} messages at {places}{', …' if len(self.runs) > 4 else ''}>"

    def _receipt(self, at: int) -> Receipt:
        if self._order is not None:
            run_index, place = self._order[at]
            run = self.runs[run_index]
            return Receipt(run.partition, run.first + place, self.sync)
        for run in self.runs:
            if at < run.count:
                return Receipt(run.partition, run.first + at, self.sync)
            at -= run.count
        raise IndexError("no such receipt")
