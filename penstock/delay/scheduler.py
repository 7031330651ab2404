"""Hands out what is due, in the order of due times, and moves the read positions behind what is finished.

The files of a delay are read one after another, as a *lane*: their records are due in the order in which
they lie. The next due message is the first of some lane, or the first of the heap, where those wait whose
last bit is shorter than the smallest rung. A record leaves its file, by a shift of the read position, only
when it is finished or safely stored elsewhere, so a process that dies loses nothing: who takes over reads
from the same positions.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import count
from operator import attrgetter

from penstock.delay import file_names as names
from penstock.delay import file_repair as leftovers
from penstock.delay.chain import Chain
from penstock.delay.ladder import Ladder, wait_ms
from penstock.delay.records import NewRecord, RecordColumns, check, some_columns
from penstock.delay.scheduler_lock import SchedulerLock
from penstock.delay.state_table import PendingChange, StateTable
from penstock.delay.states import READING, FileState, Operation
from penstock.delay.window import Copies, Home, Lane, TakenMessage, Window, first, runs
from penstock.errors import Corrupt, PenstockError, TakenElsewhere, UsageError
from penstock.parse import Duration

logger = logging.getLogger("penstock.delay")

#: What is unfinished for so long while messages behind it are finished is stored again, so that those are not
#: handed out twice should this process die.
SETTLE_S = 1.0
#: How often files are looked at that nobody writes to any more.
_AGE_S = 60.0

_due, _home = attrgetter("due"), attrgetter("_home")


class Scheduler:
    """The messages of a folder, as the process that has the post hands them out."""

    def __init__(
        self,
        ledger: StateTable,
        post: SchedulerLock,
        ladder: Ladder,
        chain: Callable[[int], Chain],
        store: Callable[[RecordColumns, int], None],
    ) -> None:
        self._ledger = ledger
        self._post = post
        self._ladder = ladder
        self._chain = chain
        self._store = store
        self._mutex = threading.RLock()
        #: Damage that was met.
        self.damage: list[Corrupt] = []
        self._begin()

    def _begin(self) -> None:
        """Know nothing: at first, and when another process took over."""
        self._lanes: list[Lane] = []
        self._windows: dict[str, Window] = {}
        self._version = -1
        self._aged = self._ledger.clock.monotonic()
        self._heap: list[tuple[int, int, TakenMessage]] = []
        self._numbers = count()
        #: From the heap, due and not handed out yet.
        self._ripened: list[TakenMessage] = []
        #: To be stored on a lower rung.
        self._hops: list[TakenMessage] = []
        #: The home of what is out and has only a copy.
        self._limbo = Home(self)
        self._copies = Copies(self._ladder, self._chain, self._limbo)

    def close(self) -> None:
        with self._mutex:
            if self._post.is_held and self._post.is_mine():
                self._settle(0.0)
            self._forget()
            self._post.leave()

    def next_due(self) -> int | None:
        """When there is something to do next; None when nothing waits, or another process hands it out."""
        with self._mutex:
            if not self._is_ours():
                return None
            times = [lane.queue[0].due for lane in self._lanes if lane.queue]
            times += [self._ripened[0].due] if self._ripened else []
            times += [self._heap[0][0]] if self._heap else []
            for lane in self._lanes:
                window = self._reading(lane)
                if window is not None and not window.is_full:
                    ripe = window.first_ripe(self._ledger.states[window.name])
                    times += [] if ripe is None else [ripe]
            return min(times, default=None)

    def take(self, limit: int, now: int) -> list[TakenMessage]:
        """What is due, in the order of due times; nothing when another process hands it out."""
        with self._mutex:
            if not self._is_ours():
                return []
            try:
                return first(self._due(now, limit), limit)
            except BaseException:  # also Ctrl-C: nothing may stay behind, neither here nor there
                self._forget()
                raise

    def is_due(self, now: int) -> bool:
        """Whether there is something to hand out."""
        with self._mutex:
            if not self._is_ours():
                return False
            try:
                return any(self._due(now, 1))
            except BaseException:
                self._forget()
                raise

    def finish(self, taken: Sequence[TakenMessage]) -> None:
        """These never come again."""
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

    def again(self, taken: TakenMessage, wait: Duration, *, attempts: int | None, data: bytes | None) -> None:
        """Store one more time, then finish."""
        with self._mutex:
            self._check([taken])
            entry = NewRecord(
                wait_ms("wait", wait), taken.id, taken.topic,
                taken.attempts + 1 if attempts is None else attempts, taken.data if data is None else data,
            )  # fmt: skip
            stored = some_columns([entry])
            check(stored)
            self._store(stored, self._ledger.now_ms())
            self.finish([taken])

    def settle(self) -> None:
        """Store again what is unfinished before something finished: a crash brings back nothing finished."""
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
        """Have the post, with the lanes as the states have them."""
        if self._post.is_held and not self._post.is_mine():
            self._forget()
            self._post.leave()
        if not self._post.is_held:
            if not self._post.try_hold():
                return False
            self._begin()
        self._ledger.refresh()
        now = self._ledger.clock.monotonic()
        if now - self._aged >= _AGE_S:
            self._aged = now
            for state in [state for state in self._ledger.states.values() if state.is_written]:
                self._chain(names.made(state.name).delay_ms).stop_if_old()
        while self._version != self._ledger.version:
            self._version = self._ledger.version
            self._lay_out()
        return True

    def _forget(self) -> None:
        for window in self._windows.values():
            window.close()
        self._limbo.is_open = False
        self._begin()

    def _lay_out(self) -> None:
        """Lanes from the states: a chain is one, and one more begins where the clock was set back."""
        delays = {names.made(name).delay_ms for name in self._ledger.states}
        for delay_ms in delays:
            self._chain(delay_ms).ensure_recovered()
        self._remove_finished()
        lanes: list[Lane] = []
        home: dict[str, Lane] = {}
        for delay_ms in sorted(delays):
            for run in runs(self._ledger.chain(delay_ms)):
                lanes.append(Lane(run))
                home.update(dict.fromkeys(lanes[-1].names, lanes[-1]))
        for lane in self._lanes:
            for taken in lane.queue:
                if isinstance(taken._home, Window):
                    home[taken._home.name].queue.append(taken)
                else:  # it has only a copy
                    heapq.heappush(self._heap, (taken.due, next(self._numbers), taken))
        self._lanes = lanes

    def _remove_finished(self) -> None:
        """Remove files that are no longer written and wholly read (S003-21)."""
        finished = [
            state.name
            for state in self._ledger.states.values()
            if not state.is_written and self._position(state) >= state.len
        ]
        if not finished:
            return
        drafts = [PendingChange(Operation.DELETE, name) for name in finished]
        self._ledger.change(drafts, sync=True, allowed=self._post.check)
        for name in finished:
            window = self._windows.pop(name, None)
            if window is not None:
                window.close()
            leftovers.remove(self._ledger.folder, self._ledger.files, name)

    def _position(self, state: FileState) -> int:
        window = self._windows.get(state.name)
        return state.offset if window is None else window.position

    def _reading(self, lane: Lane) -> Window | None:
        """The file of a lane that is read now."""
        for name in lane.names:
            state = self._ledger.states.get(name)
            if state is None:
                continue
            window = self._windows.get(name) or self._open(state)
            if window is None or window.is_read(state):
                continue
            if window.first_ripe(state) is None and window.is_read(state):
                continue  # what was left of it is damaged
            return window
        return None

    def _open(self, state: FileState) -> Window | None:
        ledger = self._ledger
        try:
            window = Window(self, ledger.folder, state, ledger.files)
        except FileNotFoundError:
            path = names.data_path(ledger.folder, state.name)
            self.damage.append(Corrupt(path, state.offset, "a missing file of waiting messages"))
            self.damage[-1].hint = "what waited in it is gone, unless there is a copy of the file"
            logger.error("%s", self.damage[-1], extra={"path": path})
            ledger.change([PendingChange(Operation.DELETE, state.name)], sync=True, allowed=self._post.check)
            return None
        self._windows[state.name] = window
        if not state.rw & READING:
            draft = PendingChange(Operation.OPEN_FOR_READING, state.name)
            ledger.change([draft], sync=False, allowed=self._post.check)
        return window

    def _fill(self, lane: Lane, now: int, limit: int) -> None:
        """Queue what is due in a lane, so that at least `limit` are there, if there are so many."""
        while len(lane.queue) < limit:
            window = self._reading(lane)
            if window is None:
                return
            found = window.ripe(self._ledger.states[window.name], now, limit - len(lane.queue))
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
            elif taken.due - now >= self._ladder.smallest:
                self._hops.append(taken)
            else:
                heapq.heappush(self._heap, (taken.due, next(self._numbers), taken))
        return due

    def _hop(self) -> None:
        """Store what waits on, each on the largest rung that is not too long, then finish it here."""
        now = self._ledger.now_ms()
        entries = [NewRecord(max(t.due - now, 0), t.id, t.topic, t.attempts, t.data) for t in self._hops]
        try:
            self._store(some_columns(entries), now)
        except PenstockError:
            logger.exception("waiting messages could not be stored on; trying again")
            return
        hopped, self._hops = self._hops, []
        self._move(self._mark(hopped))

    def _check(self, taken: Sequence[TakenMessage]) -> None:
        window = taken[0]._home
        homes = (
            {window} if isinstance(window, Window) and window.begins_with(taken) else set(map(_home, taken))
        )
        for home in homes:
            if not home.is_open or home.scheduler is not self:
                raise TakenElsewhere(
                    "another process hands out these waiting messages now, or this one closed them",
                    hint="what was taken here and not finished comes again",
                )
        self._post.check()

    def _mark(self, taken: Sequence[TakenMessage]) -> set[Window]:
        """Note that these are finished; the files they lie in."""
        for place, each in enumerate(taken):
            if each._is_done:
                for earlier in taken[:place]:
                    earlier._is_done = False
                raise UsageError(f"message {each.id.hex()} was finished before", hint="finish each one once")
            each._is_done = True
        window = taken[0]._home
        if isinstance(window, Window) and window.begins_with(taken):
            window.done += len(taken)
            return {window}
        touched = Counter(map(_home, taken))
        touched.pop(self._limbo, None)
        for home, number in touched.items():
            assert isinstance(home, Window)
            home.done += number
        return set(touched)

    def _unmark(self, taken: Iterable[TakenMessage]) -> None:
        for each in taken:
            each._is_done = False
            if isinstance(each._home, Window):
                each._home.done -= 1
                each._home.rewind()

    def _move(self, touched: Collection[Window]) -> None:
        """Move the read positions of these files over what is finished."""
        drafts: list[PendingChange] = []
        for window in touched:
            window.advance()
            if window.position > window.offset:
                drafts.append(PendingChange(Operation.SHIFT, window.name, window.position - window.offset))
        if drafts:
            self._ledger.change(drafts, sync=False, allowed=self._post.check)
        now = self._ledger.clock.monotonic()
        is_over = False
        for window in touched:
            window.moved(now)
            state = self._ledger.states.get(window.name)
            is_over = is_over or (state is not None and not state.is_written and window.offset >= state.len)
        if is_over:
            self._version = -1  # the next look at the lanes removes it

    def _settle(self, patience_s: float) -> None:
        """Store again what holds up the read position behind which messages are finished."""
        now = self._ledger.clock.monotonic()
        late = [
            window
            for window in self._windows.values()
            if window.gap_since is not None and (now - window.gap_since >= patience_s or window.is_full)
        ]
        if not late:
            return
        try:
            for window in late:
                self._copies.make(window, self._ledger.now_ms())
                self._move([window])
        except PenstockError:
            logger.exception("unfinished messages could not be stored again; trying again")
