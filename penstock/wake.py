"""Wake up when another process writes to a file.

One inotify descriptor serves a whole process, however many readers wait (a user may have only 128
inotify instances). A single reader listens itself; for several, a thread listens and rings. A wake-up
is a hint: who waits must watch first, then look, then wait, and look again at least once a second, so
that a lost hint delays and never loses. Where inotify cannot be had (macOS, EMFILE) waiters look again
every few milliseconds.
"""

from __future__ import annotations

import logging
import math
import os
import select
import struct
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

logger = logging.getLogger("penstock.wake")

#: Nobody waits longer than this without looking for themselves.
LOOK_AGAIN_S = 1.0
_POLL_S = 0.002

_IN_MODIFY = 0x00000002
_IN_CLOSE_WRITE = 0x00000008
_IN_Q_OVERFLOW = 0x00004000
_IN_CLOEXEC = 0o2000000
_IN_NONBLOCK = 0o0004000
_IN_MASK_ADD = 0x20000000  # a file may be watched for several things
_EVENT = struct.Struct("iIII")
#: Read at once; what does not fit is read next.
_EVENTS_BYTES = 4096

Hearer = Callable[[], None]


def within(deadline: float | None, pause: float) -> float | None:
    """A pause no longer than what is left until a deadline; None when nothing is."""
    if deadline is None:
        return pause
    left = deadline - time.monotonic()
    return min(pause, left) if left > 0 else None


class Watch:
    """A hearer's interest in one file; `close` ends it."""

    def __init__(self, inotify: _Inotify | None, watch_id: int, hearer: Hearer) -> None:
        self._inotify = inotify
        self._watch_id = watch_id
        self._hearer = hearer

    @property
    def pause_s(self) -> float:
        """How long one may wait for a hint before looking again."""
        return LOOK_AGAIN_S if self._inotify is not None else _POLL_S

    def close(self) -> None:
        """Stop watching."""
        if self._inotify is not None:
            self._inotify.remove(self._watch_id, self._hearer)
            self._inotify = None


class Bell:
    """What one thread waits for; watches ring it, and so may others."""

    def __init__(self) -> None:
        #: Held until somebody rings. Not an Event: an interrupt can leave the lock of one behind, and whoever
        #: rings would wait for ever.
        self._silence = threading.Lock()
        self._silence.acquire()
        self._asleep: _Inotify | None = None  # where its thread listens, while it does so itself
        self._hearer: Hearer | None = None

    @property
    def hearer(self) -> Hearer | None:
        """Called with each ring, from whatever thread rings; it must not raise."""
        return self._hearer

    @hearer.setter
    def hearer(self, hearer: Hearer | None) -> None:
        self._hearer = hearer
        inotify = _current_inotify()
        if inotify is not None:
            inotify.start_thread()  # whoever hears need not wait, so somebody must listen

    def ring(self) -> None:
        """Wake those who wait."""
        if self._silence.locked():
            with suppress(RuntimeError):  # another thread was quicker
                self._silence.release()
        asleep = self._asleep
        if asleep is not None:
            asleep.nudge()
        if self._hearer is not None:
            self._hearer()

    def wait(self, timeout: float) -> None:
        """Return when rung, or after `timeout` seconds; a ring before the call counts.

        The thread that waits listens for the whole process, if no other does: that is quicker by a change
        of threads.
        """
        deadline = time.monotonic() + timeout
        while self._silence.locked() and (left := deadline - time.monotonic()) > 0:
            inotify = _inotify
            if (inotify is None or not self._listen(inotify, left)) and self._silence.acquire(timeout=left):
                return
        self._silence.acquire(blocking=False)

    def _listen(self, inotify: _Inotify, timeout: float) -> bool:
        """Listen in this thread; False when another one does."""
        if not inotify.listening.acquire(blocking=False):
            inotify.start_thread()  # there are several who wait: a thread of its own serves them all
            return False
        try:
            self._asleep = inotify
            ready = inotify.poll(timeout if self._silence.locked() else 0)
            self._asleep = None
            inotify.hear(ready)
        finally:
            self._asleep = None
            inotify.listening.release()
        return True


