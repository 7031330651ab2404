"""An I/O error at the Nth system call on `state.db` and SQLite's log of it, which no seam of ours sees.

strace refuses the calls: once, some in a row, or from then on. The journey may meet errors of ours, and no
others; a process on a disk that is well finds everything that was promised.
"""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys

from tests.chaos.journey import Account, check
from tests.chaos.outcome import Outcome
from tests.chaos.storms import read_told
from tests.crash.processes import ROOT

_STEPS = 30
_DATABASE = ("state.db", "state.db-wal", "state.db-shm", "state.db-journal")
#: Which error which call may meet.
KINDS: dict[int, tuple[str, ...]] = {
    errno.EIO: ("pread64", "pwrite64", "fdatasync", "ftruncate", "openat"),
    errno.ENOSPC: ("pwrite64", "fdatasync", "ftruncate", "openat"),
    errno.EROFS: ("pwrite64", "ftruncate", "openat"),
    errno.EMFILE: ("openat",),
}
_AT = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89)
#: How long it lasts: for so many calls; 0 is for good.
_FOR = (1, 4, 0)


def chosen_fault(chance: random.Random) -> tuple[str, str, str]:
    """Which call fails, how, and when: as strace says it."""
    number = chance.choice(list(KINDS))
    first, lasting = chance.choice(_AT), chance.choice(_FOR)
    when = f"{first}+" if not lasting else f"{first}..{first + lasting - 1}"
    return chance.choice(KINDS[number]), errno.errorcode[number], when


def system_errors(folder: str, seed: int) -> Outcome:
    """One journey with one fault below SQLite."""
    chance = random.Random(seed)
    call, error, when = chosen_fault(chance)
    store, told, log = (os.path.join(folder, name) for name in ("store", "told", "log"))
    watched = [part for name in _DATABASE for part in ("-P", os.path.join(store, name))]
    subprocess.run(
        [
            "strace", "-f", "-qq", "-o", log, *watched, "-e", f"trace={call}",
            "-e", f"inject={call}:error={error}:when={when}",
            sys.executable, "-m", "tests.chaos.storms", store, told, str(seed), "0", str(_STEPS),
        ],
        cwd=ROOT, check=True,
    )  # fmt: skip
    with open(log) as file:
        met = sum("(INJECTED)" in line for line in file)
    account = Account()
    read_told(told, account)
    problems = [f"{error} at {call} {when}: {each}" for each in check(store, account, crashed=True)]
    return Outcome({"faults": met, "acknowledged": sum(map(len, account.promised.values()))}, problems)
