"""Waiting messages survive a crash at every file call: none is lost, none comes early, none is made up.

S003-15 to S003-23, B003-15: states and records are recovered from whatever a kill or a power cut leaves.
"""

import os
import random

import pytest

from tests.crash.checker import put
from tests.crash.explore import points
from tests.crash.tracing import BootFiles
from tests.crash.waiting_scenario import FOLDER, Promises, Scenario, problems
from tests.kit.waiting import Chain, NewRecord, Scheduler, StateTable, columns
from tests.kit.waiting import file_names_module as file_names
from tests.kit.waiting import file_repair_module as file_repair


def explored(scratch, seed, *, sync="disk", steps=60, every=1):
    """What is wrong after a crash at each call (or each n-th) of a run."""
    run, after = os.path.join(scratch, "run"), os.path.join(scratch, "after")
    os.makedirs(run, exist_ok=True)
    scenario = Scenario(run, seed, sync=sync, steps=steps)
    scenario.run()
    chance = random.Random(seed)
    for number, point in enumerate(points(scenario.trace.calls, chance, promises=Promises())):
        if number % every == 0:
            put(point.disk.as_killed(), after)
            os.makedirs(os.path.join(after, FOLDER), exist_ok=True)
            now_ns = scenario.clock.now_ns()
            for found in problems(after, point.promises, BootFiles(point.boot), now_ns):
                yield f"{point}: {found}"


@pytest.mark.parametrize("sync", ["disk", "os"])
@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_lost_by_a_crash_at_any_call(scratch, seed, sync):
    assert list(explored(scratch, seed, sync=sync, every=3)) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 16))
def test_nothing_is_lost_by_a_crash_at_any_call_of_longer_runs(scratch, seed):
    assert list(explored(scratch, seed, steps=100)) == []


def _cut_nothing(folder, name, files):
    with open(file_names.data_path(folder, name), "rb") as file:
        return len(file.read())


def _append_to_old_files(self):
    """After a power cut: go on in the files that were written then."""


def _finish_first(self):
    """Hop in the wrong order: leave the file, then store."""
    hopped, self._hops = self._hops, []
    now = self._table.now_ms()
    self._move(self._mark(hopped))
    entries = [NewRecord(max(t.due - now, 0), t.id, t.topic, t.attempts, t.data) for t in hopped]
    self._store(columns(entries), now, False)


#: Scenarios are the same for the same seed; these are the quickest to show a broken hop, then some more.
SHOWS_MOST = (2, 6, 7, 3, 0, 1, 4, 5)


@pytest.mark.parametrize(
    ("owner", "name", "broken", "symptom"),
    [
        (Chain, "sync", lambda self, place: None, "is lost"),
        (StateTable, "_recover", _append_to_old_files, ""),
        (file_repair, "cut_torn_tail", _cut_nothing, "damage"),
        (Scheduler, "_hop", _finish_first, "is lost"),
    ],
)
def test_canary_a_missing_safeguard_is_noticed(scratch, monkeypatch, owner, name, broken, symptom):
    monkeypatch.setattr(owner, name, broken)
    for seed in SHOWS_MOST:
        folder = os.path.join(scratch, str(seed))
        os.mkdir(folder)
        if any(symptom in found for found in explored(folder, seed, every=2)):
            return
    pytest.fail(f"nobody noticed that {name} was broken")
