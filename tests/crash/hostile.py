"""Files on a disk that runs full, refuses to sync, or does half of what it was asked."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from tests.crash.tracing import FIRST_BOOT, BootFiles


class HostileFiles(BootFiles):
    """Real files; before each call that needs room or the disk, `decide` may refuse it.

    `decide` gets the name of the call and the path, and returns an errno to fail with, or 0.
    """

    def __init__(
        self, decide: Callable[[str, str], int] = lambda call, path: 0, boot: int = FIRST_BOOT
    ) -> None:
        super().__init__(boot)
        self.decide = decide
        self.calls = 0

    def open(self, path: str, *, create: bool = False, write: bool = True, exclusive: bool = False) -> int:
        if create and not os.path.exists(path):
            self._ask("create", path)
        return super().open(path, create=create, write=write, exclusive=exclusive)

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, at: int) -> int:
        self._ask("write", fd)
        return super().pwrite(fd, data, at)

    def pwritev(self, fd: int, parts: list[bytes | bytearray | memoryview], at: int) -> int:
        try:
            self._ask("write", fd)
        except OSError:
            data = b"".join(parts)
            super().pwrite(fd, data[: len(data) // 2], at)  # a disk runs full in the middle of a write
            raise
        return super().pwritev(fd, parts, at)

    def allocate(self, fd: int, at: int, length: int) -> None:
        self._ask("allocate", fd)
        super().allocate(fd, at, length)

    def sync(self, fd: int) -> None:
        self._ask("sync", fd)
        super().sync(fd)

    def sync_dir(self, path: str) -> None:
        self._ask("sync_dir", path)
        super().sync_dir(path)

    def _ask(self, call: str, place: str | int) -> None:
        self.calls += 1
        path = os.readlink(f"/proc/self/fd/{place}") if isinstance(place, int) else place
        refusal = self.decide(call, path)
        if refusal:
            raise OSError(refusal, os.strerror(refusal))


def nth(number: int, calls: tuple[str, ...], refusal: int = errno.ENOSPC) -> Callable[[str, str], int]:
    """Refuse the call of that number, counted among `calls`, from 0."""
    left = [number]

    def decide(call: str, path: str) -> int:
        if call not in calls:
            return 0
        left[0] -= 1
        return refusal if left[0] == -1 else 0

    return decide
