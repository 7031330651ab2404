"""Messages of one partition made ready for another: the same frames, at new offsets.

What is the messages' own stays to the byte: keys, values as they are packed, headers, the producers' times.
What belongs to the place they had goes: written times, and who wrote them under which seqno, which is for
the source's own duplicates. Where a frame says nothing of these, its body and checksum are taken as they
are; else the columns are cut out of the body. Messages are looked at one by one only where some of a frame
are wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Protocol

from penstock.log.frame import PRODUCER_HEAD, RAW, CompressedFrame, Frame
from penstock.log.frame_columns import padded, round_up, unpack_bits, unpack_offsets
from penstock.log.frame_encode import EncodedFrame, MessageColumns, encode
from penstock.log.frame_header import (
    CODECS,
    COMPRESSED,
    HEADER_BYTES,
    HEADERS,
    KEYS,
    PRODUCER,
    PRODUCERS,
    SEQNOS,
    TIMES,
    TRANSACTION,
    VALUE_NULLS,
    WRITTEN,
)

#: Columns of the body that stay behind; they lie side by side in it.
_LEFT_BEHIND = WRITTEN | SEQNOS | PRODUCERS


class MessageRun(Protocol):
    """Neighbouring messages of one partition."""

    def __len__(self) -> int: ...

    def keys(self) -> Sequence[bytes | None]:
        """Return the keys of the messages."""

    def tombstones(self) -> Sequence[int]:
        """Places of messages without a value."""

    def written_times(self) -> Sequence[int]:
        """Return when each message was written, in nanoseconds."""

    def codecs(self) -> set[int]:
        """Numbers of the codecs of its values."""

    def longest(self, limit: int) -> int:
        """Bytes of its longest value; if that is not over `limit`, any number up to it."""

    def drafts(self) -> list[EncodedFrame]:
        """All of it as frames."""

    def some(self, places: Sequence[int]) -> list[EncodedFrame]:
        """Messages at these places of the run, ascending, as frames."""


class FrameRun:
    """Messages `first` to `stop` of a frame."""

    def __init__(self, frame: Frame, first: int, stop: int) -> None:
        self._frame = frame
        self._first = first
        self._stop = stop

    def __len__(self) -> int:
        return self._stop - self._first

    def keys(self) -> Sequence[bytes | None]:
        """Return the keys of the messages."""
        return self._frame.keys(self._first, self._stop)

    def tombstones(self) -> Sequence[int]:
        """Return the places of messages without a value."""
        found = self._frame
        if not found.head.flags & VALUE_NULLS:
            return ()
        there = unpack_bits(found.body, found.layout.value_nulls, self._first, self._stop)
        return [place for place, is_there in enumerate(there) if not is_there]

    def written_times(self) -> Sequence[int]:
        """Return when each message was written, in nanoseconds."""
        return self._frame.written_times(self._first, self._stop)

    def codecs(self) -> set[int]:
        """Return the numbers of the codecs that pack the values."""
        return set(self._frame.codec_numbers(self._first, self._stop))

    def longest(self, limit: int) -> int:
        """Return the size of the longest value, or a bound for it that is within `limit`."""
        found = self._frame
        if found.weight <= limit:
            return found.weight
        offsets = unpack_offsets(found.body, found.layout.value_offsets, found.head.count)
        return max(b - a for a, b in pairwise(offsets[self._first : self._stop + 1]))

    def drafts(self) -> list[EncodedFrame]:
        """Return all messages as frames to append; the stored frame as it is, where possible."""
        found = self._frame
        flags = found.head.flags
        if len(self) < found.head.count or flags & (CODECS | TRANSACTION):
            return self.some(range(len(self)))
        return [_cut_out(found) if flags & _LEFT_BEHIND else _Kept(found)]

    @property
    def created(self) -> int:
        """The timestamp of messages that have none of their own."""
        return self._frame.head.created

    def columns(self, places: Sequence[int]) -> MessageColumns:
        """Messages at these places of the run, ascending, as far as they are the messages' own."""
        found, head = self._frame, self._frame.head
        first, stop = self._first + places[0], self._first + places[-1] + 1
        whole = MessageColumns(
            found.values(first, stop),
            found.keys(first, stop) if head.flags & KEYS else None,
            found.headers(first, stop) if head.flags & HEADERS else None,
            found.timestamps(first, stop) if head.flags & TIMES else None,
            codecs=found.codec_numbers(first, stop),
        )
        if len(places) == stop - first:
            return whole
        return whole.take([self._first + place - first for place in places])

    def some(self, places: Sequence[int]) -> list[EncodedFrame]:
        """Return the messages at these places as frames to append, one frame a codec."""
        wanted, head = self.columns(places), self._frame.head
        compress = bool(head.flags & COMPRESSED)
        assert not isinstance(wanted.codecs, int)
        # A frame of one codec each: that is all that writers, and transactions, know.
        at, made = 0, []
        for _, alike in groupby(wanted.codecs):
            behind = at + sum(1 for _ in alike)
            made.append(encode(wanted.part(at, behind), created=head.created, compress=compress))
            at = behind
        return made


