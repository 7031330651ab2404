"""The lock of a folder's scheduler: at most one process delivers its messages at a time, as long as it lives.

The holder locks one byte of the file `scheduler`, which the kernel frees when it dies. Which byte is told
by the round in that file: a process that is stopped keeps its byte, and `kick` makes the round, and with it
the byte, another one. What fences is the round: a holder looks at it before it delivers, and under the
states' lock before it moves a read position.

    u64 round | u64 pid of the holder | u64 the time, in ms, up to which it sleeps; 0 while it does not

A round beyond `ROUNDS_MAX` is damage: the process that meets it begins a new round.
"""

from __future__ import annotations

import logging
import os
import secrets
import struct

from penstock.byte_lock import ByteLock
from penstock.delay.state_table import StateTable
from penstock.errors import TakenElsewhere
from penstock.files import Files
from penstock.locks import process
from penstock.wake import Hearer, Watch, watch

logger = logging.getLogger("penstock.delay")

_U64 = struct.Struct("<Q")
_ROUND_AT, _PID_AT, _ASLEEP_AT = 0, 8, 16
#: Locks lie behind anything that is ever written.
_FIRST_LOCK = 1 << 32
#: Nobody kicks more often.
ROUNDS_MAX = 1 << 48
#: A holder that is stopped (SIGSTOP) for so long is kicked by a process that waits for the lock.
STOPPED_S = 5.0
#: Sleeping with no end in sight.
FOREVER_MS = 2**63


class SchedulerLock:
    """One process's claim to schedule a folder."""

    def __init__(self, table: StateTable) -> None:
        self.path = os.path.join(table.folder, "scheduler")
        self._table = table
        self._files: Files = table.files
        self._fd = self._files.open(self.path, create=True)
        self._locks = ByteLock(self._fd)
        self._round: int | None = None
        #: (the process that is stopped, since when).
        self._stopped: tuple[int, float] | None = None

    @property
    def is_held(self) -> bool:
        """Whether this process took the lock; somebody may have kicked it since."""
        return self._round is not None

    def try_hold(self) -> bool:
        """Take the lock if nobody has it."""
        if self.is_held:
            return self.is_mine()
        if self._lock_round():
            return True
        self._kick_if_stopped()
        return self._lock_round()

    def is_mine(self) -> bool:
        """Whether this process still holds the lock: nobody has taken it over."""
        return self._round is not None and self._read(_ROUND_AT) == self._round

    def check(self) -> None:
        """Raise when this process does not have the lock any more."""
        if not self.is_mine():
            raise TakenElsewhere(
                "another process delivers these waiting messages now",
                hint="what was taken here and not finished is delivered again there",
            )

    def leave(self) -> None:
        """Release the lock."""
        held, self._round = self._round, None
        if held is not None:
            self._locks.unlock(_FIRST_LOCK + held)

    def kick(self) -> int:
        """Take the lock from its holder and return the holder's pid. It can finish nothing more."""
        self._read_round()  # which may have to begin a new one
        with self._table.lock.held():
            pid = self._read(_PID_AT)
            self._write(_ROUND_AT, self._read(_ROUND_AT) + 1)
        return pid

    def holder(self) -> int | None:
        """The pid of the process that holds the lock; None when nobody does."""
        if self.is_mine():
            return os.getpid()
        held = self._locks.is_held_elsewhere(_FIRST_LOCK + self._read_round())
        return self._read(_PID_AT) if held else None

    def sleep_until(self, due_ms: int) -> None:
        """Tell who stores messages from when on they need not wake the holder; 0: it is awake."""
        self._write(_ASLEEP_AT, due_ms)

    def asleep_until(self) -> int:
        """Return until when the scheduler sleeps, in milliseconds."""
        return self._read(_ASLEEP_AT)

    def watch(self, hear: Hearer) -> Watch:
        """Have `hear` called when the holder dies or leaves."""
        return watch(self.path, hear, closes=True)

    def close(self) -> None:
        """Close the file; in a forked child this leaves the parent its lock."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._round = None
            self._files.close(fd)

    def _lock_round(self) -> bool:
        number = self._read_round()
        if not self._locks.try_lock(_FIRST_LOCK + number):
            return False
        if self._read(_ROUND_AT) != number:  # kicked just now
            self._locks.unlock(_FIRST_LOCK + number)
            return False
        self._round, self._stopped = number, None
        self._write(_PID_AT, os.getpid())
        self._write(_ASLEEP_AT, 0)
        return True

    def _kick_if_stopped(self) -> None:
        pid, now = self._read(_PID_AT), self._table.clock.monotonic()
        if process(pid)[0] != "T":
            self._stopped = None
        elif self._stopped is None or self._stopped[0] != pid:
            self._stopped = (pid, now)
        elif now - self._stopped[1] >= STOPPED_S:
            self.kick()

    def _read_round(self) -> int:
        """The round; a new one where what stands there cannot be one."""
        found = self._read(_ROUND_AT)
        if found >= ROUNDS_MAX:
            with self._table.lock.held():
                found = self._read(_ROUND_AT)
                if found >= ROUNDS_MAX:
                    logger.error("%s is damaged: a new round begins", self.path, extra={"path": self.path})
                    found = secrets.randbelow(1 << 32)
                    self._write(_ROUND_AT, found)
        return found

    def _read(self, at: int) -> int:
        data = self._files.pread(self._fd, _U64.size, at)
        return int(_U64.unpack(data)[0]) if len(data) == _U64.size else 0

    def _write(self, at: int, number: int) -> None:
        self._files.pwrite(self._fd, _U64.pack(number), at)
