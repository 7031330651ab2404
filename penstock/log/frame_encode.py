"""Making frames: a batch of messages becomes bytes, but for what the append lock gives it.

`base offset`, `written_at`, `synced`, the salt and the header's checksum are filled in under the lock;
everything that takes time, the body's checksum above all, is done before.
"""

from __future__ import annotations

import io
import threading
from array import array
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import chain, pairwise
from struct import Struct
from typing import Any, NamedTuple, cast

from penstock.checksum import crc32
from penstock.errors import MessageTooLarge
from penstock.headers import Headers
from penstock.log import single_frame
from penstock.log.frame import DICTIONARY_HEAD, PRODUCER_HEAD, RAW, ProducerStamp, compress_body
from penstock.log.frame_columns import (
    ArrowColumn,
    Buffer,
    Lengths,
    measure,
    pack_numbers,
    pack_strings,
    padded,
    total_of,
)
from penstock.log.frame_header import (
    CODECS,
    COMPRESSED,
    HEADER_BYTES,
    HEADERS,
    KEY_NULLS,
    KEYS,
    MAGIC_BYTES,
    PRODUCER,
    PRODUCERS,
    SEQNOS,
    TIMES,
    VALUE_NULLS,
    WRITTEN,
)
from penstock.log.header_column import pack_headers
from penstock.parse import FRAME_BYTES_MAX, KIB, MIB

#: A writer's frames: large enough to be worth a checksum, small enough to be read alone.
FRAME_BYTES = MIB
FRAME_MESSAGES = 10_000
#: What is left of it for keys, values and headers.
BODY_BYTES = FRAME_BYTES - 64 * KIB

_CRC = Struct("<I")
_ZEROS = bytes(8)
_AFTER_CRCS = Struct("<IIHHHHIIQqqQ")


class EncodedFrame:
    """A frame that is ready but for what the append lock gives it."""

    __slots__ = ("_extension", "_fields", "body", "body_crc", "count", "size", "weight")

    def __init__(
        self, parts: Iterable[Buffer], *, count: int, flags: int, created: int, codec: int = RAW,
        extension: bytes = b"", compress: bool = False,
    ) -> None:  # fmt: skip
        whole: Buffer
        if count == 1:  # a buffer that is kept would cost more than it saves
            whole = b"".join(parts)
            length = len(whole)
            body: Buffer = whole + _ZEROS[: -length % 8]
        else:
            body, length = _joined(parts)
            whole = body[:length]
        self.body = body
        header_length = HEADER_BYTES + len(extension)
        self.size = self.weight = header_length + len(body)
        if self.size > FRAME_BYTES_MAX:
            raise MessageTooLarge(f"a frame of {self.size} bytes is over {FRAME_BYTES_MAX}")
        if compress and (packed := compress_body(memoryview(whole))) is not None:
            flags |= COMPRESSED
            whole, more = packed
            extension += more
            header_length += len(more)
            self.body, length = padded(whole), len(whole)
            self.size = header_length + len(self.body)
        self.count = count
        self.body_crc = crc32(whole)
        self._extension = extension
        self._fields = (length, header_length, flags, 0, codec, count, created)

    @property
    def created(self) -> int:
        """The time of all messages that have none of their own."""
        return self._fields[-1]

    def header(self, *, base: int, written_at: int, synced: int, salt: int) -> bytes:
        """The finished header, to be written in front of `body`."""
        body_length, header_length, flags, may_ignore, codec, count, created = self._fields
        rest = _AFTER_CRCS.pack(
            self.body_crc, body_length, header_length, flags, may_ignore, codec,
            count, salt, base, written_at, created, synced,
        )  # fmt: skip
        if self._extension:
            rest += self._extension
        return MAGIC_BYTES + _CRC.pack(crc32(rest)) + rest


def placed(header: bytes, *, base: int, written_at: int, synced: int, salt: int) -> bytes:
    """The header of a frame that was finished before, set right for another place."""
    crc, length, header_length, flags, may_ignore, codec, count, _, _, _, created, _ = (
        _AFTER_CRCS.unpack_from(header, 8)
    )
    rest = _AFTER_CRCS.pack(
        crc, length, header_length, flags, may_ignore, codec, count, salt, base, written_at, created, synced
    )
    rest += header[HEADER_BYTES:header_length]
    return MAGIC_BYTES + _CRC.pack(crc32(rest)) + rest


class _Scratch(threading.local):
    """A thread's buffer for making bodies. Fresh memory for each would cost more than filling it."""

    def __init__(self) -> None:
        self.file = io.BytesIO()


_scratch = _Scratch()
_SCRATCH_BYTES_MOST = 4 * MIB


