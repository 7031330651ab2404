"""Hands over partitions for readers whose user is busy with a message, so that new members need not wait.

One thread serves all readers of a process; it ends when there is nothing to do. It only releases what
is idle, it never fetches, takes or commits.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import weakref
from contextlib import suppress
from typing import Protocol

from penstock.errors import PenstockError

logger = logging.getLogger("penstock.reader")

_EACH_S = 1.0
#: The thread ends when there was no reader for so many looks.
_IDLE_LOOKS = 5


class HandsOver(Protocol):
    """What shares its partitions with others."""

    def hand_over(self) -> None:
        """Hand over partitions that others wait for."""


_readers: weakref.WeakSet[HandsOver] = weakref.WeakSet()
_mutex = threading.Lock()
#: Not an Event: Ctrl-C inside its `set` would leave its lock taken.
_nudged: queue.SimpleQueue[None] = queue.SimpleQueue()
_thread: threading.Thread | None = None


def add(reader: HandsOver) -> None:
    """Look after a reader until it is removed or forgotten."""
    global _thread
    with _mutex:
        _readers.add(reader)
        if _thread is None:
            thread = threading.Thread(target=_work, name="penstock-members", daemon=True)
            with suppress(RuntimeError):  # the interpreter is ending: nobody will be kept waiting for long
                thread.start()
                _thread = thread


def remove(reader: HandsOver) -> None:
    """Stop asking a reader for partitions that others wait for."""
    with _mutex:
        _readers.discard(reader)


def nudge() -> None:
    """Look now: a member came to this process."""
    _nudged.put(None)


def _work() -> None:
    idle = 0
    while not _ends(idle):
        with suppress(queue.Empty):
            _nudged.get(timeout=_EACH_S)
        idle = 0 if _look() else idle + 1


def _look() -> int:
    """Let each reader hand over; how many there are. Keeps none of them alive while the thread waits."""
    with _mutex:
        readers = list(_readers)
    for reader in readers:
        try:
            reader.hand_over()
        except (PenstockError, OSError) as error:
            logger.debug("handing over failed: %s", error)  # the reader's next call meets it
    return len(readers)


def _ends(idle: int) -> bool:
    global _thread
    with _mutex:
        if idle < _IDLE_LOOKS or _readers:
            return False
        _thread = None
        return True


def _forget() -> None:
    """In a forked child there is no thread, and the readers are closed."""
    global _thread, _mutex, _nudged
    _thread, _mutex, _nudged = None, threading.Lock(), queue.SimpleQueue()
    _readers.clear()


os.register_at_fork(after_in_child=_forget)
