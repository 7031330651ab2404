"""A batch of messages as bytes: what lies in segments, travels, and becomes Arrow without a copy.

A frame is its header (`frame_header`), its body (`frame_columns`), then zeros up to a multiple of 8. This
module reads frames; `frame_encode` makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock import codecs
from penstock.checksum import crc32
from penstock.codecs import ZSTD, zstd
from penstock.codecs.limits import Damaged
from penstock.errors import DataError, UnknownFormat
from penstock.headers import NO_HEADERS, Headers
from penstock.log import frame_columns, single_frame
from penstock.log.frame_columns import Buffer
from penstock.log.frame_header import (
    CODECS,
    COMPRESSED,
    HEADER_BYTES,
    HEADERS,
    KEY_NULLS,
    KEYS,
    PRODUCER,
    PRODUCERS,
    SEQNOS,
    TIMES,
    VALUE_NULLS,
    WRITTEN,
    Head,
    Layout,
    read_head,
)
from penstock.log.header_column import unpack_headers
from penstock.parse import FRAME_BYTES_MAX

if TYPE_CHECKING:
    from penstock.message import LazyMessage, Message


#: The last extension of a compressed frame: length of the body before, codec, zero.
_EXTENSION = Struct("<IHH")


def compress_body(body: memoryview) -> tuple[bytes, bytes] | None:
    """Compress a body; return it with the extension that says so, or None when it does not pay."""
    stored = zstd.encode_frame(body)
    if len(stored) + _EXTENSION.size >= len(body):
        return None
    return stored, _EXTENSION.pack(len(body), ZSTD, 0)


def require_zstd() -> None:
    """Raise `MissingExtra` unless compressed frames can be read in this process."""
    zstd.library()


def unpacked_length(extensions: Buffer) -> int:
    """How long the body was before compression, as the frame's extensions say."""
    return _fields(extensions)[0]


def decompress_body(stored: Buffer, extensions: Buffer, base: int) -> bytes:
    """Decompress the body of the frame that begins with offset `base`."""
    length, codec = _fields(extensions)
    if codec != ZSTD:
        raise UnknownFormat(
            f"the frame at offset {base} is compressed with codec {codec}",
            hint="it was written by a newer Penstock: upgrade",
        )
    try:
        if length > FRAME_BYTES_MAX:
            raise Damaged(f"{length} bytes are more than a frame may have")
        body = zstd.decode(stored, length)
        if len(body) != length:
            raise Damaged(f"it has {len(body)} bytes instead of {length}")
    except (Damaged, zstd.library().ZstdError) as error:
        raise DataError(f"the frame at offset {base} cannot be unpacked: {error}") from error
    return body


def _fields(extensions: Buffer) -> tuple[int, int]:
    if len(extensions) < _EXTENSION.size:
        raise DataError("a compressed frame does not say how")
    length, codec, _ = _EXTENSION.unpack(extensions[-_EXTENSION.size :])
    return length, codec


_PAIR = Struct("<II")
RAW = codecs.RAW

#: What mostly stands behind the columns that all have: headers, producer, group, seqno, codec, attempt.
_USUALLY = (NO_HEADERS, None, None, None, codecs.name_of(RAW), 1)

PRODUCER_HEAD = Struct("<qIHH")
DICTIONARY_HEAD = Struct("<IHH")


class ProducerStamp(NamedTuple):
    """Who wrote: the id, the group the messages belong to, and which taking-over of the id it was.

    An empty id: nobody in particular, the messages have a group only.
    """

    id: str
    group: str | None = None
    epoch: int = 0


#: Bound when the first message is made: Spark's executors read frames, make none, and lack what it needs.
_message: type[Message] | None = None


def _message_class() -> type[Message]:
    global _message
    from penstock.message import Message

    _message = Message
    return Message


