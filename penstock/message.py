"""What is read and what a write answers: `Message`, `Batch`, `Receipt`, `Receipts`.

`Message[Order]` is a message whose value is an `Order`; plain `Message` is one whose value is bytes.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, Protocol, overload

import msgspec

from penstock import codecs, references
from penstock.errors import DataError, Undecodable, UsageError
from penstock.headers import NO_HEADERS as NO_HEADERS
from penstock.headers import Headers as Headers
from penstock.options import Sync
from penstock.parse import utc
from penstock.references import Reference as Reference

if TYPE_CHECKING:
    import pandas
    import pyarrow
    from typing_extensions import TypeVar

    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    V = TypeVar("V")


class Message(msgspec.Struct, Generic[V], frozen=True, gc=False):
    """One message as it lies in the log. Times are nanoseconds since 1970, UTC."""

    topic: str
    partition: int
    offset: int
    #: None when it was written without a key; an empty key is b"".
    key: bytes | None
    #: None is a tombstone, which differs from an empty value. Decoded when it is first looked at.
    value: V | None
    #: The producer's own time.
    timestamp: int
    #: Given by the log, never decreasing within a partition's segment; retention and seek go by it.
    written_at: int
    #: Not to be changed: messages with the same headers share them.
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
        return utc(self.timestamp)

    @property
    def text(self) -> str:
        """The value as UTF-8 text; a tombstone is ""."""
        body = value_bytes(self)
        return "" if body is None else body.decode()

    @property
    def stored(self) -> bytes | None:
        """The value's bytes as they lie in the log, packed by `codec`; of an archive, unpacked."""
        return self.value  # type: ignore[return-value]  # a plain Message holds bytes, others are `LazyMessage`

    @property
    def reference(self) -> Reference | None:
        """Where the value lies if that is outside the log (docs/payloads.md), without fetching it."""
        stored = self.stored if self.codec == references.CODEC_NAME else None
        return None if stored is None else references.unpack(stored)

    def open(self) -> BinaryIO:
        """The value's bytes as a file; one that lies outside the log is read piece by piece.

        Its digest is checked when the end is reached: until then, bytes are only what the place said.
        """
        reference = self.reference
        if reference is not None and reference.codec == codecs.RAW:
            where = f"offset {self.offset} of {self.topic!r} partition {self.partition}"
            return references.open_body(reference, where)
        body = value_bytes(self)
        if body is None:
            raise UsageError("a tombstone has no value to be opened", hint="ask whether value is None first")
        return io.BytesIO(body)

    def __reduce__(self) -> tuple[Any, ...]:
        return Message, _travelling(self, self.value)


_UNSET = msgspec.UNSET
_RAW = codecs.name_of(codecs.RAW)
_PLAIN_FIELDS = Message.__struct_fields__
#: What lies in the field `value` of any message.
_field_value: Any = Message.__dict__["value"].__get__


class LazyMessage(Message[Any], frozen=True, gc=True):
    """A message whose value is packed, typed, or both, and is made when it is first looked at.

    Reading a batch and looking at keys and headers unpacks nothing (S001-10). What cannot be made raises
    `Undecodable` each time the value is asked for, and nothing else of the message is affected.

    The field `value` has the bytes as they lie in the log; who asks for the value gets what they make.
    """

    #: Makes the value from its bytes, where it is not the bytes themselves.
    decode: Callable[[bytes], Any] | None = None
    #: Whether the bytes are packed by `codec`; in a message of an archive they are not.
    is_packed: bool = True
    #: The value, once somebody has looked at it.
    made: Any = _UNSET

    @property
    def stored(self) -> bytes | None:
        """The value's bytes as they lie in the log, packed by `codec`; of an archive, unpacked."""
        return _field_value(self)  # type: ignore[no-any-return]

    @property  # type: ignore[misc]
    def value(self) -> Any:
        made = self.made
        return self._make() if made is _UNSET else made

    def _make(self) -> Any:
        stored, decode = _field_value(self), self.decode
        body = stored if self.codec == _RAW else value_bytes(self)
        try:
            made = body if decode is None or body is None else decode(body)
        except Exception as error:  # the type's own code may raise anything
            raise Undecodable(
                f"offset {self.offset} of {self.topic!r} partition {self.partition} is not of the topic's "
                f"type: {error}",
                topic=self.topic, partition=self.partition, offset=self.offset,
                hint="read the topic without type= to see its bytes",
            ) from error  # fmt: skip
        _set_made(self, made)
        return made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        if any(getattr(self, name) != getattr(other, name) for name in _BESIDES):
            return False
        if isinstance(other, LazyMessage) and self._origin == other._origin:
            return True  # the same bytes make the same value, also where it cannot be made here
        return bool(self.value == other.value)

    @property
    def _origin(self) -> tuple[Any, ...]:
        """What the value is made of."""
        return self.stored, self.decode, self.is_packed

    def __repr__(self) -> str:
        try:
            reference = self.reference
            value = f"<body {reference.name!r}>" if reference is not None else repr(self.value)
        except DataError:
            value = f"<{len(self.stored or b'')} bytes that cannot be decoded>"
        fields = (value if name == "value" else repr(getattr(self, name)) for name in _PLAIN_FIELDS)
        pairs = zip(_PLAIN_FIELDS, fields, strict=True)
        return f"Message({', '.join(f'{name}={shown}' for name, shown in pairs)})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Packed values travel packed; a typed one as the value it is, since its decoder cannot."""
        if self.decode is not None:
            return Message, _travelling(self, self.value)
        return LazyMessage, _travelling(self, self.stored)


