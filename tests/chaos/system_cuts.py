"""Power cuts between the system calls of a real process: ours, and those that SQLite makes for `state.db`.

A journey runs below strace and says in the same log what it was promised. Then the folder is made as a kill,
or a cut, before some of the calls may leave it, and all that had been promised by then must be there.
"""

from __future__ import annotations

import os
import random
import sys

from tests.chaos.journey import Account, check
from tests.chaos.outcome import Outcome
from tests.chaos.storms import take_told
from tests.crash.checker import put
from tests.crash.disk import Call, Disk
from tests.crash.processes import ROOT
from tests.crash.system_calls import calls, record
from tests.crash.tracing import BootFiles

_STEPS = 25
#: Not the boot of this machine.
_NEXT_BOOT = BootFiles(77)


def recorded(folder: str, seed: int) -> list[Call]:
    """The calls of a journey in the folder `root`, with what it said as marks."""
    root, told, log = (os.path.join(folder, name) for name in ("root", "told", "log"))
    os.mkdir(root)
    journey = [sys.executable, "-m", "tests.chaos.storms", os.path.join(root, "store"), told, str(seed), "0"]
    ended = record([*journey, str(_STEPS)], log, cwd=ROOT)
    assert ended == 0, f"the journey ended with {ended}"
    found = [call for call in calls(log, root) if call[0] != "mark" or call[1] == told]
    os.unlink(log)
    return found


def system_cuts(folder: str, seed: int, images: int = 25) -> Outcome:
    """One journey, and some of the ways in which it may have ended."""
    made, account, disk = recorded(folder, seed), Account(), Disk()
    chance, problems = random.Random(seed), list[str]()
    chosen = set(chance.sample(range(len(made)), images))
    crashed = os.path.join(folder, "crashed")
    for index, call in enumerate(made):
        if index in chosen:
            is_cut = chance.random() < 0.8
            put(disk.as_lost(chance) if is_cut else disk.as_killed(), crashed)
            found = check(
                os.path.join(crashed, "store"), account, _NEXT_BOOT if is_cut else None, crashed=True
            )
            how = "cut" if is_cut else "killed"
            problems += [f"{how} before call {index} of {len(made)}, {call[:2]}: {each}" for each in found]
        if call[0] == "mark":
            take_told(call[2], account)
        else:
            disk.apply(call)
    problems += _differences(disk, os.path.join(folder, "root"))
    return Outcome({"system calls": len(made), "images": images}, problems)


def _differences(disk: Disk, root: str) -> list[str]:
    """Where the folder is not as the calls have made it: then some were not seen."""
    image, there = disk.as_killed(), set[str]()
    for parent, folders, names in os.walk(root):
        there |= {os.path.relpath(os.path.join(parent, name), root) for name in (*folders, *names)}
    there = {path for path in there if not path.endswith("-shm")}
    found = [f"calls that were not seen: {path}" for path in sorted(there ^ set(image))]
    for path, data in image.items():
        if data is not None and path in there:
            with open(os.path.join(root, path), "rb") as file:
                if file.read() != data:
                    found.append(f"calls that were not seen: the bytes of {path}")
    return found