class Frame:
    """A stored frame: its header, and its messages decoded when asked for."""

    __slots__ = ("_at", "body", "extension", "head")

    def __init__(self, head: Head, extension: Buffer, body: Buffer) -> None:
        self.head = head
        self.extension = extension
        self.body = body
        self._at: Layout | None = None

    @property
    def weight(self) -> int:
        """Bytes that its messages take in memory, about."""
        return self.head.size

    @property
    def layout(self) -> Layout:
        """Where each column begins in the body."""
        if self._at is None:
            self._at = Layout.of(self.head, self.body)
        return self._at

    def producer(self) -> tuple[ProducerStamp, int] | None:
        """The one producer of all messages and the first seqno, if the frame names one."""
        if not self.head.flags & PRODUCER:
            return None
        seqno, epoch, id_length, group_length = PRODUCER_HEAD.unpack_from(self.extension)
        at = PRODUCER_HEAD.size
        name = bytes(self.extension[at : at + id_length]).decode()
        group = bytes(self.extension[at + id_length : at + id_length + group_length]).decode()
        return ProducerStamp(name, group or None, epoch), seqno

    def keys(self, first: int, stop: int) -> Sequence[bytes | None]:
        """Return the keys of messages `first` to `stop`, counted from the frame's first."""
        head, at = self.head, self.layout
        if not head.flags & KEYS:
            return [None] * (stop - first)
        keys = frame_columns.unpack_strings(self.body, at.key_offsets, at.keys, first, stop)
        return self._with_nulls(keys, KEY_NULLS, at.key_nulls, first, stop)

    def values(self, first: int, stop: int) -> Sequence[bytes | None]:
        """Return the values of messages `first` to `stop`, as they are packed; None where deleted."""
        at = self.layout
        values = frame_columns.unpack_strings(self.body, at.value_offsets, at.values, first, stop)
        return self._with_nulls(values, VALUE_NULLS, at.value_nulls, first, stop)

    def timestamps(self, first: int, stop: int) -> Sequence[int]:
        """Return the timestamps of messages `first` to `stop`, in nanoseconds."""
        if self.head.flags & TIMES:
            return frame_columns.unpack_numbers(self.body, "q", self.layout.times, first, stop)
        return [self.head.created] * (stop - first)

    def written_times(self, first: int, stop: int) -> Sequence[int]:
        """Return when messages `first` to `stop` were written, in nanoseconds."""
        if self.head.flags & WRITTEN:
            return frame_columns.unpack_numbers(self.body, "q", self.layout.written, first, stop)
        return [self.head.written_at] * (stop - first)

    @property
    def last_written_at(self) -> int:
        """When the last message was written; frames of a segment never go back in this."""
        count = self.head.count
        return self.written_times(count - 1, count)[0] if self.head.flags & WRITTEN else self.head.written_at

    def headers(self, first: int, stop: int) -> Sequence[Headers]:
        """Return the headers of messages `first` to `stop`."""
        if not self.head.flags & HEADERS:
            return [NO_HEADERS] * (stop - first)
        return unpack_headers(self.body, self.layout, first, stop)

    def producers(self, first: int, stop: int) -> Sequence[ProducerStamp | None]:
        """Who wrote each message."""
        if self.head.flags & PRODUCERS:
            dictionary = self._dictionary()
            indexes = frame_columns.unpack_numbers(self.body, "I", self.layout.producers, first, stop)
            return [dictionary[index] for index in indexes]
        named = self.producer()
        return [named[0] if named else None] * (stop - first)

    def seqnos(self, first: int, stop: int) -> Sequence[int | None]:
        """Return the producers' numbers of messages `first` to `stop`; None where there is none."""
        if self.head.flags & SEQNOS:
            numbers = frame_columns.unpack_numbers(self.body, "q", self.layout.seqnos, first, stop)
            if not self.head.flags & PRODUCERS:
                return numbers
            producers = self.producers(first, stop)
            return [n if p is not None and p.id else None for n, p in zip(numbers, producers, strict=True)]
        named = self.producer()
        return (
            [None] * (stop - first)
            if named is None or not named[0].id
            else range(named[1] + first, named[1] + stop)
        )

    def codecs(self, first: int, stop: int) -> Sequence[str]:
        """Return the names of the codecs that pack the values of messages `first` to `stop`."""
        if self.head.flags & CODECS:
            return [codecs.name_of(number) for number in self.codec_numbers(first, stop)]
        return [codecs.name_of(self.head.codec)] * (stop - first)

    def codec_numbers(self, first: int, stop: int) -> Sequence[int]:
        """Return the numbers of the codecs that pack the values of messages `first` to `stop`."""
        if self.head.flags & CODECS:
            return frame_columns.unpack_numbers(self.body, "H", self.layout.codecs, first, stop)
        return [self.head.codec] * (stop - first)

    def message(self, topic: str, partition: int, place: int) -> Message:
        """The one message at `place`."""
        head = self.head
        if head.flags & ~KEYS or head.codec != RAW:
            is_lone = head.flags == KEYS | HEADERS and head.count == 1 and head.codec == RAW
            found = single_frame.fields(self.body) if is_lone else None
            if found is None:
                return self.messages(topic, partition, place, place + 1)[0]
            message = _message or _message_class()
            return message(topic, partition, head.base, *found[:2], head.created, head.written_at, found[2])
        at, body = self.layout, self.body
        first, stop = _PAIR.unpack_from(body, at.value_offsets + 4 * place)
        value = bytes(body[at.values + first : at.values + stop])
        key = None
        if head.flags:
            first, stop = _PAIR.unpack_from(body, 4 * place)
            key = bytes(body[at.keys + first : at.keys + stop])
        message = _message or _message_class()
        return message(topic, partition, head.base + place, key, value, head.created, head.written_at)

    def messages(
        self, topic: str, partition: int, first: int, stop: int, decode: Callable[[bytes], Any] | None = None
    ) -> list[Message]:
        """Messages `first` to `stop` of this frame; `decode`, if given, makes their values when looked at."""
        head = self.head
        flags = head.flags
        always = (
            repeat(topic),
            repeat(partition),
            range(head.base + first, head.base + stop),
            self.keys(first, stop) if flags & KEYS else repeat(None),
            self.values(first, stop),
            self.timestamps(first, stop) if flags & TIMES else repeat(head.created),
            self.written_times(first, stop) if flags & WRITTEN else repeat(head.written_at),
        )
        seldom = self._seldom(first, stop)
        if decode is None and head.codec == RAW and not flags & CODECS:
            return list(map(_message or _message_class(), *always, *seldom))
        behind = map(repeat, (*_USUALLY[len(seldom) :], decode))
        return list(map(_lazy_message_class(), *always, *seldom, *behind))

    def _seldom(self, first: int, stop: int) -> tuple[Iterable[Any], ...]:
        """Columns of messages behind those that all have, up to the last that says something."""
        flags = self.head.flags
        found: tuple[Iterable[Any], ...] = ()
        if flags & (HEADERS | PRODUCER | PRODUCERS | CODECS) or self.head.codec != RAW:
            found = (self.headers(first, stop) if flags & HEADERS else repeat(NO_HEADERS),)
        if flags & (PRODUCER | PRODUCERS):
            producers = self.producers(first, stop)
            ids = [(p.id or None) if p else None for p in producers]
            groups = [p.group if p else None for p in producers]
            found = (*found, ids, groups, self.seqnos(first, stop))
        if flags & CODECS or self.head.codec != RAW:
            names = self.codecs(first, stop)
            found = (*found, *map(repeat, _USUALLY[len(found) : 4]), names)
        return found

    def check_body(self) -> bool:
        """Whether the body has the checksum that the header states."""
        return crc32(self.body) == self.head.body_crc

    def _with_nulls(
        self, strings: Sequence[bytes], flag: int, at: int, first: int, stop: int
    ) -> Sequence[bytes | None]:
        if not self.head.flags & flag:
            return strings
        present = frame_columns.unpack_bits(self.body, at, first, stop)
        return [string if there else None for string, there in zip(strings, present, strict=True)]

    def _dictionary(self) -> list[ProducerStamp | None]:
        """The producers of a repacked frame; entry 0 is "none"."""
        entries: list[ProducerStamp | None] = [None]
        at = self.layout.dictionary
        while at + DICTIONARY_HEAD.size <= len(self.body):
            epoch, id_length, group_length = DICTIONARY_HEAD.unpack_from(self.body, at)
            at += DICTIONARY_HEAD.size
            name = bytes(self.body[at : at + id_length]).decode()
            group = bytes(self.body[at + id_length : at + id_length + group_length]).decode()
            entries.append(ProducerStamp(name, group or None, epoch))
            at += id_length + group_length
        return entries


