"""The work list of `process`: which messages may be handled now, and how handled ones are settled.

How many messages are in hand follows from how fast they are handled: about as many as take a twentieth of a
second, so that a quick handler gets large batches and a slow one leaves the rest to other readers.
"""

from __future__ import annotations

import heapq
import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from penstock.consume.engine import ReaderEngine
from penstock.consume.options import Retry
from penstock.errors import PartitionLost
from penstock.message import Batch, Message

logger = logging.getLogger("penstock.reader")

#: What is done is committed after so long: a process that is killed has handled no more in vain.
COMMIT_S = 0.02
#: What is in hand should be handled within about so long.
_IN_HAND_S = 0.05
_IN_HAND_MOST = 4096
#: So many for each worker to begin with, and at least: enough to go on while more is fetched.
_FOR_EACH_WORKER = 2
#: Messages that are blocked for less than this stay in memory.
_PATIENCE_MS = 1000

_LOG_OF = attrgetter("topic", "partition")
_OFFSET_OF = attrgetter("offset")

#: (topic, partition, key): what keeps its order.
Line = tuple[str, int, bytes]


class Summary(NamedTuple):
    """What a `process` did."""

    #: Messages whose handler returned.
    handled: int
    #: Attempts that failed and are tried again later.
    retried: int
    #: Messages that are dead letters now.
    dead: int


class Handled(NamedTuple):
    """A message whose handler ended, and with what."""

    message: Message[Any]
    error: BaseException | None


class Pace:
    """How many messages to have in hand, from how fast they were handled."""

    def __init__(self, workers: int) -> None:
        self._least = self.most = _FOR_EACH_WORKER * workers

    def note(self, count: int, took_s: float) -> None:
        """Adapt the pace: `count` messages were handled in `took_s` seconds.

        It grows to twice as many, or to as many as were handled meanwhile, a few at a time.
        """
        if took_s * 2 <= _IN_HAND_S and count * 2 >= self.most:
            self.most = min(max(self.most * 2, count), max(_IN_HAND_MOST, self._least))
        elif took_s > _IN_HAND_S:
            fitting = int(count * _IN_HAND_S / took_s)
            self.most = max(min(self.most, fitting), self._least)


class Account:
    """Counts what a `process` did, and settles what failed."""

    def __init__(self, engine: ReaderEngine, policy: Retry) -> None:
        self._engine = engine
        self._policy = policy
        self.handled = self.retried = self.dead = 0

    @property
    def summary(self) -> Summary:
        """The totals so far, as `process` returns them."""
        return Summary(self.handled, self.retried, self.dead)

    def failed(self, message: Message[Any], error: Exception) -> None:
        """Have a message whose handler raised wait for its next attempt, or make it a dead letter."""
        where = f"{message.topic}/{message.partition} offset {message.offset}"
        logger.warning("attempt %d of %s failed: %r", message.attempt, where, error, exc_info=error)
        try:
            if self._engine.is_settled(message):
                return  # the handler has decided for itself
            if self._engine.retry(message, None, error, self._policy):
                self.retried += 1
            else:
                self.dead += 1
                logger.error("%s is a dead letter after %d attempts: %r", where, message.attempt, error)
        except PartitionLost as lost:
            logger.info("%s", lost)

    def commit(self, topic: str, partition: int, first: int, stop: int) -> None:
        """Commit a run of messages; those of a partition that is lost are handled again elsewhere."""
        try:
            self._engine.commit_range(topic, partition, first, stop)
        except PartitionLost as lost:
            logger.info("%s", lost)

    def commit_all(self, done: Iterable[Message[Any]]) -> None:
        """Commit messages in any order, as few runs as they are."""
        for topic, partition, first, stop in runs_of(done):
            self.commit(topic, partition, first, stop)


