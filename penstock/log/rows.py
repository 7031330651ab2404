"""What a read of one partition yields: runs of neighbouring messages, decoded when asked for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cache
from itertools import groupby
from types import ModuleType
from typing import TYPE_CHECKING, Any

from penstock.arrow import Names, combined
from penstock.log import frame_columns
from penstock.log.frame import Frame
from penstock.log.frame_header import KEYS

if TYPE_CHECKING:
    import pyarrow

    from penstock.message import Message, Rows


class FrameRows:
    """Some or all messages of one frame."""

    __slots__ = ("_partition", "begin", "end", "frame", "topic")

    def __init__(self, topic: str, partition: int, frame: Frame, first: int, stop: int) -> None:
        self.topic = topic
        self._partition = partition
        self.frame = frame
        #: Places in the frame, not offsets.
        self.begin = first
        self.end = stop

    @property
    def partition(self) -> int:
        """The partition that the messages are in."""
        return self._partition

    def __len__(self) -> int:
        return self.end - self.begin

    @property
    def first(self) -> int:
        """The offset of the first message."""
        return self.frame.head.base + self.begin

    @property
    def stop(self) -> int:
        """The offset after the last message."""
        return self.frame.head.base + self.end

    def messages(self, decode: Callable[[bytes], Any] | None = None) -> list[Message]:
        """Return the messages; their values are what `decode` makes of them, if it is given."""
        return self.frame.messages(self.topic, self._partition, self.begin, self.end, decode)

    def record_batch(self, names: Names = None) -> pyarrow.RecordBatch:
        """Return the messages as Arrow columns; the columns of `names`, or all."""
        return _tables().from_frame(self.topic, self._partition, self.frame, self.begin, self.end, names)

    def joined(self, following: Sequence[Rows]) -> pyarrow.RecordBatch:
        """Return these messages and the following ones as one Arrow record batch."""
        return joined([self, *following])


class MessageRows:
    """Messages that were decoded already."""

    __slots__ = ("_messages",)

    def __init__(self, messages: list[Message[Any]]) -> None:
        self._messages = messages

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def partition(self) -> int:
        """The partition that the messages are in."""
        return self._messages[0].partition

    @property
    def first(self) -> int:
        """The offset of the first message."""
        return self._messages[0].offset

    @property
    def stop(self) -> int:
        """The offset after the last message."""
        return self._messages[-1].offset + 1

    def messages(self, decode: Callable[[bytes], Any] | None = None) -> list[Message]:
        """Return the messages; their values are what `decode` makes of them, if it is given."""
        if decode is None:
            return self._messages
        from penstock.message import all_typed  # executors do without

        return all_typed(self._messages, decode)

    def record_batch(self, names: Names = None) -> pyarrow.RecordBatch:
        """Return the messages as Arrow columns; the columns of `names`, or all."""
        return _tables().from_messages(self._messages, names)

    def joined(self, following: Sequence[Rows]) -> pyarrow.RecordBatch:
        """Return these messages and the following ones as one Arrow record batch."""
        return joined([self, *following])


@cache
def _tables() -> ModuleType:
    """Loaded when first used: it needs pyarrow."""
    from penstock.arrow import require_pyarrow

    require_pyarrow()
    from penstock.log import arrow_columns

    return arrow_columns


def joined(rows: Sequence[Rows]) -> pyarrow.RecordBatch:
    """All messages as one Arrow record batch; neighbouring frames are put together column by column."""
    batches: list[pyarrow.RecordBatch] = []
    for where, run in groupby(rows, _partition_of_frames):
        if where is None:
            batches += [each.record_batch() for each in run]
        else:
            frames = [(each.frame, each.begin, each.end) for each in run if isinstance(each, FrameRows)]
            batches.append(_tables().from_frames(*where, frames))
    return combined(batches)


def _partition_of_frames(rows: Rows) -> tuple[str, int] | None:
    return (rows.topic, rows.partition) if isinstance(rows, FrameRows) else None


def rows_that_fit(frame: Frame, first: int, stop: int, max_bytes: int) -> int:
    """The largest end up to `stop` for which keys and values stay within `max_bytes`; one row at least."""
    values = frame_columns.unpack_offsets(frame.body, frame.layout.value_offsets, frame.head.count)
    keys = values
    if frame.head.flags & KEYS:
        keys = frame_columns.unpack_offsets(frame.body, frame.layout.key_offsets, frame.head.count)
        limit = values[first] + keys[first] + max_bytes
        fitting = bisect_right(range(stop + 1), limit, lo=first, key=lambda i: values[i] + keys[i]) - 1
    else:
        fitting = bisect_right(values, values[first] + max_bytes, lo=first, hi=stop + 1) - 1
    return max(first + 1, min(fitting, stop))