def _lazy_message_class() -> type[LazyMessage]:
    """The class of messages whose values are packed, typed, or both."""
    from penstock.message import LazyMessage

    return LazyMessage


class CompressedFrame(Frame):
    """A frame whose body lies compressed; it is unpacked when something of it is asked for."""

    __slots__ = ("_unpacked", "stored")

    def __init__(self, head: Head, extension: Buffer, stored: Buffer) -> None:
        self.head = head
        self.extension = extension
        self.stored = stored
        self._at = None
        self._unpacked: bytes | None = None

    @property
    def body(self) -> bytes:  # type: ignore[override]
        if self._unpacked is None:
            self._unpacked = decompress_body(self.stored, self.extension, self.head.base)
        return self._unpacked

    @property
    def weight(self) -> int:
        return self.head.header_length + unpacked_length(self.extension)

    def check_body(self) -> bool:
        return crc32(self.stored) == self.head.body_crc


def read_frame(data: Buffer, at: int, head: Head) -> Frame:
    """The frame whose header was read at `at`; its body is not checked here."""
    begin = at + head.header_length
    kind = CompressedFrame if head.flags & COMPRESSED else Frame
    return kind(head, data[at + HEADER_BYTES : begin], data[begin : begin + head.body_length])


def walk(data: Buffer, at: int = 0) -> Iterator[tuple[int, Frame]]:
    """Every whole, sound frame from `at` on, up to the first that is not."""
    while (head := read_head(data, at)) is not None and at + head.size <= len(data):
        frame = read_frame(data, at, head)
        if not frame.check_body():
            return
        yield at, frame
        at += head.size
