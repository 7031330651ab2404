"""`Reader.process`: receives, has a handler called in one or more threads, and settles what comes of it.

One worker is the thread that calls: it goes through a batch and keeps its account as the range that is done.
Several workers take messages from one list and put what ended into another; only the thread that called
`process` touches the engine.
"""

from __future__ import annotations

import inspect
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Any

from penstock.consume.engine import ReaderEngine
from penstock.consume.options import Retry
from penstock.consume.process_queue import COMMIT_S, Account, Handled, Pace, ProcessQueue, Summary
from penstock.consume.settle import Range, ranges_of
from penstock.errors import WrongType
from penstock.message import Batch, Message
from penstock.parse import MIB, whole

Handler = Callable[[Message[Any]], object]

WORKERS_MOST = 1000
#: Of what may be in hand at a time.
BYTES_MOST = 8 * MIB
#: How long nothing but the end of a handler is waited for.
LOOK_AGAIN_S = 0.1
#: What a handler that took longer did is committed before the next one begins.
_SLOW_S = 0.002


class Stop:
    """Says that `process` is to end; from any thread, or from a handler."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self.is_set = False

    def __call__(self) -> None:
        self.is_set = True
        self._ring()


class Signals:
    """While it is entered, SIGTERM and Ctrl-C end a `process` instead of the program.

    Only in the main thread, and only where the program left them as Python has them. They interrupt waiting,
    and Ctrl-C also a handler, which may take long. Nothing else is interrupted, so nothing is left half done.
    """

    def __init__(self, stop: Stop, *, wanted: bool) -> None:
        self._stop = stop
        self._wanted = wanted and threading.current_thread() is threading.main_thread()
        self._before: dict[int, Any] = {}
        #: Whether the thread that called `process` waits, or runs a handler.
        self.waits = self.handles = False

    def __enter__(self) -> Signals:
        defaults = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
        for number, default in defaults.items() if self._wanted else ():
            if signal.getsignal(number) == default:
                self._before[number] = default
                signal.signal(number, self._came)
        return self

    def __exit__(self, *raised: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    @property
    def ended(self) -> bool:
        """Whether a signal came that ends the `process`, and not the program."""
        return bool(self._before) and self._stop.is_set

    def _came(self, number: int, frame: FrameType | None) -> None:
        # No ring: the thread that came to a halt here may hold the bell's own lock.
        is_second, self._stop.is_set = self._stop.is_set, True
        if self.waits or (number == signal.SIGINT and (self.handles or is_second)):
            raise KeyboardInterrupt


def run(
    engine: ReaderEngine, handler: Handler, stop: Stop, *, workers: int, retry: Retry | None, follow: bool,
    keep_order: bool, signals: bool,
) -> Summary:  # fmt: skip
    """Process messages until none is left or it is stopped; then running handlers end and are settled."""
    policy = engine.begin_process(retry, keep_order=keep_order)
    check_handler(handler, workers)
    if inspect.iscoroutinefunction(handler):
        raise WrongType("the handler is a coroutine function", hint="penstock.aio has a process for those")
    stop.is_set = False
    account = Account(engine, policy)
    follows, engine.follow = engine.follow, engine.follow and follow
    with Signals(stop, wanted=signals) as caught:
        try:
            if workers == 1 and not keep_order:
                _InThisThread(engine, account, handler, stop, caught).run()
            else:
                _InThreads(engine, account, handler, stop, caught, workers, keep_order).run()
        except KeyboardInterrupt:
            if not caught.ended:
                raise
        finally:
            engine.follow = follows
    return account.summary


def check_handler(handler: object, workers: int) -> None:
    """Raise unless it can be called, by so many workers."""
    whole("workers", workers, 1, WORKERS_MOST)
    if not callable(handler):
        raise WrongType(f"the handler is a function of a message, not {type(handler).__name__}")


class _InThisThread:
    """One worker, which is the thread that called: batch by batch, in order."""

    def __init__(
        self, engine: ReaderEngine, account: Account, handler: Handler, stop: Stop, signals: Signals
    ) -> None:
        self._engine = engine
        self._account = account
        self._handler = handler
        self._stop = stop
        self._signals = signals
        self._pace = Pace(1)
        #: Messages of the batch; None for one that was handled: what it held need not be kept any longer.
        self._messages: list[Any] = []
        #: Of the batch: what is before is committed, and what is before the other is done.
        self._committed = self._done = 0
        #: What of the log they are; or they themselves, where they are not neighbours.
        self._range: Range | None = None
        self._scattered: list[Message[Any]] = []

    def run(self) -> None:
        engine, stop = self._engine, self._stop
        try:
            while not stop.is_set:
                batch = engine.poll(1 if engine.is_doubtful else self._pace.most, BYTES_MOST)
                if batch is not None:
                    self._handle(batch)
                    continue
                pause = engine.pause_s()
                if pause is None:
                    return
                self._wait(pause)
        finally:
            self._signals.handles = False
            try:
                self._commit()
            finally:
                uncommitted = self._scattered[self._committed : self._done]
                engine.deliver_again([*uncommitted, *filter(None, self._messages[self._done :])])

    def _handle(self, batch: Batch[Any]) -> None:
        began = time.monotonic()
        messages, ranges = batch.made(), ranges_of(batch)
        is_range = len(ranges) == 1 and ranges[0][3] - ranges[0][2] == len(messages)
        self._range, self._scattered = (ranges[0], []) if is_range else (None, messages)
        self._messages, self._committed, self._done = [*messages], 0, 0
        del messages
        while self._done < len(self._messages) and not self._stop.is_set:
            self._handle_some()
        count = self._done
        self._commit()
        if not self._stop.is_set:
            self._messages, self._committed, self._done = [], 0, 0
            self._pace.note(count, time.monotonic() - began)

    def _handle_some(self) -> None:
        """Handle messages until one fails, or it is time to commit, or all are done."""
        handler, stop, now = self._handler, self._stop, time.monotonic
        messages, done = self._messages, self._done
        began = last = now()
        self._signals.handles = True
        try:
            for done in range(done, len(messages)):  # noqa: B020 - where it stopped is wanted
                handler(messages[done])
                messages[done] = None
                at = now()
                if at - began > COMMIT_S or at - last > _SLOW_S or stop.is_set:
                    break
                last = at
            done += 1
        except Exception as error:  # noqa: BLE001 - the handler's own
            self._signals.handles = False
            self._finish(done)
            self._account.failed(messages[done], error)
            self._done = self._committed = done + 1
            return
        except BaseException:
            self._signals.handles = False
            is_handled = done < len(messages) and messages[done] is None
            self._finish(done + is_handled)
            raise
        self._signals.handles = False
        self._finish(done)

    def _finish(self, done: int) -> None:
        """Note that messages before this place in the batch were handled."""
        self._account.handled += done - self._done
        self._done = done
        self._commit()

    def _commit(self) -> None:
        first, stop = self._committed, self._done
        if first == stop:
            return
        if self._range is None:
            self._account.commit_all(self._scattered[first:stop])
        else:
            topic, partition, begin, _ = self._range
            self._account.commit(topic, partition, begin + first, begin + stop)
        self._committed = stop  # only now: what fails is tried again

    def _wait(self, pause: float) -> None:
        self._signals.waits = True
        try:
            if not self._stop.is_set:
                self._engine.bell.wait(pause)
        finally:
            self._signals.waits = False


class _InThreads:
    """Several workers, or one that keeps the order of keys."""

    def __init__(
        self, engine: ReaderEngine, account: Account, handler: Handler, stop: Stop, signals: Signals,
        workers: int, keep_order: bool,
    ) -> None:  # fmt: skip
        self._engine = engine
        self._stop = stop
        self._signals = signals
        self._list = ProcessQueue(engine, account, workers=workers, keep_order=keep_order)
        self._crew = Handlers(handler, workers, self._list.ready, stop, engine.bell.ring)

    def run(self) -> None:
        try:
            self._work()
        finally:
            left = self._crew.end()
            try:
                self._list.finish(self._crew.handled())
                self._list.settle(self._crew.failed())
            finally:
                self._list.end(left)

    def _work(self) -> None:
        engine, work, crew = self._engine, self._list, self._crew
        while not self._stop.is_set:
            work.finish(crew.handled())
            work.settle(crew.failed())
            if work.commit_is_due:
                work.commit()
            work.fill()
            batch = engine.poll(work.room, BYTES_MOST) if work.room > 0 else None
            if batch is not None:
                work.put(batch)
                work.fill()
            self._start()
            if batch is not None or crew.has_finished:
                continue
            running = crew.running  # asked once: workers end meanwhile
            if not running:
                work.commit()
                batch = engine.poll(1, BYTES_MOST)  # what was committed may have opened a partition
                if batch is not None:
                    work.put(batch)
                    continue
            pause, is_busy = engine.pause_s(), running or work.has_some or crew.has_finished
            if pause is None and not is_busy:
                return
            self._wait(LOOK_AGAIN_S if pause is None or is_busy else pause)

    def _start(self) -> None:
        self._signals.handles = self._crew.is_here
        try:
            self._crew.start()
        finally:
            self._signals.handles = False

    def _wait(self, pause: float) -> None:
        self._signals.waits = True
        try:
            if not self._stop.is_set and not self._crew.has_finished:
                self._engine.bell.wait(pause)
        finally:
            self._signals.waits = False


class Handlers:
    """Threads that take messages from a list and call the handler, until it is empty; begun as needed.

    A single worker is the thread that calls `start`.
    """

    def __init__(
        self, handler: Handler, workers: int, ready: deque[Message[Any]], stop: Stop,
        ring: Callable[[], None],
    ) -> None:  # fmt: skip
        self._handler = handler
        self._workers = workers
        self._ready = ready
        self._stop = stop
        self._ring = ring
        self.is_here = workers == 1
        self._handled: deque[Message[Any]] = deque()
        self._failed: deque[Handled] = deque()
        #: Each worker waits for its own, which is released when it is to look at the list. A queue would not
        #: do: signals that other threads than the main one get can have its `get` miss what is put.
        self._calls = [threading.Lock() for _ in range(workers)]
        self._threads: list[threading.Thread] = []
        #: What each worker has now; its place is its own.
        self._current: list[Message[Any] | None] = [None] * workers
        self._idle: deque[int] = deque()
        self._is_over = False

    @property
    def running(self) -> bool:
        """Whether any worker is busy."""
        return len(self._idle) < len(self._threads)

    @property
    def has_finished(self) -> bool:
        """Whether a handler ended, and nobody has asked for it yet."""
        return bool(self._handled or self._failed)

    def start(self) -> None:
        """Have as many workers look at the list as there are messages in it."""
        if self.is_here:
            self._work_off(0)
            return
        for _ in range(min(len(self._ready), self._workers)):
            if self._idle:
                self._calls[self._idle.popleft()].release()
            elif len(self._threads) < self._workers:
                self._begin()
            else:
                return

    def handled(self) -> list[Message[Any]]:
        """Messages whose handler returned since the last call."""
        take = self._handled.popleft
        return [take() for _ in range(len(self._handled))]

    def failed(self) -> list[Handled]:
        """Messages whose handler raised since the last call, and what."""
        take = self._failed.popleft
        return [take() for _ in range(len(self._failed))]

    def end(self) -> list[Message[Any]]:
        """Wait for running handlers and begin no more; return messages that were begun and never ended."""
        self._is_over = True
        for call in self._calls:
            if call.locked():  # else it is called already, and sees that all is over
                call.release()
        for thread in self._threads:
            if thread.is_alive():  # else an interrupt came before it began, and it will find nothing to do
                thread.join()
        return [message for message in self._current if message is not None]

    def _begin(self) -> None:
        number = len(self._threads)
        thread = threading.Thread(
            target=self._serve, args=(number,), name=f"penstock-worker-{number}", daemon=True
        )
        self._calls[number].acquire()
        self._threads.append(thread)
        thread.start()

    def _serve(self, number: int) -> None:
        while not self._is_over:
            self._work_off(number)
            self._idle.append(number)
            self._ring()
            self._calls[number].acquire()

    def _work_off(self, number: int) -> None:
        """Handle what is in the list, until nothing is."""
        ready, current, handler, handled = self._ready, self._current, self._handler, self._handled.append
        now = time.monotonic
        ring_at = now() + COMMIT_S
        while not self._is_over and not self._stop.is_set:
            try:
                current[number] = message = ready.popleft()
            except IndexError:
                return
            try:
                handler(message)
                handled(message)
            except BaseException as error:  # noqa: BLE001 - told to the thread that called `process`
                self._failed.append(Handled(message, error))
                ring_at = 0.0
            current[number] = None
            at = now()
            if at >= ring_at:
                if self.is_here:
                    return
                ring_at = at + COMMIT_S
                self._ring()
