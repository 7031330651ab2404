"""Repacking: a sealed segment of many small frames becomes one of few large frames.

Offsets, order, keys, values, headers, times, producers and seqnos stay as they are; only where
frames begin and end changes. The new file has the next generation number and takes the old one's
place by rename: readers that have the old one mapped go on reading it, others find the new one.
A crash leaves the old file, or the new one, and perhaps a `.tmp` that the next repack overwrites.

Control frames are copied as they are, and neighbours across one are not merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from penstock.log import frame
from penstock.log.folder import Folder
from penstock.log.frame import RAW, Frame
from penstock.log.frame_encode import EncodedFrame, MessageColumns, encode
from penstock.log.mapped_segment import MappedSealed
from penstock.log.segment import SEGMENT_HEADER_BYTES, SegmentHead, parse_head
from penstock.log.single_frame import Singles, take_singles
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


class _Run(NamedTuple):
    """Neighbouring messages on their way into one frame."""

    base: int
    weight: int
    columns: MessageColumns

    @property
    def count(self) -> int:  # type: ignore[override]  # hides tuple.count, which nobody needs here
        return len(self.columns.values)

    @classmethod
    def of_frame(cls, found: Frame) -> _Run:
        n = found.head.count
        columns = MessageColumns(
            found.values(0, n), found.keys(0, n), found.headers(0, n), found.timestamps(0, n),
            found.written_times(0, n), found.seqnos(0, n), found.codec_numbers(0, n), None,
            found.producers(0, n),
        )  # fmt: skip
        return cls(found.head.base, found.weight, columns)

    @classmethod
    def of_singles(cls, found: Singles) -> _Run:
        """Messages of plain frames: no headers, no producer, raw."""
        n = len(found)
        columns = MessageColumns(
            found.values, found.keys, [None] * n, found.created, found.written, [None] * n, [RAW] * n, None,
            [None] * n,
        )  # fmt: skip
        return cls(found.first, found.bytes, columns)


def _merged(segment: MappedSealed, compress: bool) -> Iterator[tuple[int, int, EncodedFrame]]:
    """(first offset, written time, frame) of what the segment's frames become."""
    waiting: list[_Run] = []
    weight = count = 0
    for part in _parts(segment):
        if isinstance(part, Frame):
            yield from _flushed(waiting, compress)
            yield part.head.base, part.head.written_at, _copied(part)
            waiting, weight, count = [], 0, 0
            continue
        apart = waiting and part.base != waiting[-1].base + waiting[-1].count
        full = weight + part.weight > _TARGET_BYTES or count + part.count > _TARGET_MESSAGES
        if apart or full:
            yield from _flushed(waiting, compress)
            waiting, weight, count = [], 0, 0
        waiting.append(part)
        weight += part.weight
        count += part.count
    yield from _flushed(waiting, compress)


def _parts(segment: MappedSealed) -> Iterator[_Run | Frame]:
    """The segment's messages in runs as they lie there; a control frame comes as itself."""
    data, at, offset = bytes(segment.data), SEGMENT_HEADER_BYTES, segment.index.base
    assert segment.salt is not None
    while True:
        singles, behind = take_singles(
            data, at, offset=offset, stop=offset + _RUN_MESSAGES, salt=segment.salt
        )
        if len(singles):
            yield _Run.of_singles(singles)
            at, offset = behind, offset + len(singles)
            continue
        found = next(frame.walk(data, at), None)
        if found is None:
            return
        yield _Run.of_frame(found[1]) if found[1].head.count else found[1]
        at, offset = at + found[1].head.size, found[1].head.stop


def _flushed(waiting: list[_Run], compress: bool) -> Iterator[tuple[int, int, EncodedFrame]]:
    if not waiting:
        return
    merged = _joined([part.columns for part in waiting])
    assert merged.timestamps is not None
    assert merged.written is not None
    frame = encode(merged, created=merged.timestamps[0], compress=compress)
    yield waiting[0].base, merged.written[0], frame


def _joined(parts: Sequence[MessageColumns]) -> MessageColumns:
    """Columns one after the other, without those that say nothing."""

    def column(name: str) -> list[Any]:
        return list(chain.from_iterable(getattr(part, name) for part in parts))

    keys, headers, stamps = column("keys"), column("headers"), column("stamps")
    has_producers = any(stamp is not None for stamp in stamps)
    return MessageColumns(
        column("values"),
        keys if any(key is not None for key in keys) else None,
        headers if any(headers) else None,
        column("timestamps"),
        column("written"),
        column("seqnos") if has_producers else None,
        column("codecs"),
        stamps=stamps if has_producers else None,
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