_set_made: Any = LazyMessage.__dict__["made"].__set__


def _travelling(message: Message[Any], value: Any) -> tuple[Any, ...]:
    """The fields of a message as they can be pickled: the shared empty headers cannot."""
    odd = {"value": value, "headers": dict(message.headers)}
    return tuple(odd[name] if name in odd else getattr(message, name) for name in _PLAIN_FIELDS)


#: What distinguishes messages besides the value; looked at first, since it costs no unpacking.
_BESIDES = tuple(name for name in _PLAIN_FIELDS if name != "value")


def value_bytes(message: Message[Any]) -> bytes | None:
    """The bytes that a message's value is made of, unpacked; None for a tombstone."""
    if not isinstance(message, LazyMessage) or not message.is_packed or message.stored is None:
        return message.stored
    return codecs.decoded(
        message.codec, message.stored,
        topic=message.topic, partition=message.partition, offset=message.offset,
    )  # fmt: skip


def typed(message: Message[Any], decode: Callable[[bytes], Any]) -> Message[Any]:
    """Return a message whose value `decode` makes of its bytes when it is looked at."""
    is_packed = message.is_packed if isinstance(message, LazyMessage) else message.codec == _RAW
    return LazyMessage(
        message.topic, message.partition, message.offset, message.key, message.stored, message.timestamp,
        message.written_at, message.headers, message.producer_id, message.group, message.seqno,
        message.codec, message.attempt, decode, is_packed,
    )  # fmt: skip


def all_typed(messages: Iterable[Message[Any]], decode: Callable[[bytes], Any]) -> list[Message[Any]]:
    """Return messages whose values `decode` makes of their bytes when they are looked at."""
    return [typed(each, decode) for each in messages]


class Rows(Protocol):
    """Messages of one partition that lie together, decoded when asked for."""

    @property
    def partition(self) -> int:
        """The partition that the messages are in."""

    def __len__(self) -> int: ...

    @property
    def first(self) -> int:
        """The offset of the first message."""

    @property
    def stop(self) -> int:
        """The offset after the last message."""

    def messages(self, decode: Callable[[bytes], Any] | None = None) -> list[Message]:
        """Return the messages; their values are what `decode` makes of them, if it is given."""

    def record_batch(self, names: tuple[str, ...] | None = None) -> pyarrow.RecordBatch:
        """Return the messages as Arrow columns; the columns of `names`, or all."""

    def joined(self, following: Sequence[Rows]) -> pyarrow.RecordBatch:
        """Return these messages and the following ones as one Arrow record batch."""


