"""`Reader.process`: receives, has a handler called in one or more threads, and settles what comes of it.

Only the thread that calls `process` touches the reader; workers do nothing but call the handler and ring.
"""

from __future__ import annotations

import heapq
import inspect
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from penstock.consume.options import Retry, checked_policy
from penstock.consume.retries import PartitionRetries
from penstock.errors import PartitionLost, WrongType
from penstock.message import Message
from penstock.parse import MIB, Duration, whole

if TYPE_CHECKING:
    from penstock.consume.reader import Reader


logger = logging.getLogger("penstock.reader")

#: So many messages are in hand at most: enough to commit many at a time, few enough to come again.
IN_HAND_MOST = 256
#: Done messages are committed after so many, or so many seconds, whatever is first.
_COMMIT_MOST = 64
_COMMIT_S = 0.5
#: Who is blocked for less than this stays in memory.
_PATIENCE_MS = 1000

#: (topic, partition, key): what keeps its order.
Line = tuple[str, int, bytes]
Place = tuple[str, int, int]


class Summary(NamedTuple):
    """What a `process` did."""

    #: Messages whose handler returned.
    handled: int
    #: Attempts that failed and are tried again later.
    retried: int
    #: Messages that are dead letters now.
    dead: int


class Waits(Protocol):
    """A partition some of whose messages wait."""

    @property
    def retries(self) -> PartitionRetries | None: ...


class Holds(Protocol):
    """Where messages come from (`Holdings`, `QueueParts`)."""

    @property
    def sources(self) -> Mapping[tuple[str, int], Waits]: ...

    def commit(self, topic: str, partition: int, first: int, stop: int) -> None: ...

    def deliver_again(self, messages: Iterable[Message[Any]]) -> None: ...


class Settles(Protocol):
    """What becomes of messages that could not be handled (`Settling`, `QueueParts`)."""

    def is_settled(self, message: Message[Any]) -> bool: ...

    def retry(
        self, message: Message[Any], after: Duration | None, error: BaseException | str | None,
        policy: Retry | None = None,
    ) -> bool: ...  # fmt: skip

    def park(self, message: Message[Any], wait_s: float) -> None: ...


