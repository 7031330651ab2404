"""Repacking: a sealed segment of many small frames becomes one of few large frames.

Offsets, order, keys, values, headers, times, producers and seqnos stay as they are; only where
frames begin and end changes. The new file has the next generation number and takes the old one's
place by rename: readers that have the old one mapped go on reading it, others find the new one.
A crash leaves the old file, or the new one, and perhaps a `.tmp` that the next repack overwrites.

Control frames are copied as they are, and neighbours across one are not merged.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from penstock.log import frame
from penstock.log import frame_encode as encode
from penstock.log import single_frame as tiny
from penstock.log.folder import Folder
from penstock.log.frame import RAW, Frame, ProducerStamp
from penstock.log.frame_encode import EncodedFrame
from penstock.log.mapped_segment import MappedSealed
from penstock.log.segment import SEGMENT_HEADER_BYTES, SegmentHead, parse_head
from penstock.message import NO_HEADERS, Headers, Message
from penstock.parse import KIB

#: Segments whose frames are smaller than this on average are worth rewriting.
SMALL_FRAME_BYTES = 16 * KIB
#: How large the merged frames are.
_TARGET_BYTES = 512 * KIB
_TARGET_MESSAGES = 16_384
_RUN_MESSAGES = 1024


def is_worth_it(segment: MappedSealed) -> bool:
    """Whether the segment's frames are so small that scanning it would be slow."""
    return len(segment.index.offsets) > 1 and segment.index.average_frame_bytes() < SMALL_FRAME_BYTES


def repack(folder: Folder, segment: MappedSealed, *, compress: bool = False) -> None:
    """Rewrite the segment with large frames. Does nothing when any of it is damaged."""
    head = parse_head(segment.data)
    if head is None or segment.ends_in_damage():
        return
    new_head = head._replace(generation=head.generation + 1)
    path = folder.segment_path(head.base)
    files = folder.files
    fd = files.open(path + ".tmp", create=True)
    try:
        files.truncate(fd, 0)
        files.pwrite(fd, new_head.pack(), 0)
        stop = _write_frames(folder, fd, new_head, segment, compress)
        if stop != segment.index.stop:
            files.unlink(path + ".tmp")
            return
        files.sync(fd)
    finally:
        files.close(fd)
    files.rename(path + ".tmp", path)
    files.sync_dir(folder.path)


def _write_frames(folder: Folder, fd: int, head: SegmentHead, segment: MappedSealed, compress: bool) -> int:
    """Write the merged frames; return the offset behind the last one."""
    at, stop = SEGMENT_HEADER_BYTES, head.base
    for base, written_at, encoded in _merged(segment, compress):
        header = encoded.header(base=base, written_at=written_at, synced=at, salt=head.salt)
        folder.files.pwritev(fd, [header, encoded.body], at)
        at += encoded.size
        stop = max(stop, base + encoded.count)
    return stop


class _Columns(NamedTuple):
    """Neighbouring messages as lists, on their way into one frame."""

    base: int
    weight: int
    values: list[bytes | None]
    keys: list[bytes | None]
    headers: list[Headers]
    timestamps: list[int]
    written: list[int]
    producers: list[ProducerStamp | None]
    seqnos: list[int | None]
    codecs: list[int]

    @property
    def stop(self) -> int:
        return self.base + len(self.values)

    @classmethod
    def of_frame(cls, found: Frame) -> _Columns:
        n = found.head.count
        columns = (
            found.values(0, n), found.keys(0, n), found.headers(0, n), found.timestamps(0, n),
            found.written_times(0, n), found.producers(0, n), found.seqnos(0, n), found.codec_numbers(0, n),
        )  # fmt: skip
        return cls(found.head.base, found.weight, *map(list, columns))  # type: ignore[arg-type]

    @classmethod
    def of_messages(cls, messages: list[Message], size: int) -> _Columns:
        """Messages of plain frames: no headers, no producer, raw."""
        n = len(messages)
        return cls(
            messages[0].offset,
            size,
            values=[m.value for m in messages],
            keys=[m.key for m in messages],
            headers=[NO_HEADERS] * n,
            timestamps=[m.timestamp for m in messages],
            written=[m.written_at for m in messages],
            producers=[None] * n,
            seqnos=[None] * n,
            codecs=[RAW] * n,
        )


def _merged(segment: MappedSealed, compress: bool) -> Iterator[tuple[int, int, EncodedFrame]]:
    """(first offset, written time, frame) of what the segment's frames become."""
    waiting: list[_Columns] = []
    weight = count = 0
    for part in _parts(segment):
        if isinstance(part, Frame):
            yield from _flushed(waiting, compress)
            yield part.head.base, part.head.written_at, _copied(part)
            waiting, weight, count = [], 0, 0
            continue
        apart = waiting and part.base != waiting[-1].stop
        full = weight + part.weight > _TARGET_BYTES or count + len(part.values) > _TARGET_MESSAGES
        if apart or full:
            yield from _flushed(waiting, compress)
            waiting, weight, count = [], 0, 0
        waiting.append(part)
        weight += part.weight
        count += len(part.values)
    yield from _flushed(waiting, compress)


def _parts(segment: MappedSealed) -> Iterator[_Columns | Frame]:
    """The segment's messages in runs as they lie there; a control frame comes as itself."""
    data, at, offset = bytes(segment.data), SEGMENT_HEADER_BYTES, segment.index.base
    assert segment.salt is not None
    while True:
        messages, behind = tiny.decode_run(
            data, at, topic="", partition=0, offset=offset, salt=segment.salt, limit=_RUN_MESSAGES
        )
        if messages:
            yield _Columns.of_messages(messages, behind - at)
            at, offset = behind, messages[-1].offset + 1
            continue
        found = next(frame.walk(data, at), None)
        if found is None:
            return
        yield _Columns.of_frame(found[1]) if found[1].head.count else found[1]
        at, offset = at + found[1].head.size, found[1].head.stop


def _flushed(waiting: list[_Columns], compress: bool) -> Iterator[tuple[int, int, EncodedFrame]]:
    if not waiting:
        return
    columns = (
        list(chain.from_iterable(lists)) for lists in zip(*(part[2:] for part in waiting), strict=True)
    )
    merged = _Columns(waiting[0].base, 0, *columns)
    yield merged.base, merged.written[0], _encoded(merged, compress)


def _encoded(merged: _Columns, compress: bool) -> EncodedFrame:
    has_producers = any(producer is not None for producer in merged.producers)
    return encode.encode(
        merged.values,
        merged.keys if any(key is not None for key in merged.keys) else None,
        created=merged.timestamps[0],
        headers=merged.headers if any(merged.headers) else None,
        timestamps=merged.timestamps,
        written=merged.written,
        producers=(merged.producers, merged.seqnos) if has_producers else None,
        codec=merged.codecs[0],
        codecs=merged.codecs if len(set(merged.codecs)) > 1 else None,
        compress=compress,
    )


def _copied(found: Frame) -> EncodedFrame:
    head = found.head
    return EncodedFrame(
        (bytes(found.body),),
        count=head.count,
        flags=head.flags,
        created=head.created,
        codec=head.codec,
        extension=bytes(found.extension),
    )
