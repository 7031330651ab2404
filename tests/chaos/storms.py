"""Processes killed with -9 at any moment while they do everything, and power cuts at every file call.

The long forms of what tests/crash does shortly.
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import subprocess
import sys
import time

from tests.chaos.journey import Account, Journey, check
from tests.chaos.outcome import Outcome
from tests.crash.explore import look, points
from tests.crash.processes import ROOT
from tests.crash.scenario import Run
from tests.kit.patience import wait_until

_KILLS = 4
_STEPS = 24
#: So many steps of a journey are made before it says what is wrong.
_TELL_EACH = 10


def kills(folder: str, seed: int) -> Outcome:
    """Journeys that are killed, one behind the other on one store; what each told must be true in the end."""
    chance, account = random.Random(seed), Account()
    for number in range(_KILLS):
        told, store = os.path.join(folder, f"told{number}"), os.path.join(folder, "store")
        own = str(seed * 100 + number), str(account_seqno(account))
        process = subprocess.Popen([sys.executable, "-m", "tests.chaos.storms", store, told, *own], cwd=ROOT)
        wait_until(lambda told=told: os.path.exists(told) and os.path.getsize(told) > 0)
        time.sleep(chance.uniform(0, 0.5))
        process.send_signal(signal.SIGKILL)
        process.wait()
        read_told(told, account)
    problems = check(os.path.join(folder, "store"), account, crashed=True)
    promised = sum(map(len, account.promised.values()))
    return Outcome({"kills": _KILLS, "acknowledged": promised}, problems)


def account_seqno(account: Account) -> int:
    """The last seqno that was acknowledged to the producer."""
    return max(map(int, account.promised.get("sent", ())), default=0)


def read_told(path: str, account: Account) -> None:
    """Take in what a journey said before it died, in whole lines."""
    with open(path) as file:
        for line in file:
            if line.endswith("\n"):
                take_told(line, account)


def take_told(line: str | bytes, account: Account) -> None:
    """Take in one line of what a journey said."""
    what, kind, value = json.loads(line)
    if what == "problem":
        account.problems.append(value)
    else:
        (account.promise if what == "promise" else account.try_)(kind, value)


class TellingAccount(Account):
    """An account that is in a file before the journey goes on: it outlives a kill."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def try_(self, kind: str, value: str) -> None:
        self.tell("try", kind, value)

    def promise(self, kind: str, value: str) -> None:
        self.tell("promise", kind, value)

    def tell_problems(self) -> None:
        for problem in self.problems:
            self.tell("problem", "", problem)
        self.problems.clear()

    def tell(self, *line: str) -> None:
        os.write(self._fd, json.dumps(line).encode() + b"\n")


def power_cuts(folder: str, seed: int, each: int = 20) -> Outcome:
    """A traced run, and what is left of it after a crash at some of its calls: killed, torn, lost."""
    os.mkdir(os.path.join(folder, "run"))
    run = Run(os.path.join(folder, "run"), seed)
    trace = run.play(_STEPS)
    chance, images, problems = random.Random(seed), 0, list[str]()
    for point in points(trace.calls, random.Random(seed)):
        if chance.randrange(each) == 0:
            images += 1
            problems += look(os.path.join(folder, "crashed"), point, run.clock.now)
    return Outcome({"images": images}, problems)


def main() -> None:
    """A journey of so many steps, or without an end."""
    logging.disable(logging.CRITICAL)
    folder, told, seed, seqno, *steps = sys.argv[1:]
    account = TellingAccount(told)
    journey = Journey(folder, int(seed), account=account, last_seqno=int(seqno))
    left = int(steps[0]) if steps else sys.maxsize
    while left > 0:
        journey.play(min(left, _TELL_EACH))
        left -= _TELL_EACH
        account.tell_problems()
    journey.end()
    account.tell_problems()


if __name__ == "__main__":
    main()
