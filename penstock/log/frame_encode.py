"""Making frames: a batch of messages becomes bytes, but for what the append lock gives it.

`base offset`, `written_at`, `synced`, the salt and the header's checksum are filled in under the lock;
everything that takes time, the body's checksum above all, is done before.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterable, Sequence
from itertools import chain
from struct import Struct
from typing import NamedTuple

from penstock.checksum import crc32
from penstock.errors import MessageTooLarge
from penstock.headers import Headers
from penstock.log import frame as compression
from penstock.log import frame_columns as columns
from penstock.log import single_frame as lone
from penstock.log.frame import DICTIONARY_HEAD, PRODUCER_HEAD, RAW, ProducerStamp
from penstock.log.frame_columns import Buffer, Lengths, padded
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
from penstock.parse import FRAME_BYTES_MAX, MIB

_CRC = Struct("<I")
_ZEROS = bytes(8)
_AFTER_CRCS = Struct("<IIHHHHIIQqqQ")


class EncodedFrame:
    """A frame that is ready but for what the append lock gives it."""

    __slots__ = ("_extension", "_fields", "body", "body_crc", "count", "size", "weight")

    def __init__(
        self, parts: Iterable[bytes], *, count: int, flags: int, created: int, codec: int = RAW,
        extension: bytes = b"", compress: bool = False,
    ) -> None:  # fmt: skip
        body, length = _joined(parts)
        self.body: Buffer = body
        header_length = HEADER_BYTES + len(extension)
        self.size = self.weight = header_length + len(body)
        if self.size > FRAME_BYTES_MAX:
            raise MessageTooLarge(f"a frame of {self.size} bytes is over {FRAME_BYTES_MAX}")
        if compress and (packed := compression.pack(body[:length])) is not None:
            flags |= COMPRESSED
            extension += packed[1]
            header_length += len(packed[1])
            self.body, length = padded(packed[0]), len(packed[0])
            self.size = header_length + len(self.body)
        self.count = count
        self.body_crc = crc32(self.body[:length])
        self._extension = extension
        self._fields = (length, header_length, flags, 0, codec, count, created)

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


def _joined(parts: Iterable[bytes]) -> tuple[memoryview, int]:
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


def encode(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    *,
    created: int,
    lengths: tuple[Lengths | None, Lengths | None] = (None, None),
    headers: Sequence[Headers | None] | None = None,
    timestamps: Sequence[int] | None = None,
    written: Sequence[int] | None = None,
    producer: tuple[ProducerStamp, Sequence[int]] | None = None,
    producers: tuple[Sequence[ProducerStamp | None], Sequence[int | None]] | None = None,
    codec: int = RAW,
    codecs: Sequence[int] | None = None,
    compress: bool = False,
) -> EncodedFrame:
    """A batch as a frame. Columns that say the same of every message are not stored.

    `producer` is one for all, with a seqno each; `producers` (of a repacked frame) differ. `lengths` are
    those of values and keys, where the caller has them and none is None.
    """
    besides = (timestamps, written, producer, producers, codecs)
    if len(values) == 1 and headers is not None and besides.count(None) == len(besides):
        parts = lone.parts(values[0], None if keys is None else keys[0], headers[0])
        if parts is not None:
            flags = KEYS | HEADERS
            return EncodedFrame(parts, count=1, flags=flags, created=created, codec=codec, compress=compress)
    flags = 0
    fixed: list[bytes] = []
    strings: list[Sequence[bytes]] = []
    key_nulls = b""
    if keys is not None:
        flags |= KEYS
        key_offsets, stored, key_nulls = _pack_strings(keys, lengths[1])
        fixed.append(key_offsets)
        strings.append(stored)
        if key_nulls:
            flags |= KEY_NULLS
    value_offsets, stored, value_nulls = _pack_strings(values, lengths[0])
    fixed += (value_offsets, key_nulls, value_nulls)
    strings.append(stored)
    if value_nulls:
        flags |= VALUE_NULLS
    if timestamps is not None:
        if len(set(timestamps)) == 1:
            created = timestamps[0]
        else:
            flags |= TIMES
            fixed.append(columns.pack_numbers("q", timestamps))
    if written is not None and len(set(written)) > 1:
        flags |= WRITTEN
        fixed.append(columns.pack_numbers("q", written))
    written_by = _pack_producers(producer, producers)
    flags |= written_by.flags
    fixed += written_by.columns
    if codecs is not None:
        flags |= CODECS
        fixed.append(columns.pack_numbers("H", codecs))
    if headers is not None:
        flags |= HEADERS
        header_columns, header_strings = _pack_headers(headers)
        fixed += header_columns
        strings += header_strings
    return EncodedFrame(
        chain(fixed, *strings, (written_by.dictionary,)),
        count=len(values), flags=flags, created=created, codec=codec, extension=written_by.extension,
        compress=compress,
    )  # fmt: skip


class _WrittenBy(NamedTuple):
    """What a frame says of its producers."""

    flags: int = 0
    extension: bytes = b""
    columns: tuple[bytes, ...] = ()
    dictionary: bytes = b""


def _pack_producers(
    producer: tuple[ProducerStamp, Sequence[int]] | None,
    producers: tuple[Sequence[ProducerStamp | None], Sequence[int | None]] | None,
) -> _WrittenBy:
    if producer is not None:
        who, seqnos = producer
        extension = pack_producer(who, seqnos[0])
        if seqnos[-1] - seqnos[0] == len(seqnos) - 1:
            return _WrittenBy(PRODUCER, extension)
        return _WrittenBy(PRODUCER | SEQNOS, extension, (columns.pack_numbers("q", seqnos),))
    if producers is not None:
        indexes, dictionary = _pack_dictionary(producers[0])
        numbers = columns.pack_numbers("q", (n or 0 for n in producers[1]))
        return _WrittenBy(PRODUCERS | SEQNOS, b"", (numbers, columns.pack_numbers("I", indexes)), dictionary)
    return _WrittenBy()


def control(
    kind: int, body: bytes, *, created: int, producer: ProducerStamp | None = None, seqno: int = 0
) -> EncodedFrame:
    """A frame without messages: a fence or a seal."""
    extension = pack_producer(producer, seqno) if producer else b""
    flags = PRODUCER if producer else 0
    return EncodedFrame((body,), count=0, flags=flags, created=created, codec=kind, extension=extension)


def pack_producer(producer: ProducerStamp, seqno: int) -> bytes:
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


def _pack_strings(
    strings: Sequence[bytes | None], lengths: Lengths | None
) -> tuple[bytes, Sequence[bytes], bytes]:
    """Offsets, the strings with b"" for None, and the bitmap of those that are there ("" when all are)."""
    try:
        if lengths is None:
            lengths = columns.measure(strings)  # type: ignore[arg-type]
        return columns.pack_offsets(len(strings), lengths), strings, b""  # type: ignore[return-value]
    except TypeError:  # None has no length: asking first would cost more than the whole packing
        stored = [string or b"" for string in strings]
        offsets = columns.pack_offsets(len(stored), columns.measure(stored))
        return offsets, stored, columns.pack_bits(s is not None for s in strings)


def _pack_headers(headers: Sequence[Headers | None]) -> tuple[list[bytes], list[list[bytes]]]:
    counts = [0]
    names: list[bytes] = []
    stored: list[bytes] = []
    is_text: list[bool] = []
    for each in headers:
        if each:
            for name, value in each.items():
                text = isinstance(value, str)
                names.append(name.encode())
                stored.append(value.encode() if isinstance(value, str) else value)
                is_text.append(text)
        counts.append(len(names))
    packed = [
        columns.pack_numbers("I", counts),
        columns.pack_offsets(len(names), columns.measure(names)) if names else bytes(8),
        columns.pack_offsets(len(stored), columns.measure(stored)) if stored else bytes(8),
        columns.pack_bits(is_text),
    ]
    return packed, [names, stored]
