"""Disks that misbehave when told to."""

import errno
import os
import threading

from penstock import Files


class Disk(Files):
    """A real disk with switches: it can be full, fail to sync, or take its time."""

    def __init__(self):
        self.is_full = False
        self.sync_fails = False
        self._may_sync = threading.Event()
        self._may_sync.set()
        #: How often data was synced.
        self.syncs = 0

    def stop_syncing(self):
        """Syncs wait until `go_on_syncing`."""
        self._may_sync.clear()

    def go_on_syncing(self):
        self._may_sync.set()

    def pwritev(self, fd, parts, at):
        self._refuse_full()
        return super().pwritev(fd, parts, at)

    def allocate(self, fd, at, length):
        self._refuse_full()
        super().allocate(fd, at, length)

    def sync(self, fd):
        self._may_sync.wait(30)
        if self.sync_fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.syncs += 1
        super().sync(fd)

    def _refuse_full(self):
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
