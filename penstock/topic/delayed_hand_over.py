"""Delayed messages on their way from a writer to where they wait: stored once, whatever interrupts.

Ctrl-C may come at any step of the main thread, and files of waiting messages do not tell which of two equal
messages is one too many. So in that thread nothing is stored: another one does it, and no interrupt reaches
that. Who was interrupted while it waited asks again later, and nothing is stored a second time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from penstock.topic.delayed import Postponed
from penstock.topic.open_topic import OpenTopic


class DelayedHandOver:
    """Messages that left a writer, and whether they are stored."""

    __slots__ = ("_durable", "_ended", "_error", "_is_stored", "_messages", "_mutex", "_topic")

    def __init__(self, topic: OpenTopic, messages: Sequence[Postponed], *, durable: bool) -> None:
        self._topic = topic
        self._messages = messages
        self._durable = durable
        self._mutex = threading.Lock()
        self._is_stored = False
        self._error: BaseException | None = None
        #: An entry for each time that the thread came to an end with it.
        self._ended: SimpleQueue[None] = SimpleQueue()

    @property
    def count(self) -> int:
        """How many messages these are."""
        return len(self._messages)

    def store(self) -> None:
        """Return when they are stored; raises what keeps them from being so, and may be called again."""
        self._error = None
        if threading.current_thread() is not threading.main_thread() or not _hand_over(self._run):
            self._store()
        while not self._is_stored:
            self._ended.get()
            if self._error is not None:
                raise self._error

    def _run(self) -> None:
        try:
            self._store()
        except BaseException as error:  # noqa: BLE001 - raised by who waits
            self._error = error
        self._ended.put(None)

    def _store(self) -> None:
        with self._mutex:
            if not self._is_stored:
                self._topic.require_place()
                self._topic.delayed.add(self._topic.name, self._messages, durable=self._durable)
                self._is_stored = True


# What concurrent.futures has for this takes locks that an interrupt may leave behind.
_calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
_thread: threading.Thread | None = None


def _hand_over(call: Callable[[], None]) -> bool:
    """Have a call made by the thread; False when there can be none, since the interpreter is ending."""
    global _thread
    if _thread is None:
        thread = threading.Thread(target=_serve, name="penstock-hand-over", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False
        _thread = thread
    _calls.put(call)
    return True


def _serve() -> None:
    calls = _calls
    while True:
        calls.get()()


def _forget() -> None:
    """In a forked child the thread is not there."""
    global _thread, _calls
    _thread, _calls = None, SimpleQueue()


os.register_at_fork(after_in_child=_forget)