def watch(path: str, hearer: Hearer, *, closes: bool = False) -> Watch:
    """Have `hearer` called, from another thread, soon after any process writes to `path`.

    With `closes`, when a process that had it open for writing ends or closes it.
    """
    inotify = _current_inotify()
    mask = _IN_CLOSE_WRITE if closes else _IN_MODIFY
    watch_id = inotify.add(path, mask, hearer) if inotify is not None else None
    return Watch(None, 0, hearer) if watch_id is None else Watch(inotify, watch_id, hearer)


class _Inotify:
    """The one inotify descriptor of this process; read by one thread at a time, which rings for all."""

    def __init__(self) -> None:
        import ctypes

        self._libc = ctypes.CDLL(None, use_errno=True)
        self._errno = ctypes.get_errno
        self._fd = self._libc.inotify_init1(_IN_CLOEXEC | _IN_NONBLOCK)
        if self._fd < 0:
            raise OSError(self._errno(), "inotify_init1")
        self._nudged, self._nudge = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)
        self._poll.register(self._nudged, select.POLLIN)
        self._mutex = threading.Lock()
        self._hearers: dict[int, tuple[Hearer, ...]] = {}
        self._thread: threading.Thread | None = None
        #: Held by the thread that listens.
        self.listening = threading.Lock()

    def start_thread(self) -> None:
        """Have a thread listen from now on, or as soon as the present listener is done."""
        with self._mutex:
            if self._thread is None:
                self._thread = threading.Thread(target=self._listen, name="penstock-wake", daemon=True)
                self._thread.start()

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        """Wait for an event or a nudge; return which descriptors have something."""
        return self._poll.poll(math.ceil(timeout * 1000))

    def nudge(self) -> None:
        """End the present `poll`."""
        with suppress(BlockingIOError):
            os.write(self._nudge, b"!")

    def close(self) -> None:
        for fd in (self._fd, self._nudged, self._nudge):
            os.close(fd)

    def add(self, path: str, mask: int, hearer: Hearer) -> int | None:
        with self._mutex:
            watch_id: int = self._libc.inotify_add_watch(self._fd, os.fsencode(path), mask | _IN_MASK_ADD)
            if watch_id < 0:
                logger.info(
                    "inotify watch refused, polling instead", extra={"path": path, "errno": self._errno()}
                )
                return None
            self._hearers[watch_id] = (*self._hearers.get(watch_id, ()), hearer)
            return watch_id

    def remove(self, watch_id: int, hearer: Hearer) -> None:
        with self._mutex:
            left = tuple(each for each in self._hearers.get(watch_id, ()) if each is not hearer)
            if left:
                self._hearers[watch_id] = left
            elif self._hearers.pop(watch_id, None) is not None:
                self._libc.inotify_rm_watch(self._fd, watch_id)

    def _listen(self) -> None:
        with self.listening:
            while True:
                self.hear(self.poll(LOOK_AGAIN_S))

    def hear(self, ready: list[tuple[int, int]]) -> None:
        """Take up what has happened, as `poll` told, and ring."""
        for fd, _ in ready:
            with suppress(BlockingIOError):  # a nudge that another has taken up meanwhile
                if fd == self._fd:
                    self._ring(os.read(fd, _EVENTS_BYTES))
                else:
                    os.read(fd, _EVENTS_BYTES)

    def _ring(self, events: bytes) -> None:
        at = 0
        heard: set[int] = set()
        while at < len(events):
            watch_id, mask, _, name_length = _EVENT.unpack_from(events, at)
            at += _EVENT.size + name_length
            if mask & _IN_Q_OVERFLOW:
                heard.update(self._hearers)
            heard.add(watch_id)
        for watch_id in heard:
            for hearer in self._hearers.get(watch_id, ()):
                hearer()


_inotify: _Inotify | None = None
_inotify_mutex = threading.Lock()


def _current_inotify() -> _Inotify | None:
    global _inotify
    if sys.platform != "linux":
        return None
    with _inotify_mutex:
        if _inotify is None:
            try:
                _inotify = _Inotify()
            except OSError as error:
                logger.info("inotify cannot be had, polling instead", extra={"errno": error.errno})
        return _inotify


def _forget_inotify() -> None:
    """Begin anew in a forked child: the thread is gone there, and the descriptor is the parent's."""
    global _inotify, _inotify_mutex
    _inotify_mutex = threading.Lock()
    if _inotify is not None:
        _inotify.close()
        _inotify = None


os.register_at_fork(after_in_child=_forget_inotify)
