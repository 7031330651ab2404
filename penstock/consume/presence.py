"""Which readers of queues live: each holds the lock on a byte of its own, which the kernel frees with it."""

from __future__ import annotations

import os
import secrets

from penstock.files import Files
from penstock.locks import ByteLock

_NAME = "queue-readers"


class Presence:
    """One reader, as others see it in each topic that it reads."""

    def __init__(self, folders: list[str], files: Files) -> None:
        #: Tells it from any other reader, ever.
        self.member = secrets.randbits(62) | 1
        self._files = files
        self._fds: dict[str, int] = {}
        try:
            for folder in folders:
                fd = self._fds[folder] = files.open(os.path.join(folder, _NAME), create=True)
                ByteLock(fd).try_lock(self.member)
        except BaseException:
            self.close()
            raise

    def is_alive(self, folder: str, member: int) -> bool:
        """Whether another reader of a topic lives."""
        return ByteLock(self._fds[folder]).is_held_elsewhere(member)

    def close(self) -> None:
        """Also in a forked child, where closing leaves the parent its locks."""
        fds, self._fds = self._fds, {}
        for fd in fds.values():
            self._files.close(fd)