def _joined(parts: Iterable[Buffer]) -> tuple[memoryview, int]:
    """The parts back to back, filled with zeros to a multiple of 8, and their length without these.

    The memory is used again once nobody holds the view.
    """
    file = _scratch.file
    try:
        file.seek(0)
        file.write(b"")  # asks before anything is taken from `parts`, which may be an iterator
    except BufferError:  # an earlier draft is still in use
        file = _scratch.file = io.BytesIO()
    file.writelines(parts)
    length = file.tell()
    file.write(_ZEROS[: -length % 8])
    whole = file.getbuffer()[: file.tell()]
    if length > _SCRATCH_BYTES_MOST:
        _scratch.file = io.BytesIO()
    return whole, length


class MessageColumns(NamedTuple):
    """Messages as columns, checked and packed: what a frame is made of. What nobody has is None."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None = None
    headers: Sequence[Headers | None] | None = None
    timestamps: Sequence[int] | None = None
    #: When each was written, where that is known already (repacking).
    written: Sequence[int] | None = None
    #: The numbers that `stamp` gave them, ascending; with `stamps`, those that each one gave its own.
    seqnos: Sequence[int | None] | None = None
    #: How values are encoded: all alike, or each in its own way. A reference is one that says where it lies.
    codecs: int | Sequence[int] = RAW
    #: Who wrote them all, or who wrote each.
    stamp: ProducerStamp | None = None
    stamps: Sequence[ProducerStamp | None] | None = None
    #: Lengths of values and of keys, where checking has found them and none is None.
    lengths: tuple[Lengths | None, Lengths | None] = (None, None)

    def take(self, places: Sequence[int]) -> MessageColumns:
        """Those at `places`, in that order."""
        return MessageColumns(
            taken(self.values, places), taken(self.keys, places), taken(self.headers, places),
            taken(self.timestamps, places), taken(self.written, places), taken(self.seqnos, places),
            self.codecs if isinstance(self.codecs, int) else taken(self.codecs, places),
            self.stamp, taken(self.stamps, places),
        )  # fmt: skip

    def part(self, first: int, stop: int) -> MessageColumns:
        """Those from `first` up to `stop`."""
        return MessageColumns(
            _cut(self.values, first, stop), _cut(self.keys, first, stop), _cut(self.headers, first, stop),
            _cut(self.timestamps, first, stop), _cut(self.written, first, stop),
            _cut(self.seqnos, first, stop), _cut(self.codecs, first, stop),
            self.stamp, _cut(self.stamps, first, stop),
            (_cut(self.lengths[0], first, stop), _cut(self.lengths[1], first, stop)),
        )  # fmt: skip


def taken(column: Any, places: Sequence[int]) -> Any:
    """What a column holds at `places`; None for a column that is not there."""
    if column is None:
        return None
    if isinstance(column, (list, tuple, range, array)):
        return [column[place] for place in places]
    return column.take(places)


def _cut(column: Any, first: int, stop: int) -> Any:
    return column if column is None or isinstance(column, int) else column[first:stop]


def encode(columns: MessageColumns, *, created: int, compress: bool = False) -> EncodedFrame:
    """Messages as one frame. Columns that say the same of every message are not stored.

    `created` is the timestamp of messages that have none of their own.
    """
    values, keys, headers, timestamps, written, seqnos, codecs, stamp, stamps, lengths = columns
    count = len(values)
    codec = codecs if isinstance(codecs, int) else codecs[0]
    if count == 1 and written is None and seqnos is None and stamps is None:
        if timestamps is not None:
            created = timestamps[0]
        key = None if keys is None else keys[0]
        own = None if headers is None else headers[0]
        made = single_frame.encode(values[0], key, own, has_key=keys is not None)
        if made is not None:
            parts, flags = made
            return EncodedFrame(parts, count=1, flags=flags, created=created, codec=codec, compress=compress)
    flags = 0
    fixed: list[Buffer] = []
    strings: list[Iterable[Buffer]] = []
    key_nulls = b""
    if keys is not None:
        packed = pack_strings(keys, lengths[1])
        key_nulls = packed.nulls
        flags |= KEYS | KEY_NULLS if key_nulls else KEYS
        fixed.append(packed.offsets)
        strings.append(packed.parts)
    packed = pack_strings(values, lengths[0])
    fixed += (packed.offsets, key_nulls, packed.nulls)
    strings.append(packed.parts)
    if packed.nulls:
        flags |= VALUE_NULLS
    if timestamps is not None:
        first = timestamps[0]
        if first == timestamps[-1] and timestamps.count(first) == count:
            created = first
        else:
            flags |= TIMES
            fixed.append(pack_numbers("q", timestamps))
    if written is not None and len(set(written)) > 1:
        flags |= WRITTEN
        fixed.append(pack_numbers("q", written))
    written_by = _pack_producers(stamp, stamps, seqnos)
    flags |= written_by.flags
    fixed += written_by.columns
    if not isinstance(codecs, int) and len(set(codecs)) > 1:
        flags |= CODECS
        fixed.append(pack_numbers("H", codecs))
    if headers is not None:
        flags |= HEADERS
        packed_headers = pack_headers(headers)
        fixed += packed_headers.columns
        strings += (packed_headers.names, packed_headers.values)
    return EncodedFrame(
        chain(fixed, *strings, (written_by.dictionary,)),
        count=count, flags=flags, created=created, codec=codec, extension=written_by.extension,
        compress=compress,
    )  # fmt: skip


def frames(columns: MessageColumns, *, created: int, compress: bool = False) -> list[EncodedFrame]:
    """Messages as frames of at most 1 MiB (before compression) or 10,000 messages, in order.

    Into how many slices they are cut is told from the lengths of all; one that is still too large is halved.
    """
    count = len(columns.values)
    if count == 1:
        return [encode(columns, created=created, compress=compress)]
    columns, size = _weighed(columns)
    slices = max(-(-size // BODY_BYTES), -(-count // FRAME_MESSAGES))
    if slices <= 1:
        frame = None
        with suppress(MessageTooLarge):  # headers are not among what was weighed
            frame = encode(columns, created=created, compress=compress)
        if frame is not None and frame.weight <= FRAME_BYTES:
            return [frame]
        del frame
    slices = min(max(slices, 2), count)
    bounds = [count * number // slices for number in range(slices + 1)]
    return [
        frame
        for first, stop in pairwise(bounds)
        for frame in frames(columns.part(first, stop), created=created, compress=compress)
    ]


def _weighed(columns: MessageColumns) -> tuple[MessageColumns, int]:
    """The columns with the lengths of values and keys, where these can be told, and how much that is."""
    values, keys = columns.values, columns.keys
    lengths = columns.lengths
    value_lengths, value_bytes = _weights(values, lengths[0])
    key_lengths, key_bytes = (None, 0) if keys is None else _weights(keys, lengths[1])
    size = value_bytes + key_bytes + 4 * len(values) * (2 if keys is not None else 1)
    if value_lengths is not lengths[0] or key_lengths is not lengths[1]:
        columns = columns._replace(lengths=(value_lengths, key_lengths))
    return columns, size


def _weights(strings: Sequence[bytes | None], lengths: Lengths | None) -> tuple[Lengths | None, int]:
    if lengths is None and isinstance(strings, (list, tuple)):
        try:
            lengths = measure(strings)
        except TypeError:  # some are None
            return None, sum(len(string) for string in strings if string is not None)
    if lengths is None:
        return None, cast(ArrowColumn, strings).size
    return lengths, total_of(len(strings), lengths)


class _WrittenBy(NamedTuple):
    """What a frame says of its producers."""

    flags: int = 0
    extension: bytes = b""
    columns: tuple[bytes, ...] = ()
    dictionary: bytes = b""


def _pack_producers(
    stamp: ProducerStamp | None,
    stamps: Sequence[ProducerStamp | None] | None,
    seqnos: Sequence[int | None] | None,
) -> _WrittenBy:
    if stamp is not None and seqnos is not None:
        numbers = cast(Sequence[int], seqnos)
        extension = pack_producer(stamp, numbers[0])
        if numbers[-1] - numbers[0] == len(numbers) - 1:
            return _WrittenBy(PRODUCER, extension)
        return _WrittenBy(PRODUCER | SEQNOS, extension, (pack_numbers("q", numbers),))
    if stamps is not None and seqnos is not None:
        indexes, dictionary = _pack_dictionary(stamps)
        given = pack_numbers("q", (number or 0 for number in seqnos))
        return _WrittenBy(PRODUCERS | SEQNOS, b"", (given, pack_numbers("I", indexes)), dictionary)
    return _NOBODY


_NOBODY = _WrittenBy()


def control(
    kind: int, body: bytes, *, created: int, producer: ProducerStamp | None = None, seqno: int = 0
) -> EncodedFrame:
    """A frame without messages: a fence or a seal."""
    extension = pack_producer(producer, seqno) if producer else b""
    flags = PRODUCER if producer else 0
    return EncodedFrame((body,), count=0, flags=flags, created=created, codec=kind, extension=extension)


def pack_producer(producer: ProducerStamp, seqno: int) -> bytes:
    """Return a producer's entry in a frame: its name, group and epoch, and the last number."""
    name, group = producer.id.encode(), (producer.group or "").encode()
    return padded(PRODUCER_HEAD.pack(seqno, producer.epoch, len(name), len(group)) + name + group)


def _pack_dictionary(producers: Sequence[ProducerStamp | None]) -> tuple[list[int], bytes]:
    numbers: dict[ProducerStamp | None, int] = {None: 0}
    indexes = [numbers.setdefault(producer, len(numbers)) for producer in producers]
    entries = []
    for producer in numbers:
        if producer is not None:
            name, group = producer.id.encode(), (producer.group or "").encode()
            entries.append(DICTIONARY_HEAD.pack(producer.epoch, len(name), len(group)) + name + group)
    return indexes, b"".join(entries)