class Batch(Sequence[Message[V]], Generic[V]):
    """Messages that a read returned, in order; decoded on first use, to Python or to Arrow.

    Values of a typed topic are what `decode` makes of them; Arrow has their bytes.
    """

    def __init__(
        self, topic: str, rows: Sequence[Rows], decode: Callable[[bytes], Any] | None = None, *,
        more: bool = False, next: Mapping[int, int] | None = None,
    ) -> None:  # fmt: skip
        self.topic = topic
        #: Whether the limit of `Topic.read` left messages out: `next` is where they begin.
        self.more = more
        #: Of a `Topic.read`, the place to go on from, for its `start`: an offset for each partition.
        self.next = next
        self._rows = rows
        self._decode = decode
        self._messages: list[Message[V]] | None = None

    def __len__(self) -> int:
        return sum(map(len, self._rows))

    def __iter__(self) -> Iterator[Message[V]]:
        return iter(self.messages())

    @overload
    def __getitem__(self, index: int) -> Message[V]: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message[V]]: ...
    def __getitem__(self, index: int | slice) -> Message[V] | list[Message[V]]:
        return self.messages()[index]

    def messages(self) -> list[Message[V]]:
        """All messages as a list, made once."""
        if self._messages is None:
            self._messages = self.made()
        return self._messages

    def made(self) -> list[Message[V]]:
        """All messages, made for this call: the batch does not keep them, so each can be let go of."""
        made: list[list[Message[Any]]] = [rows.messages(self._decode) for rows in self._rows]
        return made[0] if len(made) == 1 else list(chain.from_iterable(made))

    @property
    def rows(self) -> Sequence[Rows]:
        """The runs of neighbouring messages this batch is made of."""
        return self._rows

    def to_arrow(self) -> pyarrow.RecordBatch:
        """The messages as one Arrow record batch (needs the `arrow` extra)."""
        from penstock import arrow

        return self._rows[0].joined(self._rows[1:]) if self._rows else arrow.combined(())

    def to_pandas(self) -> pandas.DataFrame:
        """The messages as a pandas DataFrame (needs pandas and the `arrow` extra)."""
        return self.to_arrow().to_pandas()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        from penstock import arrow

        return arrow.stream(self._record_batches(), requested_schema)

    def __repr__(self) -> str:
        return f"<Batch {self.topic}: {len(self)} messages{', and more' if self.more else ''}>"

    def _record_batches(self) -> Iterator[pyarrow.RecordBatch]:
        return (rows.record_batch() for rows in self._rows)


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """Where a message was stored, and how safely."""

    partition: int
    #: -1 for a duplicate: where the first one lies is not kept.
    offset: int
    #: "disk": it survives a power cut. "os": it survives a crash of the process.
    sync: Sync
    #: The producer had written this seqno before; nothing was stored this time.
    duplicate: bool = False
    #: Of a delayed message: when it enters the topic, in nanoseconds since 1970. Partition and offset are -1,
    #: since they are given then.
    due_at: int | None = None
    #: For how many seconds a quota (`write_quota`) held it back.
    waited: float = 0.0


class StoredRun(msgspec.Struct, frozen=True, gc=False, repr_omit_defaults=True):
    """A run of messages stored side by side, or of duplicates that were not."""

    partition: int
    first: int
    count: int
    duplicate: bool = False
    #: Which messages of the call they are; None: all of it, or that is not kept.
    places: Sequence[int] | None = None
    #: How many bytes they take in the log.
    size: int = 0
    #: What a sync waits for: everything up to this offset, unless there was one more cut; 0 for nothing.
    stop: int = 0
    cuts: int = 0
    #: For how many seconds a quota held them back.
    waited: float = 0.0

    def receipt(self, place: int, sync: Sync) -> Receipt:
        """Return the receipt of the message at `place` in the run."""
        if self.duplicate:
            return Receipt(self.partition, -1, sync, duplicate=True)
        if self.waited:
            return Receipt(self.partition, self.first + place, sync, waited=self.waited)
        return Receipt(self.partition, self.first + place, sync)


class Receipts(Sequence[Receipt]):
    """Where many messages were stored: a receipt each, in the order they were given."""

    def __init__(self, runs: Sequence[StoredRun], *, sync: Sync) -> None:
        self.runs = runs
        self.sync = sync
        #: Which run each message is in, and its place there; made when first asked for.
        self._order: list[tuple[int, int]] | None = None

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
        places = ", ".join(
            f"{r.count} duplicates" if r.duplicate else f"{r.partition}:{r.first}..{r.first + r.count - 1}"
            for r in self.runs[:4]
        )
        return f"<Receipts: {len(self)} messages at {places}{', …' if len(self.runs) > 4 else ''}>"

    def _receipt(self, at: int) -> Receipt:
        if any(run.places is not None for run in self.runs):
            if self._order is None:
                self._order = self._ordered()
            number, place = self._order[at]
            return self.runs[number].receipt(place, self.sync)
        for run in self.runs:
            if at < run.count:
                return run.receipt(at, self.sync)
            at -= run.count
        raise IndexError("no such receipt")

    def _ordered(self) -> list[tuple[int, int]]:
        order = [(0, 0)] * len(self)
        for number, run in enumerate(self.runs):
            for place, index in enumerate(range(run.count) if run.places is None else run.places):
                order[index] = (number, place)
        return order
