"""Locks between processes that the kernel frees when their holder dies, also across a fork.

Ctrl-C may come at any line. A section that must never leave a lock behind is a function given to `hold`:
whatever interrupts it, and wherever, the locks are free when it is over. A `with` statement alone cannot
promise that, because an interrupt may come when `__exit__` begins.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import CO_GENERATOR
from types import FrameType, TracebackType
from typing import TypeVar

from penstock.errors import Closed, LockTimeout
from penstock.files import Files, OpenFile

#: A lock is mostly held for microseconds, the shortest sleep takes 80: give way so often before sleeping
#: (16 processes on 2 cores: 8 to 9 thousand durable writes a second instead of 4 to 5).
_YIELDS = 50
_SLEEP_FIRST_S, _SLEEP_MOST_S = 30e-6, 1e-3
#: How long a writer waits for another process before it gives up with `LockTimeout`.
PATIENCE_S = 30.0

#: (rank, topic id, partition): sorts in the lock order above.
Order = tuple[int, int, int]
APPEND_RANK, TAIL_RANK, STATE_RANK, RUNG_RANK, FILE_STATES_RANK, OTHER_RANK = range(6)

T = TypeVar("T")
_TAKE = fcntl.LOCK_EX | fcntl.LOCK_NB

FORKED = "was opened before fork(): a child process opens the store again"


class FileLock:
    """An exclusive lock on an open file, held by one thread of one process at a time.

    A lock that nobody has can `rest` without a descriptor, if it was told who opens it again.
    """

    def __init__(
        self, files: Files, path: str, *, order: Order, holder: Callable[[], int | None],
        wake: Callable[[], object] | None = None,
    ) -> None:  # fmt: skip
        self.path = path
        self._files = files
        self._wake = wake
        self._is_closed = False
        self.file: OpenFile | None = None
        self.fd = -1
        self.open()
        self._mutex = threading.RLock()  # knows its owner; nobody takes it twice
        #: Whether this thread has the lock, or is about to have it.
        self._is_mine: Callable[[], bool] = self._mutex._is_owned  # type: ignore[attr-defined]
        #: The call that has the lock, for as long as it has it.
        self._call: FrameType | None = None
        self._holder = holder
        self.order = order
        _locks.add(self)

    def is_mine(self) -> bool:
        """Whether a call of this thread that is still running has the lock.

        An interrupt that comes while another one is being dealt with may end the call that has the lock and
        leave the lock behind. Such a lock is released here, by the next one who wants it.
        """
        if not self._is_mine():
            return False
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame is self._call:
                return True
            frame = frame.f_back
        self.release()
        return False

    def try_acquire(self) -> bool:
        """Take the lock if it is free now."""
        if self._is_mine() and self.is_mine():
            return False
        try:
            if not self._mutex.acquire(False):
                return False
            self._call = _calling()
            if self._flock():
                return True
            self._mutex.release()
            return False
        except BaseException:
            self.drop()  # an interrupt may have come when it was just taken
            raise

    def acquire(self, timeout: float | None = None) -> None:
        """Wait for the lock; raise `LockTimeout`, naming the holder, when it does not come free."""
        timeout = PATIENCE_S if timeout is None else timeout
        if self._is_mine() and self.is_mine():
            raise self.held_here()
        try:
            if not self._mutex.acquire(True, timeout):
                raise LockTimeout(f"another thread of this process holds {self.path}", pid=os.getpid())
            self._call = _calling()
            if not self._flock():
                self._wait(timeout)
        except BaseException:
            self.drop()
            raise

    def release(self) -> None:
        """Release the lock, which this thread has."""
        self._call = None
        try:
            if self.fd >= 0:
                fcntl.flock(self.fd, fcntl.LOCK_UN)
        except OSError:
            self._mutex.release()
            raise
        self._mutex.release()  # only now: who is interrupted before it still has the lock, and drops it

    def drop(self) -> None:
        """Release the lock if this thread has it; nothing otherwise."""
        if self._is_mine():
            self.release()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Have the lock for a while; free afterwards, also when Ctrl-C comes at its beginning or end."""
        try:  # as `hold`
            self.acquire()
            yield
            self.drop()
        except BaseException:
            self.drop()
            raise

    def __enter__(self) -> FileLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_mine():  # else an interrupt came when it was just released
            self.release()

    def held_here(self) -> LockTimeout:
        """The error for wanting the lock again in the thread that has it."""
        return LockTimeout(f"this thread holds {self.path}: a signal handler came in", pid=os.getpid())

    def timed_out(self, timeout: float) -> LockTimeout:
        """The error for having waited in vain; names who holds the lock."""
        pid = flock_holder(self.fd) or self._holder()
        who = f"process {pid}" if pid else "another process"
        return LockTimeout(f"{who} holds {self.path} for more than {timeout:.0f} s", pid=pid)

    def open(self) -> OpenFile | None:
        """Open the file unless it is open; None when the lock is closed."""
        if self.file is None and not self._is_closed:
            self.file = OpenFile(self._files, self._files.open(self.path, create=True))
            self.fd = self.file.fd
        return self.file

    def try_pause(self) -> bool:
        """Keep the threads of this process from taking the lock, until it is dropped, if none has it."""
        if self.is_mine() or not self._mutex.acquire(False):
            return False
        self._call = _calling()
        return True

    def rest(self) -> None:
        """Give the descriptor back until the lock is wanted again. It is paused."""
        self.fd = -1
        self.file = None

    def close(self) -> None:
        """Close the file; the kernel drops the lock with it."""
        with self._mutex:
            self._is_closed = True
            self.fd = -1
            self.file = None

    def _flock(self) -> bool:
        if self.fd < 0:
            if self._is_closed or self._wake is None:
                raise Closed(f"{self.path} is closed")
            self._wake()
        try:
            fcntl.flock(self.fd, _TAKE)
        except BlockingIOError:
            return False
        return True

    def _wait(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        for _ in range(_YIELDS):
            os.sched_yield()
            if self._flock():
                return
        pause = _SLEEP_FIRST_S
        while True:
            time.sleep(pause)
            if self._flock():
                return
            if time.monotonic() > deadline:
                raise self.timed_out(timeout)
            pause = min(pause * 1.5, _SLEEP_MOST_S)

    def _before_fork(self) -> None:
        self._mutex.acquire()
        self._call = None

    def _after_fork_in_parent(self) -> None:
        self._mutex.release()

    def _after_fork_in_child(self) -> None:
        file, self.file, self.fd = self.file, None, -1
        self._is_closed = True
        self._mutex = threading.RLock()
        self._is_mine = self._mutex._is_owned  # type: ignore[attr-defined]
        if file is not None:
            file.close()  # whoever else has it: the lock is the parent's


def _calling() -> FrameType:
    """Return the frame that takes a lock, but not a context manager's: that ends before the body begins."""
    frame = sys._getframe(2)
    code = frame.f_code
    # What stands between a `with` statement and the lock that it takes.
    while code.co_flags & CO_GENERATOR or code is _ENTERING or code.co_filename == _CONTEXTLIB:
        if frame.f_back is None:
            break
        frame = frame.f_back
        code = frame.f_code
    return frame


_ENTERING = FileLock.__enter__.__code__
_CONTEXTLIB = contextlib.__file__


def hold(locks: Sequence[FileLock], section: Callable[[], T]) -> T:
    """Take the locks in this order, call `section`, and release them, wherever an interrupt comes in.

    An interrupt while they are released is met by the handler, and the handler has nothing else to do.
    """
    for lock in locks:
        if lock.is_mine():
            raise lock.held_here()  # by whoever the signal handler that we are in has interrupted
    try:
        for lock in locks:
            lock.acquire()
        result = section()
        for lock in locks:
            lock.release()
        return result
    except BaseException:
        for lock in locks:
            lock.drop()
        raise


def try_hold(lock: FileLock, section: Callable[[], T]) -> T | None:
    """Take the lock if it is free now, call `section`, and release it; None when it is not free."""
    if lock.is_mine():
        return None
    try:
        if not lock.try_acquire():
            return None
        result = section()
        lock.release()
        return result
    except BaseException:
        lock.drop()
        raise


def flock_holder(fd: int) -> int | None:
    """The process that holds a flock on this file, as far as the kernel tells (Linux)."""
    found = os.fstat(fd)
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    try:
        with open("/proc/locks") as file:
            for line in file:
                fields = line.split()
                if fields[1] == "FLOCK" and fields[5] == place:
                    return int(fields[4]) or None
    except (OSError, IndexError, ValueError):
        pass
    return None


def process(pid: int) -> tuple[str, int]:
    """State letter and start time (in ticks) of a process; ("", 0) when the system does not tell."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return fields[0].decode(), int(fields[19])
    except (OSError, IndexError, ValueError):
        return "", 0


_locks: weakref.WeakSet[FileLock] = weakref.WeakSet()
_forgetful: weakref.WeakSet[object] = weakref.WeakSet()
_taken: list[FileLock] = []
_pausing: weakref.WeakSet[object] = weakref.WeakSet()
_paused: list[object] = []
#: Threads that open or close something, with how often; a fork waits for them, and they for it.
_openers: dict[int, int] = {}
_forking: list[int] = []


def pause_at_fork(thing: object) -> None:
    """Have `thing.before_fork()` and then `thing.after_fork_in_parent()` called around each fork."""
    _pausing.add(thing)


def forget_in_child(thing: object) -> None:
    """Have `thing.after_fork_in_child()` called in each forked child, so that it can close itself."""
    _forgetful.add(thing)


@contextmanager
def no_fork() -> Iterator[None]:
    """Keep other threads from forking while this one opens or closes what a child could not close.

    Not for those who hold a lock: a fork waits for them, and they would wait for it. There is no lock to it
    that Ctrl-C could leave behind: each side says what it is about to do, and then looks at the other.
    """
    me = threading.get_ident()
    depth = _openers.get(me, 0)
    try:
        _openers[me] = depth + 1
        while _forking and not depth:
            _openers.pop(me, None)
            time.sleep(_SLEEP_MOST_S)
            _openers[me] = depth + 1
        yield
    finally:
        if depth:
            _openers[me] = depth
        else:
            _openers.pop(me, None)


def _before_fork() -> None:
    """Wait until no thread opens, closes, or has a lock, and take them all; in the locks' order."""
    me, deadline = threading.get_ident(), time.monotonic() + PATIENCE_S
    _forking.append(me)
    while any(each != me for each in list(_openers)) and time.monotonic() < deadline:
        time.sleep(_SLEEP_MOST_S)
    while True:
        locks, things = sorted(_present(_locks), key=lambda lock: lock.order), _present(_pausing)
        for lock in locks:
            lock._before_fork()
            _taken.append(lock)
        for thing in things:
            thing.before_fork()  # type: ignore[attr-defined]
            _paused.append(thing)
        if not set(_present(_locks)).difference(locks) and not set(_present(_pausing)).difference(things):
            return
        _resume()  # some came meanwhile


def _present(things: weakref.WeakSet[T]) -> list[T]:
    """Those there are; other threads may add some at any moment."""
    while True:
        try:
            return list(things)
        except RuntimeError:
            continue


def _after_fork_in_parent() -> None:
    try:
        _resume()
    finally:
        _forking.pop()


def _resume() -> None:
    try:
        while _paused:
            _paused.pop(0).after_fork_in_parent()  # type: ignore[attr-defined]
    finally:
        while _taken:
            _taken.pop()._after_fork_in_parent()


def _after_fork_in_child() -> None:
    _forking.clear()
    _openers.clear()
    for lock in _taken:
        lock._after_fork_in_child()
    _taken.clear()
    _paused.clear()
    for thing in list(_forgetful):
        thing.after_fork_in_child()  # type: ignore[attr-defined]


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)


#: A file that another process has is asked for again after so long.
_PAUSE_S = 0.05


class Claimed(Exception):
    """Another process has the file; `pid` is it, as far as it is known."""

    def __init__(self, pid: int | None) -> None:
        super().__init__(pid)
        self.pid = pid

    def __str__(self) -> str:
        return f" (process {self.pid})" if self.pid is not None else ""


def claim(path: str, wait_s: float = 0.0) -> int:
    """Have a file for this process, made if need be; closing what is returned releases it.

    Raises `Claimed` when another process has it for longer than `wait_s`.
    """
    os.makedirs(os.path.dirname(path), exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _claim(fd, time.monotonic() + wait_s)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _claim(fd: int, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(fd, _TAKE)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise Claimed(flock_holder(fd)) from None
        time.sleep(_PAUSE_S)
