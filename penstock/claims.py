"""A file that one process has for itself as long as it lives; the kernel frees it with the process."""

from __future__ import annotations

import fcntl
import os
import time

from penstock.locks import flock_holder

_PAUSE_S = 0.05


class Claimed(Exception):
    """Another process has the file; `pid` is it, as far as it is known."""

    def __init__(self, pid: int | None) -> None:
        super().__init__(pid)
        self.pid = pid

    def __str__(self) -> str:
        return f" (process {self.pid})" if self.pid is not None else ""


def claim(path: str, wait_s: float = 0.0) -> int:
    """Have a file for this process, made if need be; closing what is returned lets go of it.

    Raises `Claimed` when another process has it for longer than `wait_s`.
    """
    os.makedirs(os.path.dirname(path), exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except BlockingIOError:
            if time.monotonic() >= deadline:
                pid = flock_holder(fd)
                os.close(fd)
                raise Claimed(pid) from None
        except BaseException:
            os.close(fd)
            raise
        time.sleep(_PAUSE_S)