class ProcessQueue:
    """Messages in hand for one `process`. Only `ready` may be used by other threads, which take from it."""

    def __init__(self, engine: ReaderEngine, account: Account, *, workers: int, keep_order: bool) -> None:
        self._engine = engine
        self._keeps_order = keep_order
        self._pace = Pace(workers)
        self._account = account
        #: May be handled now.
        self.ready: deque[Message[Any]] = deque()
        #: Begun with, or about to be: what is neither settled nor in `ready` or a line.
        self._in_hand = 0
        self._lines: dict[Line, list[tuple[int, Message[Any]]]] = {}
        #: Lines whose first message may be free to go; a dict keeps their order.
        self._candidates: dict[Line, None] = {}
        self._busy: dict[Line, Message[Any]] = {}
        self._done: list[Message[Any]] = []
        #: Ended and not settled yet: it stays here while settling fails.
        self._ended: deque[Handled] = deque()
        self._commit_at = float("inf")
        self._settled = 0
        self._since = time.monotonic()

    @property
    def room(self) -> int:
        """How many more messages there is room for."""
        most = 1 if self._engine.is_doubtful else self._pace.most
        return most - self._in_hand

    @property
    def has_some(self) -> bool:
        """Whether there are messages that were not begun with."""
        return bool(self.ready or self._lines)

    def put(self, batch: Batch[Any]) -> None:
        """Add messages that were delivered."""
        messages = batch.messages()
        self._in_hand += len(messages)
        if not self._keeps_order:
            self.ready.extend(messages)
            return
        for message in messages:
            line = _line(message)
            if line is None:
                self.ready.append(message)
            else:
                heapq.heappush(self._lines.setdefault(line, []), (message.offset, message))
                self._candidates[line] = None

    def take(self) -> Message[Any] | None:
        """A message that may be handled now; None when there is none until something is done or comes."""
        self.fill()
        return self.ready.popleft() if self.ready else None

    def fill(self) -> None:
        """Move what may be handled now to `ready`: of a line that keeps its order, one at a time."""
        for line in list(self._candidates):
            while line in self._candidates and (message := self._first_of(line)) is not None:
                # One that a crash left twice, in the log and among those that wait, is settled once for both.
                if self._engine.is_settled(message):
                    self._leave(message)
                else:
                    self.ready.append(message)

    def finish(self, handled: list[Message[Any]]) -> None:
        """Note messages whose handler returned: they are committed soon."""
        self._account.handled += len(handled)
        if self._keeps_order:
            for message in handled:
                self._leave(message)
        else:
            self._in_hand -= len(handled)
            self._settled += len(handled)
        if handled and not self._done:
            self._commit_at = time.monotonic() + COMMIT_S
        self._done += handled

    def settle(self, finished: Iterable[Handled]) -> None:
        """Settle all of them, then raise what no handler should: Ctrl-C, or the end of the program."""
        ending: BaseException | None = None
        ended = self._ended
        ended.extend(finished)
        while ended:
            message, error = ended[0]
            if error is None:
                self.finish([message])
            elif isinstance(error, Exception):
                self._account.failed(message, error)
                self._leave(message)
            else:
                ending = error
                self.ready.appendleft(message)  # it was not handled: it is delivered again
            ended.popleft()
        if ending is not None:
            raise ending

    @property
    def commit_is_due(self) -> bool:
        """Whether something was done so long ago that it should be committed."""
        return time.monotonic() >= self._commit_at

    def commit(self) -> None:
        """Commit what is done; should that fail, it is tried again."""
        self._account.commit_all(self._done)
        self._done = []
        self._commit_at = float("inf")
        now = time.monotonic()
        self._pace.note(self._settled, now - self._since)
        self._settled, self._since = 0, now

    def end(self, running: Iterable[Message[Any]] = ()) -> None:
        """Commit what is done, have what is blocked wait in files, and give back what was not handled.

        So is what was handled and cannot be committed: nothing behind it could be, as long as it is open.
        """
        try:
            self.commit()
            self._park_blocked()
        finally:
            left = [*running, *self.ready, *self._busy.values(), *self._done]
            left += [message for message, _ in self._ended]
            left += [message for heap in self._lines.values() for _, message in heap]
            self._engine.deliver_again({(m.topic, m.partition, m.offset): m for m in left}.values())

    # Inside.

    def _park_blocked(self) -> None:
        """Have all lines wait that are blocked."""
        for line in list(self._lines):
            blocked_ms = None if line in self._busy else self._blocked_ms(line)
            if blocked_ms is not None:
                self._park(line, blocked_ms)

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
        self._busy[line] = message
        return message

    def _blocked_ms(self, line: Line) -> int | None:
        """How long until an earlier message of the key is due; None when none waits."""
        return self._engine.blocked_ms(self._lines[line][0][1])

    def _park(self, line: Line, blocked_ms: int) -> None:
        """Have all of a line wait behind the message that blocks it."""
        heap = self._lines[line]
        while heap:
            message = heap[0][1]
            try:
                if not self._engine.is_settled(message):  # else only its commit failed, the last time
                    self._engine.park(message, (blocked_ms + 1) / 1000)
            except PartitionLost as lost:
                logger.info("%s", lost)
            heapq.heappop(heap)
            self._in_hand -= 1
        del self._lines[line]
        self._candidates.pop(line, None)

    def _leave(self, message: Message[Any]) -> None:
        """Forget a message that is settled."""
        self._in_hand -= 1
        self._settled += 1
        line = _line(message) if self._keeps_order else None
        if line is not None:
            self._busy.pop(line, None)
            self._candidates[line] = None


def _line(message: Message[Any]) -> Line | None:
    return None if message.key is None else (message.topic, message.partition, message.key)


def runs_of(done: Iterable[Message[Any]]) -> Iterator[tuple[str, int, int, int]]:
    """Runs of neighbours: (topic, partition, first offset, offset behind the last)."""
    offsets: dict[tuple[str, int], list[int]] = {}
    for log, neighbours in groupby(done, key=_LOG_OF):
        offsets.setdefault(log, []).extend(map(_OFFSET_OF, neighbours))
    for key, some in sorted(offsets.items()):
        some.sort()
        if some[-1] - some[0] + 1 == len(some):
            yield *key, some[0], some[-1] + 1
            continue
        first = stop = some[0]
        for offset in some:
            if offset > stop:
                yield *key, first, stop
                first = offset
            stop = offset + 1
        yield *key, first, stop
