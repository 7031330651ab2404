"""`Reader.process`: receives, has a handler called in one or more threads, and settles what comes of it.

Only the thread that calls `process` touches the reader; workers do nothing but call the handler and ring.
"""

from __future__ import annotations

import inspect
import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.consume.desk import Desk
from penstock.errors import WrongType
from penstock.message import Message
from penstock.options import MIB, whole

if TYPE_CHECKING:
    from penstock.consume.reader import Reader

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


class Crew:
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


def run(reader: Reader[Any], desk: Desk, handler: Handler, *, workers: int, follow: bool) -> None:
    """Process until nothing is left, or until it is stopped; then what runs is done, and settled."""
    check_handler(handler, workers)
    if inspect.iscoroutinefunction(handler):
        raise WrongType("the handler is a coroutine function", hint="penstock.aio has a process for those")
    crew = Crew(handler, workers, reader.bell.ring)
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


def settle(desk: Desk, finished: list[Handled]) -> None:
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


def _work(reader: Reader[Any], desk: Desk, crew: Crew) -> None:
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
