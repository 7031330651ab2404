"""Locks on single bytes of a file, by which many processes tell each other apart in one file."""

from __future__ import annotations

import errno
import fcntl
import os
import struct


class ByteLock:
    """Shared or exclusive locks on single bytes of a file, owned by the open file (OFD locks).

    They live beside a flock of the same file without touching it.
    """

    _FLOCK = struct.Struct("hhqqi4x")
    _SET = getattr(fcntl, "F_OFD_SETLK", 37)
    _GET = getattr(fcntl, "F_OFD_GETLK", 36)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def try_lock(self, byte: int, *, shared: bool = False) -> bool:
        """Take the byte if nobody holds it in a way that conflicts."""
        try:
            self._call(self._SET, fcntl.F_RDLCK if shared else fcntl.F_WRLCK, byte)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        return True

    def unlock(self, byte: int) -> None:
        """Release the byte."""
        self._call(self._SET, fcntl.F_UNLCK, byte)

    def is_held_elsewhere(self, byte: int) -> bool:
        """Whether an exclusive lock would be refused now."""
        answer = self._call(self._GET, fcntl.F_WRLCK, byte)
        kind: int = self._FLOCK.unpack(answer)[0]
        return kind != fcntl.F_UNLCK

    def held_elsewhere(self, first: int, stop: int) -> set[int]:
        """Which bytes from `first` up to `stop` others hold; takes nothing."""
        held: set[int] = set()
        spans = [(first, stop)]
        while spans:
            begin, end = spans.pop()
            if begin >= end:
                continue
            kind, _, at, length, _ = self._FLOCK.unpack(
                self._call(self._GET, fcntl.F_WRLCK, begin, end - begin)
            )
            if kind == fcntl.F_UNLCK:
                continue
            behind = min(at + length, end) if length else end
            held.update(range(max(at, begin), behind))
            spans += [(begin, at), (behind, end)]  # the kernel names one lock, not the first
        return held

    def _call(self, command: int, kind: int, byte: int, count: int = 1) -> bytes:
        result = fcntl.fcntl(self._fd, command, self._FLOCK.pack(kind, os.SEEK_SET, byte, count, 0))
        assert isinstance(result, bytes)
        return result
