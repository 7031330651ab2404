"""`make chaos SEED=1 MINUTES=5`: every scenario by turns, each time with another seed, until time is up.

Says how often each ran and what it counted; ends with an error, and the seed that shows it, when something is
wrong. A scenario is a function of a folder and a seed that returns an `Outcome`, with a line in SCENARIOS.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable

from tests.chaos.io_errors import io_errors
from tests.chaos.mutations import mutations
from tests.chaos.outcome import Outcome
from tests.chaos.storms import kills, power_cuts
from tests.chaos.system_cuts import system_cuts
from tests.chaos.system_errors import system_errors
from tests.crash.system_calls import why_not

Scenario = Callable[[str, int], Outcome]
SCENARIOS: dict[str, Scenario] = {
    "io errors": io_errors,
    "mutations": mutations,
    "kills": kills,
    "power cuts": power_cuts,
    "system errors": system_errors,
    "system cuts": system_cuts,
}
#: These look at system calls.
BY_STRACE = ("system errors", "system cuts")
#: How often one runs in a turn, where that is more than once: they are quick.
_OFTEN = {"io errors": 12, "mutations": 6, "system errors": 3}
#: A run that takes longer hangs: where is printed, and the run ends.
_HANGS_S = 300


def run_one(name: str, seed: int) -> Outcome:
    """One run of a scenario, in a folder of its own, in memory where there is room."""
    room = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = tempfile.mkdtemp(prefix="penstock-chaos-", dir=room)
    faulthandler.dump_traceback_later(_HANGS_S, exit=True)
    try:
        return SCENARIOS[name](folder, seed)
    finally:
        faulthandler.cancel_dump_traceback_later()
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--only", nargs="*", choices=sorted(SCENARIOS), default=list(SCENARIOS))
    asked = parser.parse_args()
    if reason := why_not():
        print(f"left out: {', '.join(BY_STRACE)} ({reason})")
        asked.only = [name for name in asked.only if name not in BY_STRACE]
    logging.disable(logging.CRITICAL)
    figures: dict[str, Counter[str]] = {name: Counter() for name in asked.only}
    seed, end, problems = asked.seed, time.monotonic() + 60 * asked.minutes, 0
    while time.monotonic() < end:
        for name in asked.only:
            often = _OFTEN.get(name, 1)
            for own in range(seed * often, seed * often + often):
                outcome = run_one(name, own)
                figures[name].update({"runs": 1, **outcome.figures})
                for problem in outcome.problems:
                    problems += 1
                    print(f"{name}, seed {own}: {problem}", flush=True)
        seed += 1
    print(f"seeds {asked.seed} to {seed - 1}, {problems} problems")
    for name, counted in figures.items():
        print(f"{name}: " + ", ".join(f"{what} {count:,}" for what, count in sorted(counted.items())))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
