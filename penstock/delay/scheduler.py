"""Deliver what is due, in the order of due times, and move the read positions behind what is finished.

The files of a chain are read one after another, as a *lane*: their records are due in the order in which
they lie. The next due message is the first of some lane, or the first of the heap, where those of the
ladder wait whose last bit is shorter than the smallest rung. A record leaves its file, by a shift of the
read position, only when it is finished or safely stored elsewhere, so a process that dies loses nothing:
the one that takes over reads from the same positions.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import count
from operator import attrgetter

from penstock.delay import file_names, file_repair
from penstock.delay.chain import Chains
from penstock.delay.copies import Copies
from penstock.delay.ladder import wait_ms
from penstock.delay.records import NewRecord, RecordColumns, check, some_columns
from penstock.delay.scheduler_lock import SchedulerLock
from penstock.delay.state_table import PendingChange, StateTable
from penstock.delay.states import READING, FileState, Operation
from penstock.delay.window import ChainLane, SchedulerTerm, TakenMessage, Window, first, runs
from penstock.errors import Corrupt, PenstockError, TakenElsewhere, UsageError
from penstock.parse import Duration

logger = logging.getLogger("penstock.delay")

#: What is unfinished for so long while messages behind it are finished is stored again, so that those are not
#: delivered twice should this process die.
SETTLE_S = 1.0
#: How often files are looked at that nobody writes to any more, and for how long nobody must have.
_IDLE_S = 5.0

_due = attrgetter("due")


class Scheduler:
    """The messages of a folder, as the process that has the scheduler's lock delivers them."""

    def __init__(
        self,
        table: StateTable,
        lock: SchedulerLock,
        chains: Chains,
        store: Callable[[RecordColumns, int, bool], None],
    ) -> None:
        self._table = table
        self._lock = lock
        self._chains = chains
        self._store = store
        self._mutex = threading.RLock()
        #: Damage that was met.
        self.damage: list[Corrupt] = []
        self._begin()

    def _begin(self) -> None:
        """Know nothing: at first, and when another process took over."""
        self._term = SchedulerTerm(self.finish, self.again, self.damage.append)
        self._lanes: list[ChainLane] = []
        self._windows: dict[str, Window] = {}
        self._version = -1
        self._looked_at = self._table.clock.monotonic()
        self._heap: list[tuple[int, int, TakenMessage]] = []
        self._numbers = count()
        #: From the heap, due and not delivered yet.
        self._ripened: list[TakenMessage] = []
        #: To be stored on a lower rung.
        self._hops: list[TakenMessage] = []
        self._copies = Copies(self._chains)

    def close(self) -> None:
        """Store what is known, remove finished files and release the lock."""
        with self._mutex:
            try:
                if self._lock.is_held and self._lock.is_mine():
                    self._settle(0.0)
                    self._stop_files(idle_ms=0)
                    self._remove_finished()
            except PenstockError as error:
                logger.warning("what is finished could not be removed: %s", error)
            finally:
                self._forget()
                self._lock.leave()

    def next_due(self) -> int | None:
        """When there is something to do next; None when nothing waits, or another process delivers it."""
        with self._mutex:
            if not self._is_ours():
                return None
            now = self._table.clock.now_ns() // 1_000_000
            times = [lane.queue[0].due for lane in self._lanes if lane.queue]
            times += [self._ripened[0].due] if self._ripened else []
            times += [self._heap[0][0]] if self._heap else []
            times += [due for lane in self._lanes if (due := self._next_in(lane, now)) is not None]
            return min(times, default=None)

    def take(self, limit: int, now: int) -> list[TakenMessage]:
        """What is due, in the order of due times; nothing when another process delivers it."""
        with self._mutex:
            if not self._is_ours():
                return []
            try:
                return first(self._due(now, limit), limit)
            except BaseException:  # also Ctrl-C: nothing may stay behind, neither here nor there
                self._forget()
                raise

    def is_due(self, now: int) -> bool:
        """Whether there is something to deliver."""
        with self._mutex:
            if not self._is_ours():
                return False
            try:
                return any(self._due(now, 1))
            except BaseException:
                self._forget()
                raise

    def finish(self, taken: Sequence[TakenMessage]) -> None:
        """Finish these: they are never delivered again."""
        if not taken:
            return
        with self._mutex:
            self._check(taken)
            touched = self._mark(taken)
            try:
                self._move(touched)
            except BaseException:
                self._unmark(taken)
                raise
            self._settle(SETTLE_S)

    def again(
        self, taken: TakenMessage, wait: Duration, *, attempts: int | None, data: bytes | None, fixed: bool
    ) -> None:
        """Store a message one more time, then finish it."""
        with self._mutex:
            self._check([taken])
            entry = NewRecord(
                wait_ms("wait", wait), taken.id, taken.topic,
                taken.attempts + 1 if attempts is None else attempts, taken.data if data is None else data,
            )  # fmt: skip
            stored = some_columns([entry])
            check(stored)
            self._store(stored, self._table.now_ms(), fixed)
            self.finish([taken])

    def settle(self) -> None:
        """Store again what is unfinished before something finished.

        After that a crash brings back nothing that was finished.
        """
        with self._mutex:
            if self._is_ours():
                self._settle(0.0)

    # Inside. The mutex is held.

    def _due(self, now: int, limit: int) -> list[list[TakenMessage]]:
        """What is due, as queues in the order of due times, each of at least `limit` if there are so many."""
        for lane in self._lanes:
            self._fill(lane, now, limit)
        if self._hops:
            self._hop()
        self._settle(SETTLE_S)
        while self._heap and self._heap[0][0] <= now:
            self._ripened.append(heapq.heappop(self._heap)[2])
        self._ripened.sort(key=_due)  # what was left over may be due later than what came since
        return [*(lane.queue for lane in self._lanes), self._ripened]

    def _is_ours(self) -> bool:
        """Have the lock, with the lanes as the states have them."""
        if self._lock.is_held and not self._lock.is_mine():
            self._forget()
            self._lock.leave()
        if not self._lock.is_held:
            if not self._lock.try_hold():
                return False
            self._begin()
        self._table.refresh()
        now = self._table.clock.monotonic()
        if now - self._looked_at >= _IDLE_S:
            self._looked_at = now
            self._stop_files(round(_IDLE_S * 1000))
        while self._version != self._table.version:
            self._version = self._table.version
            self._lay_out()
        return True

    def _forget(self) -> None:
        for window in self._windows.values():
            window.close()
        self._term.is_over = True
        self._begin()

    def _stop_files(self, idle_ms: int) -> None:
        """Stop writing files that are old, or that are finished and got nothing new."""
        for state in [state for state in self._table.states.values() if state.is_written]:
            self._chains.chain(file_names.made(state.name).chain).stop_if_over(self._position(state), idle_ms)

    def _lay_out(self) -> None:
        """Lanes from the states: a chain is one, and one more begins where the clock was set back."""
        self._remove_finished()
        lanes: list[ChainLane] = []
        by_name: dict[str, ChainLane] = {}
        for chain in sorted(self._table.chains):
            for run in runs(self._table.chain(chain)):
                lanes.append(ChainLane(run))
                by_name.update(dict.fromkeys(lanes[-1].names, lanes[-1]))
        for lane in self._lanes:
            for taken in lane.queue:
                if taken.window is not None and taken.window.name in by_name:
                    by_name[taken.window.name].queue.append(taken)
                else:  # it has only a copy
                    heapq.heappush(self._heap, (taken.due, next(self._numbers), taken))
        self._lanes = lanes

    def _remove_finished(self) -> None:
        """Remove files that are no longer written and wholly read (S003-21)."""
        finished = [
            state.name
            for state in self._table.states.values()
            if not state.is_written and self._position(state) >= state.len
        ]
        if finished:
            self._remove(finished)

    def _remove(self, finished: Sequence[str]) -> None:
        def unlink() -> None:
            for name in finished:
                file_repair.remove(self._table.folder, self._table.files, name)

        pending = [PendingChange(Operation.DELETE, name) for name in finished]
        self._table.change(pending, sync=True, allowed=self._lock.check, after=unlink)
        for name in finished:
            window = self._windows.pop(name, None)
            if window is not None:
                window.close()

    def _position(self, state: FileState) -> int:
        window = self._windows.get(state.name)
        return state.offset if window is None else window.position

    def _next_in(self, lane: ChainLane, now: int) -> int | None:
        """When a lane has something to deliver or to store on; None when nothing of it is left to take."""
        for name in lane.names:
            state = self._table.states.get(name)
            if state is None:
                continue
            if name not in self._windows and state.replay > now:
                return state.replay  # nothing in it is due earlier: it need not be opened yet
            window = self._readable(state)
            if window is None:
                continue
            return None if window.is_full else window.first_ripe(state)
        return None

    def _reading(self, lane: ChainLane, now: int) -> Window | None:
        """The file of a lane that is read now; None when there is none, or nothing in it can be due."""
        for name in lane.names:
            state = self._table.states.get(name)
            if state is None:
                continue
            if name not in self._windows and state.replay > now:
                return None
            window = self._readable(state)
            if window is not None:
                return window
        return None

    def _readable(self, state: FileState) -> Window | None:
        """A file that has, or may yet get, records to deliver."""
        try:
            window = self._windows.get(state.name) or self._open(state)
            if window.is_read(state):
                return None
            if window.first_ripe(state) is None and window.is_read(state):
                return None  # what was left of it is damaged
            return window
        except FileNotFoundError:
            self._report_missing(state)
            return None

    def _open(self, state: FileState) -> Window:
        window = Window(self._term, self._table.folder, state, self._table.files)
        self._windows[state.name] = window
        if not state.rw & READING:
            pending = PendingChange(Operation.OPEN_FOR_READING, state.name)
            self._table.change([pending], sync=False, allowed=self._lock.check)
        return window

    def _report_missing(self, state: FileState) -> None:
        """A file with a state is gone: say so, and forget it."""
        path = file_names.data_path(self._table.folder, state.name)
        self.damage.append(Corrupt(path, state.offset, "a missing file of waiting messages"))
        self.damage[-1].hint = "what waited in it is gone, unless there is a copy of the file"
        logger.error("%s", self.damage[-1], extra={"path": path})
        self._remove([state.name])

    def _fill(self, lane: ChainLane, now: int, limit: int) -> None:
        """Queue what is due in a lane, so that at least `limit` are there, if there are so many."""
        while len(lane.queue) < limit:
            window = self._reading(lane, now)
            if window is None:
                return
            found = window.ripe(self._table.states[window.name], now, limit - len(lane.queue))
            if not found:
                return
            if self._copies.are_there:
                found, finished = self._copies.find(window, found)
                if finished:
                    self._move(self._mark(finished))
            if window.has_rests:
                found = self._without_rests(found, now)
            lane.queue += found

    def _without_rests(self, found: list[TakenMessage], now: int) -> list[TakenMessage]:
        """What is due altogether; the others hop or wait in the heap."""
        due: list[TakenMessage] = []
        for taken in found:
            if not taken.rest:
                due.append(taken)
            elif taken.due - now >= self._chains.ladder.smallest:
                self._hops.append(taken)
            else:
                heapq.heappush(self._heap, (taken.due, next(self._numbers), taken))
        return due

    def _hop(self) -> None:
        """Store what waits on, each on the largest rung that is not too long, then finish it here."""
        now = self._table.now_ms()
        entries = [NewRecord(max(t.due - now, 0), t.id, t.topic, t.attempts, t.data) for t in self._hops]
        try:
            self._store(some_columns(entries), now, False)
        except PenstockError:
            logger.exception("waiting messages could not be stored on; trying again")
            return
        hopped, self._hops = self._hops, []
        self._move(self._mark(hopped))

    def _check(self, taken: Sequence[TakenMessage]) -> None:
        window = taken[0].window
        is_mine = window is not None and window.term is self._term and window.begins_with(taken)
        if not is_mine and any(each.term is not self._term for each in taken):
            raise TakenElsewhere(
                "another process delivers these waiting messages now, or this one closed them",
                hint="what was taken here and not finished is delivered again",
            )
        self._lock.check()

    def _mark(self, taken: Sequence[TakenMessage]) -> set[Window]:
        """Note that these are finished; the files they lie in."""
        for place, each in enumerate(taken):
            if each.is_done:
                for earlier in taken[:place]:
                    earlier.is_done = False
                raise UsageError(f"message {each.id.hex()} was finished before", hint="finish each one once")
            each.is_done = True
        window = taken[0].window
        if window is not None and window.begins_with(taken):
            window.done += len(taken)
            return {window}
        touched = Counter(each.window for each in taken if each.window is not None)
        for window, number in touched.items():
            window.done += number
        return set(touched)

    def _unmark(self, taken: Iterable[TakenMessage]) -> None:
        for each in taken:
            each.is_done = False
            if each.window is not None:
                each.window.done -= 1
                each.window.rewind()

    def _move(self, touched: Collection[Window]) -> None:
        """Move the read positions of these files over what is finished."""
        pending: list[PendingChange] = []
        for window in touched:
            window.advance()
            if window.position > window.offset:
                pending.append(PendingChange(Operation.SHIFT, window.name, window.position - window.offset))
        if pending:
            self._table.change(pending, sync=False, allowed=self._lock.check)
        now = self._table.clock.monotonic()
        is_over = False
        for window in touched:
            window.moved(now)
            state = self._table.states.get(window.name)
            is_over = is_over or (state is not None and not state.is_written and window.offset >= state.len)
        if is_over:
            self._version = -1  # the next look at the lanes removes it

    def _settle(self, patience_s: float) -> None:
        """Store again what holds up the read position behind which messages are finished."""
        now = self._table.clock.monotonic()
        late = [
            window
            for window in self._windows.values()
            if window.gap_since is not None and (now - window.gap_since >= patience_s or window.is_full)
        ]
        if not late:
            return
        try:
            for window in late:
                self._copies.make(window, self._table.now_ms())
                self._move([window])
        except PenstockError:
            logger.exception("unfinished messages could not be stored again; trying again")