class ProcessQueue:
    """For one `process`. Not for several threads at a time."""

    def __init__(
        self, held: Holds, settling: Settles, mutex: threading.RLock, now_ns: Callable[[], int], *,
        policy: Retry, keep_order: bool, most: int = IN_HAND_MOST,
    ) -> None:  # fmt: skip
        self._most = most
        self._held = held
        self._mutex = mutex  # the reader's
        self._settling = settling
        self._now_ns = now_ns
        self._policy = checked_policy(policy)
        self._keeps_order = keep_order
        self._free: deque[Message[Any]] = deque()
        self._lines: dict[Line, list[tuple[int, Message[Any]]]] = {}
        #: Lines whose first message may be free to go; a dict keeps their order.
        self._candidates: dict[Line, None] = {}
        self._busy: set[Line] = set()
        self._running: dict[Place, Message[Any]] = {}
        self._done: list[Message[Any]] = []
        self._commit_at = float("inf")
        self._handled = self._retried = self._dead = 0

    @property
    def summary(self) -> Summary:
        return Summary(self._handled, self._retried, self._dead)

    @property
    def room(self) -> int:
        """How many more messages may come."""
        return self._most - len(self._running) - len(self._free) - sum(map(len, self._lines.values()))

    @property
    def has_some(self) -> bool:
        """Whether there are messages that were not begun with."""
        return bool(self._free or self._lines)

    def put(self, messages: Iterable[Message[Any]]) -> None:
        """These were delivered."""
        for message in messages:
            line = self._line(message)
            if line is None:
                self._free.append(message)
            else:
                heapq.heappush(self._lines.setdefault(line, []), (message.offset, message))
                self._candidates[line] = None

    def next(self) -> Message[Any] | None:
        """One that may be handled now; None when there is none until something is done or comes."""
        with self._mutex:
            for message in self._startable():
                place = _place(message)
                # One that a crash left twice, in the log and among those that wait, is settled once for both.
                if place not in self._running and not self._settling.is_settled(message):
                    self._running[place] = message
                    return message
                self._leave_line(message)
        return None

    def done(self, message: Message[Any]) -> None:
        """Its handler returned."""
        self._handled += 1
        self._end(message)
        if not self._done:
            self._commit_at = time.monotonic() + _COMMIT_S
        self._done.append(message)
        if len(self._done) >= _COMMIT_MOST or self.commit_is_due:
            self.commit()

    def failed(self, message: Message[Any], error: Exception) -> None:
        """Its handler raised: it waits for its next attempt, or is a dead letter."""
        logger.info(
            "attempt %d of %s/%d offset %d failed: %r", message.attempt, message.topic, message.partition,
            message.offset, error,
        )  # fmt: skip
        with self._mutex:
            self._end(message)
            if self._settling.is_settled(message):
                return  # the handler has decided for itself
            try:
                if self._settling.retry(message, None, error, self._policy):
                    self._retried += 1
                else:
                    self._dead += 1
            except PartitionLost as lost:
                logger.info("%s", lost)

    @property
    def commit_is_due(self) -> bool:
        """Whether something was done so long ago that it should be committed, alone or not."""
        return time.monotonic() >= self._commit_at

    def commit(self) -> None:
        """Commit what is done."""
        done, self._done = self._done, []
        self._commit_at = float("inf")
        for topic, partition, first, stop in _ranges(done):
            try:
                with self._mutex:
                    self._held.commit(topic, partition, first, stop)
            except PartitionLost as lost:
                logger.info("%s", lost)

    def end(self) -> None:
        """Commit what is done, have what is blocked wait in files, and give back what was not handled."""
        self.commit()
        with self._mutex:
            for line in list(self._lines):
                blocked_ms = None if line in self._busy else self._blocked_ms(line)
                if blocked_ms is not None:
                    self._park(line, blocked_ms)
            left = [*self._running.values(), *self._free]
            left += [message for heap in self._lines.values() for _, message in heap]
            self._held.deliver_again(left)

    # Inside.

    def _startable(self) -> Iterator[Message[Any]]:
        while self._free:
            yield self._free.popleft()
        for line in list(self._candidates):
            while line in self._candidates and (message := self._first_of(line)) is not None:
                yield message

    def _first_of(self, line: Line) -> Message[Any] | None:
        """The first message of a line, if it may go; it is busy then."""
        heap = self._lines.get(line)
        if line in self._busy or not heap:
            self._candidates.pop(line, None)
            return None
        blocked_ms = self._blocked_ms(line)
        if blocked_ms is not None:
            if blocked_ms > _PATIENCE_MS or self.room <= 0:
                self._park(line, blocked_ms)
            return None
        _, message = heapq.heappop(heap)
        if not heap:
            del self._lines[line]
        self._candidates.pop(line, None)
        self._busy.add(line)
        return message

    def _blocked_ms(self, line: Line) -> int | None:
        """How long until an earlier message of the key is due; None when none waits."""
        topic, partition, key = line
        source = self._held.sources.get((topic, partition))
        if source is None or source.retries is None:
            return None
        due_ms = source.retries.earlier_due_ms(key, self._lines[line][0][0])
        return None if due_ms is None else max(due_ms - self._now_ns() // 1_000_000, 0)

    def _park(self, line: Line, blocked_ms: int) -> None:
        """Have all of a line wait behind the message that blocks it."""
        self._candidates.pop(line, None)
        heap = self._lines.pop(line)
        while heap:
            _, message = heapq.heappop(heap)
            try:
                self._settling.park(message, (blocked_ms + 1) / 1000)
            except PartitionLost as lost:
                logger.info("%s", lost)

    def _end(self, message: Message[Any]) -> None:
        del self._running[_place(message)]
        self._leave_line(message)

    def _leave_line(self, message: Message[Any]) -> None:
        line = self._line(message)
        if line is not None:
            self._busy.discard(line)
            self._candidates[line] = None

    def _line(self, message: Message[Any]) -> Line | None:
        if not self._keeps_order or message.key is None:
            return None
        return message.topic, message.partition, message.key


def _place(message: Message[Any]) -> Place:
    return message.topic, message.partition, message.offset


def _ranges(done: Iterable[Message[Any]]) -> Iterator[tuple[str, int, int, int]]:
    """Runs of neighbours: (topic, partition, first offset, offset behind the last)."""
    first: Place | None = None
    stop = 0
    for topic, partition, offset in sorted(map(_place, done)):
        if first is not None and (topic, partition, offset) == (*first[:2], stop):
            stop += 1
            continue
        if first is not None:
            yield *first, stop
        first, stop = (topic, partition, offset), offset + 1
    if first is not None:
        yield *first, stop


Handler = Callable[[Message[Any]], object]

WORKERS_MOST = 1000
#: Of what may be in hand at a time.
BYTES_MOST = 8 * MIB
#: How long nothing but the end of a handler is waited for.
LOOK_AGAIN_S = 0.2


class Handled(NamedTuple):
    """A message whose handler ended, and with what."""

    message: Message[Any]
    error: BaseException | None


class Handlers:
    """Calls the handler: here, or in threads."""

    def __init__(self, handler: Handler, workers: int, ring: Callable[[], None]) -> None:
        self._handler = handler
        self._workers = workers
        self._ring = ring
        self._pool = ThreadPoolExecutor(workers, "penstock-worker") if workers > 1 else None
        self._results: queue.SimpleQueue[Handled] = queue.SimpleQueue()
        self.running = 0

    @property
    def has_room(self) -> bool:
        return self.running < self._workers

    def start(self, message: Message[Any]) -> None:
        self.running += 1
        if self._pool is None:
            self._work(message)
        else:
            self._pool.submit(self._work, message)

    def finished(self) -> list[Handled]:
        """Those that ended since the last call."""
        found: list[Handled] = []
        while not self._results.empty():
            found.append(self._results.get())
        self.running -= len(found)
        return found

    def end(self) -> list[Handled]:
        """Wait for what runs; what ended since the last call."""
        if self._pool is not None:
            self._pool.shutdown()
        return self.finished()

    def _work(self, message: Message[Any]) -> None:
        error: BaseException | None = None
        try:
            self._handler(message)
        except BaseException as raised:  # noqa: BLE001 - told to the thread that called `process`
            error = raised
        self._results.put(Handled(message, error))
        self._ring()


def run(reader: Reader[Any], desk: ProcessQueue, handler: Handler, *, workers: int, follow: bool) -> None:
    """Process until nothing is left, or until it is stopped; then what runs is done, and settled."""
    check_handler(handler, workers)
    if inspect.iscoroutinefunction(handler):
        raise WrongType("the handler is a coroutine function", hint="penstock.aio has a process for those")
    crew = Handlers(handler, workers, reader.bell.ring)
    try:
        with reader.following(follow):
            _work(reader, desk, crew)
    finally:
        try:
            settle(desk, crew.end())
        finally:
            desk.end()


def check_handler(handler: object, workers: int) -> None:
    whole("workers", workers, 1, WORKERS_MOST)
    if not callable(handler):
        raise WrongType(f"the handler is a function of a message, not {type(handler).__name__}")


def settle(desk: ProcessQueue, finished: list[Handled]) -> None:
    """Settle all of them, then raise what no handler should: Ctrl-C, or the end of the program."""
    ending: BaseException | None = None
    for message, error in finished:
        if error is None:
            desk.done(message)
        elif isinstance(error, Exception):
            desk.failed(message, error)
        else:
            ending = error
    if ending is not None:
        raise ending


def _work(reader: Reader[Any], desk: ProcessQueue, crew: Handlers) -> None:
    while not reader.is_stopped:
        while crew.has_room and not reader.is_stopped and (message := desk.next()) is not None:
            crew.start(message)
            settle(desk, crew.finished())
        batch = reader.poll(desk.room, BYTES_MOST) if desk.room > 0 else None
        if batch is not None:
            desk.put(batch)
            continue
        if not crew.running or desk.commit_is_due:
            desk.commit()
        pause = reader._pause(None)
        if pause is None and not crew.running:
            return
        reader.bell.wait(LOOK_AGAIN_S if pause is None or crew.running else pause)
        settle(desk, crew.finished())
