"""Lanes: files of one delay that are read one after another, and how the lanes are merged by due time."""

from __future__ import annotations

import logging
import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar

import msgspec

from penstock.delay.chain import Chain
from penstock.delay.file_reader import FileReader, RecordBlock
from penstock.delay.ladder import Ladder
from penstock.delay.records import NewRecord, blocks, some_columns
from penstock.delay.states import FileState
from penstock.errors import Corrupt
from penstock.files import Files

if TYPE_CHECKING:
    from penstock.delay.scheduler import Scheduler
    from penstock.parse import Duration


logger = logging.getLogger("penstock.delay")

#: Finished records at the beginning of a window are forgotten so many at a time.
_FORGET = 4096


class TakenMessage(msgspec.Struct, gc=False, eq=False):
    """A message that is due, handed out. It comes again, here or elsewhere, unless it is finished."""

    #: Whose it is.
    _home: Home
    #: When it was to be handed out, in ms since 1970.
    due: int
    #: So many of them it waited after it was due in its file.
    rest: int
    id: bytes
    topic: str
    attempts: int
    data: bytes
    #: Its byte in the file.
    _at: int
    _is_done: bool = False

    def done(self) -> None:
        """It is finished: it never comes again. `Waiting.finish` does so for many at a time."""
        self._home.scheduler.finish([self])

    def again(self, wait: Duration, *, attempts: int | None = None, data: bytes | None = None) -> None:
        """Store it once more, due after another wait, then finish this one. Nothing is lost in between."""
        self._home.scheduler.again(self, wait, attempts=attempts, data=data)

    def __repr__(self) -> str:
        return f"<Taken {self.topic} {self.id.hex()}: due {self.due}, {self.attempts} attempts>"


def _ripe(record: TakenMessage) -> int:
    return record.due - record.rest


