"""Files that kill their process, as kill -9 does, at the nth call that changes something."""

import os
import signal

from penstock import Files

_CHANGING = (
    "allocate", "make_dirs", "pwrite", "pwritev", "remove_dir", "rename", "sync", "sync_dir", "truncate",
    "unlink",
)  # fmt: skip


class Fuse:
    """Kills this very process at its nth burning."""

    def __init__(self, length: int) -> None:
        self.left = length

    def burn(self) -> None:
        self.left -= 1
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


def lethal_files(calls: int) -> Files:
    """Files of which so many changing calls are carried out; the next one kills."""
    fuse = Fuse(calls)

    class LethalFiles(Files):
        def open(self, path, *, create=False, write=True, exclusive=False):
            if create:
                fuse.burn()
            return super().open(path, create=create, write=write, exclusive=exclusive)

    def burning(name):
        carried_out = getattr(Files(), name)

        def call(self, *arguments):
            fuse.burn()
            return carried_out(*arguments)

        return call

    for name in _CHANGING:
        setattr(LethalFiles, name, burning(name))
    return LethalFiles()