class SingleRun:
    """Plain messages that lay in frames of their own: no headers, raw."""

    def __init__(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], timestamps: Sequence[int],
        written: Sequence[int],
    ) -> None:  # fmt: skip
        self._keys, self._values, self._timestamps, self._written = keys, values, timestamps, written

    def __len__(self) -> int:
        return len(self._values)

    def keys(self) -> Sequence[bytes | None]:
        """Return the keys of the messages."""
        return self._keys

    def tombstones(self) -> Sequence[int]:
        """Return the places of messages without a value."""
        return [place for place, value in enumerate(self._values) if value is None]

    def written_times(self) -> Sequence[int]:
        """Return when each message was written, in nanoseconds."""
        return self._written

    def codecs(self) -> set[int]:
        """Return the numbers of the codecs that pack the values: only the raw one."""
        return {RAW}

    def longest(self, limit: int) -> int:
        """Return the size of the longest value."""
        return max(len(value or b"") for value in self._values)

    def drafts(self) -> list[EncodedFrame]:
        """Return all messages as frames to append."""
        return self.some(range(len(self)))

    def some(self, places: Sequence[int]) -> list[EncodedFrame]:
        """Return the messages at these places as frames to append."""
        has_keys = any(self._keys[place] is not None for place in places)
        whole = MessageColumns(
            self._values, self._keys if has_keys else None, timestamps=self._timestamps, codecs=RAW
        )
        chosen = whole if len(places) == len(self) else whole.take(places)
        return [encode(chosen, created=self._timestamps[places[0]])]


class _Kept(EncodedFrame):
    """A stored frame, less its producer: body and checksum are those of the source, not made anew."""

    __slots__ = ()

    def __init__(self, found: Frame) -> None:
        head, extension = found.head, bytes(found.extension)
        if head.flags & PRODUCER:
            extension = extension[_producer_bytes(extension) :]
        stored = found.stored if isinstance(found, CompressedFrame) else found.body
        header_length = HEADER_BYTES + len(extension)
        self.body = padded(bytes(stored))
        self.body_crc = head.body_crc
        self.count = head.count
        self.size = self.weight = header_length + len(self.body)
        self._extension = extension
        self._fields = (
            head.body_length, header_length, head.flags & ~PRODUCER, head.may_ignore, head.codec, head.count,
            head.created,
        )  # fmt: skip


def _cut_out(found: Frame) -> EncodedFrame:
    """A stored frame without the columns that stay behind."""
    head, at, body = found.head, found.layout, memoryview(found.body)
    return EncodedFrame(
        (body[: at.written], body[at.codecs : at.dictionary]),
        count=head.count, flags=head.flags & ~(_LEFT_BEHIND | PRODUCER | COMPRESSED), created=head.created,
        codec=head.codec, compress=bool(head.flags & COMPRESSED),
    )  # fmt: skip


def _producer_bytes(extension: bytes) -> int:
    """How long the producer's part of a header's extensions is."""
    _, _, id_length, group_length = PRODUCER_HEAD.unpack_from(extension)
    return round_up(PRODUCER_HEAD.size + id_length + group_length)