class Home:
    """Where what was taken belongs to; closed when another process took over."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.is_open = True


class Window(Home):
    """A file that is read."""

    #: How far `next` may run ahead of what is finished: so many records, so many bytes.
    RECORDS_MAX: ClassVar[int] = 16_384
    BYTES_MAX: ClassVar[int] = 4 * 1024 * 1024

    def __init__(self, scheduler: Scheduler, folder: str, state: FileState, files: Files) -> None:
        super().__init__(scheduler)
        self.name = state.name
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
        self._make = partial(TakenMessage, self)
        #: Some records wait on after they are due in this file.
        self.has_rests = False
        #: Since when something is finished behind something that is not.
        self.gap_since: float | None = None

    def close(self) -> None:
        """Forget everything; what is out belongs to nobody now."""
        self.is_open = False
        self.records.clear()
        self.head = self.next = self.done = 0
        self._reader.close()

    @property
    def position(self) -> int:
        """The byte before which everything is finished."""
        return self.records[self.head]._at if self.head < len(self.records) else self._decoded

    @property
    def is_full(self) -> bool:
        begin = self.position
        reached = self.records[self.next]._at if self.next < len(self.records) else self._decoded
        return self.next - self.head >= self.RECORDS_MAX or reached - begin >= self.BYTES_MAX

    @property
    def has_gap(self) -> bool:
        return self.done > self.head

    def is_read(self, state: FileState) -> bool:
        """Everything there is, and ever will be, is at least out."""
        return not state.is_written and self.next >= len(self.records) and self._decoded >= state.len

    def first_ripe(self, state: FileState) -> int | None:
        """When the next record is due in this file; None when there is none now."""
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
        while head < self.next and records[head]._is_done:
            head += 1
        self.head = head

    def begins_with(self, taken: Sequence[TakenMessage]) -> bool:
        """Whether these are just what comes first: the usual case, and quickly seen."""
        return self.records[self.head : self.head + len(taken)] == taken

    def rewind(self) -> None:
        """Something is not finished after all."""
        self.head = 0
        self.advance()

    def moved(self, now: float) -> None:
        """The states have the read position now."""
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
        last = max((place for place in places if self.records[place]._is_done), default=self.head)
        return [place for place in range(self.head, last) if not self.records[place]._is_done]

    def leave(self, place: int) -> None:
        """What lies there is stored elsewhere now."""
        self.records[place] = TakenMessage(self, 0, 0, b"", "", 0, b"", self.records[place]._at, True)
        self.done += 1

    def _decode(self, state: FileState) -> None:
        """Read and decode the next blocks."""
        pieces = self._reader.read(None if state.is_written else state.len)
        for piece in pieces:
            if not piece.is_sound:
                self._report(piece)
                continue
            found = piece.records(self._make)
            if piece.begin < self.offset:
                found = [record for record in found if record._at >= self.offset]
            self.has_rests = self.has_rests or any(map(_rest, found))
            self.records += found
        if pieces:
            self._decoded = max(pieces[-1].end, self._decoded)

    def _report(self, piece: RecordBlock) -> None:
        """Damage: keep the bytes for people to look at, tell, and go on behind them."""
        corrupt: Corrupt = self._reader.corrupt(piece)
        logger.error("%s", corrupt, extra={"path": corrupt.path, "byte": corrupt.byte})
        path = f"{corrupt.path}.{piece.begin}.damaged"
        fd = self._files.open(path, create=True)
        try:
            self._files.pwrite(fd, piece.data, 0)
            self._files.sync(fd)
        finally:
            self._files.close(fd)
        self._files.sync_dir(os.path.dirname(path))
        self.scheduler.damage.append(corrupt)


_rest = attrgetter("rest")


#: After a crash a message that was copied comes back no later than this.
_WAIT_MAX_MS = 60_000


class Copies:
    """Where the copies of what is out lie."""

    def __init__(self, ladder: Ladder, chain: Callable[[int], Chain], limbo: Home) -> None:
        self._ladder = ladder
        self._chain = chain
        self._limbo = limbo
        self._by_spot: dict[tuple[str, int], TakenMessage] = {}

    @property
    def are_there(self) -> bool:
        return bool(self._by_spot)

    def make(self, window: Window, now: int) -> None:
        """Store again, durably, what is unfinished before something finished; it is done in this file."""
        by_wait: dict[int, list[int]] = {}
        for place in window.unfinished():
            by_wait.setdefault(self._wait(window.records[place], now), []).append(place)
        for wait, places in by_wait.items():
            taken = [window.records[place] for place in places]
            spots = self._store(
                [NewRecord(wait, t.id, t.topic, t.attempts, t.data) for t in taken], wait, now
            )
            for place, each, spot in zip(places, taken, spots, strict=True):
                self._by_spot[spot] = each
                window.leave(place)
                each._home = self._limbo

    def find(
        self, window: Window, found: Sequence[TakenMessage]
    ) -> tuple[list[TakenMessage], list[TakenMessage]]:
        """Of the last records of a window: those that are no copies, and copies of what is finished.

        The others are out: they lie here now.
        """
        fresh: list[TakenMessage] = []
        finished: list[TakenMessage] = []
        for place, taken in enumerate(found, window.next - len(found)):
            original = self._by_spot.pop((window.name, taken._at), None)
            if original is None:
                fresh.append(taken)
            elif original._is_done:
                finished.append(taken)
            else:
                original._home, original._at = window, taken._at
                window.records[place] = original
        return fresh, finished

    def _store(self, entries: Sequence[NewRecord], wait: int, now: int) -> list[tuple[str, int]]:
        """The file and byte of each."""
        rung = self._ladder.rung(wait)
        chain, made = self._chain(rung), blocks(some_columns(entries), rung)
        stored = chain.append(made, now)
        for place in stored:
            chain.sync(place)
        return [
            (place.name, place.begin + begin)
            for place, block in zip(stored, made, strict=True)
            for begin in block.begins()
        ]

    def _wait(self, taken: TakenMessage, now: int) -> int:
        """The longer it has been out, the longer until its copy is looked at."""
        if taken.due > now:
            return taken.due - now
        return max(self._ladder.rung(min(now - taken.due, _WAIT_MAX_MS)), self._ladder.smallest)


_due = attrgetter("due")


class Lane:
    """Files of one delay that are read one after another."""

    def __init__(self, states: list[FileState]) -> None:
        self.names = [state.name for state in states]
        #: Due, and not handed out yet.
        self.queue: list[TakenMessage] = []


def runs(states: Sequence[FileState]) -> list[list[FileState]]:
    """A chain in pieces within which `Replay` never decreases."""
    runs: list[list[FileState]] = []
    for state in states:
        if runs and state.replay >= runs[-1][-1].replay:
            runs[-1].append(state)
        else:
            runs.append([state])
    return runs


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
