"""A file of waiting messages as the scheduler reads it: what was decoded, what is out, what is finished.

Files of one chain are read one after another, as a lane; lanes are merged by due time.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from operator import attrgetter
from typing import Any, ClassVar

import msgspec

from penstock.delay.file_reader import FileReader, RecordBlock
from penstock.delay.states import FileState
from penstock.errors import Corrupt
from penstock.files import Files
from penstock.parse import Duration

logger = logging.getLogger("penstock.delay")

#: Finished records at the beginning of a window are forgotten so many at a time.
_FORGET = 4096


class SchedulerTerm:
    """The time in which one process delivers the messages of a folder.

    What was taken then can be finished only while it lasts.
    """

    def __init__(
        self, finish: Callable[[Sequence[TakenMessage]], None], again: Callable[..., None],
        report: Callable[[Corrupt], None],
    ) -> None:  # fmt: skip
        self.finish = finish
        self.again = again
        #: Called with damage that reading meets.
        self.report = report
        self.is_over = False


class TakenMessage(msgspec.Struct, gc=False, eq=False):
    """A message that is due, delivered. It is delivered again, here or elsewhere, unless it is finished."""

    term: SchedulerTerm
    #: The file it lies in; None when only a copy of it is left.
    window: Window | None
    #: When it was to be delivered, in ms since 1970.
    due: int
    #: So many of them it waited after it was due in its file.
    rest: int
    id: bytes
    topic: str
    attempts: int
    data: bytes
    #: Its place in the file.
    byte: int
    is_done: bool = False

    def done(self) -> None:
        """Finish it: it is never delivered again. `WaitingMessages.finish` does so for many at a time."""
        self.term.finish([self])

    def again(
        self, wait: Duration, *, attempts: int | None = None, data: bytes | None = None, fixed: bool = True
    ) -> None:
        """Store it once more, due after another wait, then finish this one. Nothing is lost in between."""
        self.term.again(self, wait, attempts=attempts, data=data, fixed=fixed)

    def __repr__(self) -> str:
        return f"<TakenMessage {self.topic} {self.id.hex()}: due {self.due}, {self.attempts} attempts>"


def _ripe(record: TakenMessage) -> int:
    """The time at which a record is due in its file."""
    return record.due - record.rest


_rest: Callable[[Any], int] = attrgetter("rest")


class Window:
    """A file of waiting messages as the scheduler reads it."""

    #: How far `next` may run ahead of what is finished: so many records, so many bytes.
    RECORDS_MAX: ClassVar[int] = 16_384
    BYTES_MAX: ClassVar[int] = 4 * 1024 * 1024

    def __init__(self, term: SchedulerTerm, folder: str, state: FileState, files: Files) -> None:
        self.name = state.name
        self.term = term
        self._files = files
        self._reader = FileReader(folder, state.name, files, state.offset)
        #: Decoded records; before `head` they are finished, before `next` they are out or waited for.
        self.records: list[TakenMessage] = []
        self.head = self.next = 0
        #: How many of `records` are finished, wherever they lie.
        self.done = 0
        #: The read position as the states have it.
        self.offset = state.offset
        self._decoded = max(state.offset, self._reader.at)
        self._make = partial(TakenMessage, term, self)
        #: Some records wait on after they are due in this file.
        self.has_rests = False
        #: Since when something is finished behind something that is not.
        self.gap_since: float | None = None

    def close(self) -> None:
        """Forget everything."""
        self.records.clear()
        self.head = self.next = self.done = 0

    @property
    def position(self) -> int:
        """The byte before which everything is finished."""
        return self.records[self.head].byte if self.head < len(self.records) else self._decoded

    @property
    def is_full(self) -> bool:
        """Whether as many messages are taken or read ahead as may be."""
        begin = self.position
        reached = self.records[self.next].byte if self.next < len(self.records) else self._decoded
        return self.next - self.head >= self.RECORDS_MAX or reached - begin >= self.BYTES_MAX

    @property
    def has_gap(self) -> bool:
        """Whether messages are settled behind one that is not."""
        return self.done > self.head

    def is_read(self, state: FileState) -> bool:
        """Whether all records of a file that is no longer written were taken."""
        return not state.is_written and self.next >= len(self.records) and self._decoded >= state.len

    def first_ripe(self, state: FileState) -> int | None:
        """When the next record is due in this file; None when there is none now.

        FileNotFoundError when the file is gone.
        """
        if self.next >= len(self.records):
            self._decode(state)
            if self.next >= len(self.records):
                return None
        return _ripe(self.records[self.next])

    def ripe(self, state: FileState, now: int, limit: int) -> list[TakenMessage]:
        """The next records that are due in this file, at most about `limit`."""
        ripe = self.first_ripe(state)
        if ripe is None or ripe > now or self.is_full:
            return []
        stop = min(self.next + limit, len(self.records))
        if _ripe(self.records[stop - 1]) > now:
            stop = bisect_right(self.records, now, self.next, stop, key=_ripe)
        found = self.records[self.next : stop]
        self.next = stop
        return found

    def advance(self) -> None:
        """Move over what is finished at the beginning."""
        head, records = self.head, self.records
        while head < self.next and records[head].is_done:
            head += 1
        self.head = head

    def begins_with(self, taken: Sequence[TakenMessage]) -> bool:
        """Whether these are just what comes first: the usual case, and quickly seen."""
        return self.records[self.head : self.head + len(taken)] == taken

    def rewind(self) -> None:
        """Take back that records were finished."""
        self.head = 0
        self.advance()

    def moved(self, now: float) -> None:
        """Note that the states have the read position now."""
        self.offset = self.position
        if not self.has_gap:
            self.gap_since = None
        elif self.gap_since is None:
            self.gap_since = now
        if self.head >= _FORGET or self.head == len(self.records):
            del self.records[: self.head]
            self.next -= self.head
            self.done -= self.head
            self.head = 0

    def unfinished(self) -> list[int]:
        """The places of what is not finished and lies before something that is."""
        places = range(self.head, self.next)
        last = max((place for place in places if self.records[place].is_done), default=self.head)
        return [place for place in range(self.head, last) if not self.records[place].is_done]

    def leave(self, place: int) -> None:
        """Note that the records at these places are stored elsewhere now."""
        self.records[place] = TakenMessage(
            self.term, self, 0, 0, b"", "", 0, b"", self.records[place].byte, True
        )
        self.done += 1

    def _decode(self, state: FileState) -> None:
        """Read and decode the next blocks."""
        blocks = self._reader.read(None if state.is_written else state.len)
        for block in blocks:
            if not block.is_sound:
                self._report(block)
                continue
            found = block.records(self._make)
            if block.begin < self.offset:
                found = [record for record in found if record.byte >= self.offset]
            self.has_rests = self.has_rests or any(map(_rest, found))
            self.records += found
        if blocks:
            self._decoded = max(blocks[-1].end, self._decoded)

    def _report(self, block: RecordBlock) -> None:
        """Damage: keep the bytes for people to look at, tell, and go on behind them."""
        corrupt: Corrupt = self._reader.corrupt(block)
        logger.error("%s", corrupt, extra={"path": corrupt.path, "byte": corrupt.byte})
        path = f"{corrupt.path}.{block.begin}.damaged"
        fd = self._files.open(path, create=True)
        try:
            self._files.pwrite(fd, block.data, 0)
            self._files.sync(fd)
        finally:
            self._files.close(fd)
        self._files.sync_dir(os.path.dirname(path))
        self.term.report(corrupt)


_due = attrgetter("due")


class ChainLane:
    """Files of one chain that are read one after another."""

    def __init__(self, states: list[FileState]) -> None:
        self.names = [state.name for state in states]
        #: Due, and not delivered yet.
        self.queue: list[TakenMessage] = []


def runs(states: Sequence[FileState]) -> list[list[FileState]]:
    """Divide the files of a chain into runs within which `FileState.replay` never decreases."""
    found: list[list[FileState]] = []
    for state in states:
        if found and state.replay >= found[-1][-1].replay:
            found[-1].append(state)
        else:
            found.append([state])
    return found


def first(queues: Sequence[list[TakenMessage]], limit: int) -> list[TakenMessage]:
    """Take the first ones of all queues, in the order of due times; each queue keeps its own order."""
    filled = [queue for queue in queues if queue]
    if len(filled) == 1:
        chosen = filled[0][:limit]
        del filled[0][:limit]
        return chosen
    tagged = sorted(
        (due, which, place)
        for which, queue in enumerate(filled)
        for place, due in enumerate(accumulate(map(_due, queue[:limit]), max))
    )[:limit]
    chosen = [filled[which][place] for _, which, place in tagged]
    for which, queue in enumerate(filled):
        del queue[: sum(tag[1] == which for tag in tagged)]
    return chosen
