"""An I/O error at the Nth call of a kind, once or from then on, over a journey.

The journey goes on with the same open store after the disk is well again, and everything it was promised must
be there. SQLite makes its own calls for `state.db`: those are refused in tests/crash/test_commit_outcomes.py.
"""

from __future__ import annotations

import errno
import os
import random
import threading
from typing import Any, NamedTuple

from tests.chaos.journey import Journey, check
from tests.chaos.outcome import Outcome
from tests.kit.system import Files

_WRITING = ("create", "pwrite", "pwritev", "allocate", "truncate", "rename", "unlink", "make_dirs")
#: Which error which call may meet.
KINDS: dict[int, tuple[str, ...]] = {
    errno.EIO: (*_WRITING, "sync", "sync_dir", "pread", "open", "map", "listdir"),
    errno.ENOSPC: ("create", "pwrite", "pwritev", "allocate", "make_dirs", "rename"),
    errno.EROFS: _WRITING,
    errno.EMFILE: ("create", "open", "sync_dir", "listdir"),
}


class Fault(NamedTuple):
    """Which call fails, and how."""

    call: str
    number: int
    errno: int
    sticky: bool

    def __str__(self) -> str:
        often = "from then on" if self.sticky else "once"
        return f"{errno.errorcode[self.errno]} at {self.call} {self.number}, {often}"


class FaultyFiles(Files):
    """The operating system's files, until the fault comes."""

    def __init__(self) -> None:
        self.fault: Fault | None = None
        self.met = 0
        self._seen = 0
        self._mutex = threading.Lock()

    def arm(self, fault: Fault | None) -> None:
        """Let it come from now on, or never again."""
        with self._mutex:
            self.fault, self._seen = fault, 0

    def _ask(self, call: str) -> None:
        with self._mutex:
            fault = self.fault
            if fault is None or fault.call != call:
                return
            self._seen += 1
            if self._seen == fault.number or (fault.sticky and self._seen > fault.number):
                self.met += 1
                raise OSError(fault.errno, os.strerror(fault.errno))

    def open(self, path: str, *, create: bool = False, write: bool = True, exclusive: bool = False) -> int:
        self._ask("create" if create and not os.path.exists(path) else "open")
        return super().open(path, create=create, write=write, exclusive=exclusive)


def _faulty(name: str) -> Any:
    def call(self: FaultyFiles, *args: Any, **options: Any) -> Any:
        self._ask(name)
        return getattr(super(FaultyFiles, self), name)(*args, **options)

    return call


for _name in ("pread", "pwrite", "pwritev", "allocate", "truncate", "rename", "unlink", "make_dirs", "sync",
              "sync_dir", "map", "listdir"):  # fmt: skip
    setattr(FaultyFiles, _name, _faulty(_name))


def chosen_fault(chance: random.Random) -> Fault:
    number = chance.choice(list(KINDS))
    call = chance.choice(KINDS[number])
    return Fault(call, chance.choice((1, 2, 3, 5, 8, 13, 40)), number, chance.random() < 0.4)


def io_errors(folder: str, seed: int, steps: int = 25) -> Outcome:
    """One journey with one fault in its middle."""
    chance = random.Random(seed)
    fault, files = chosen_fault(chance), FaultyFiles()
    journey = Journey(folder, seed, files)
    journey.play(steps // 2)
    files.arm(fault)
    journey.play(steps)
    files.arm(None)
    met = dict(journey.account.errors)
    journey.play(steps // 2)
    journey.end()
    problems = [f"{fault}: {each} (errors met: {met})" for each in check(folder, journey.account)]
    return Outcome({"faults": files.met}, problems)
