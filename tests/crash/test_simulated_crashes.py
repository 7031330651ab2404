"""A crash at every file call of a scripted run: kill -9, a torn write, a power cut.

After each, every promise made before it must hold (docs/RECOVERY.md; W000-2, W002-1, W004-07): what was
acknowledged is there, no offset is given twice, order is kept, writing and reading go on. The canaries
take one safeguard away and expect the same checks to notice.
"""

import functools
import logging
import os
import random
from collections.abc import Iterator
from typing import Any

import pytest

import penstock
from tests.crash.explore import explore_recovery, look, points
from tests.crash.scenario import STORE, HandClock, Run
from tests.crash.tracing import Trace, TracingFiles, traced_commits
from tests.kit.frames import Frame
from tests.kit.logs import ActiveSegment, DurableRecord, Producers, Repair, Syncer
from tests.kit.stores import Transactions

STEPS = 32


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Each crash logs what it finds; thousands of crashes fill the memory."""
    caplog.set_level(logging.CRITICAL + 1, "penstock")


def traced(scratch: str, seed: int, files: type[TracingFiles] = TracingFiles) -> tuple[Trace, int]:
    """The calls of a run, and what time it was at its end."""
    print(f"seed {seed}")
    folder = os.path.join(scratch, "run")
    os.mkdir(folder)
    run = Run(folder, seed, files)
    return run.play(STEPS), run.clock.now


def explored(
    scratch: str, seed: int, files: type[TracingFiles] = TracingFiles, *, each: int = 1
) -> Iterator[str]:
    """Everything that is wrong after any crash of one run, or after each third, say, by chance."""
    trace, now_ns = traced(scratch, seed, files)
    folder = os.path.join(scratch, "crashed")
    chance = random.Random(seed)
    for point in points(trace.calls, random.Random(seed)):
        if chance.randrange(each) == 0:
            yield from look(folder, point, now_ns)


def test_every_promise_holds_after_a_crash_at_a_third_of_all_calls(scratch):
    assert list(explored(scratch, seed=1, each=3)) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_every_promise_holds_after_a_crash_at_any_call(scratch, seed):
    assert list(explored(scratch, seed)) == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(100, 120))
def test_every_promise_holds_after_a_crash_at_any_call_of_many_runs(scratch, seed):
    assert list(explored(scratch, seed)) == []


def recovered(scratch: str, seed: int, count: int, *, each: int = 1) -> list[str]:
    """Everything that is wrong after any crash in the recovery from `count` crashes, or some of them."""
    trace, now_ns = traced(scratch, seed)
    folder = os.path.join(scratch, "crashed")
    chance = random.Random(seed)
    total = sum(1 for _ in points(trace.calls, random.Random(seed)))
    chosen = set(chance.sample(range(total), count))
    wrong: list[str] = []
    for number, point in enumerate(points(trace.calls, random.Random(seed))):
        if number in chosen:
            wrong += explore_recovery(folder, point, now_ns, chance, each=each)
    return wrong


def test_every_promise_holds_after_some_crashes_in_recovery(scratch):
    assert recovered(scratch, seed=3, count=1, each=2) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_promise_holds_after_a_crash_in_recovery(scratch):
    assert recovered(scratch, seed=3, count=1) == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(200, 210))
def test_every_promise_holds_after_a_crash_in_recovery_of_many_runs(scratch, seed):
    assert recovered(scratch, seed, count=60) == []


def crashed_twice(scratch: str, sync: str, seed: int) -> Iterator[str]:
    """What is wrong after every pair of crashes while a topic is made and gets its first message."""
    print(f"seed {seed}")
    folder, trace, clock = os.path.join(scratch, f"run{seed}"), Trace(), HandClock()
    os.mkdir(folder)
    with traced_commits(trace):
        files = TracingFiles(folder, trace)
        with penstock.open(os.path.join(folder, STORE), files=files, clock=clock) as store:
            topic = store.create_topic("orders", sync=sync)
            trace.mark("created", topic.id, "orders", 1, sync)
            trace.mark("attempt", topic.id, [b"first"])
            receipt = topic.write(b"first")
            trace.mark("acked", topic.id, 0, receipt.offset, b"first", sync)
    chance = random.Random(seed)
    for point in points(trace.calls, chance):
        if point.kind == "killed":
            crashed = os.path.join(scratch, "crashed")
            yield from explore_recovery(crashed, point, clock.now, chance, losses=3, each=3)


@pytest.mark.parametrize("sync", ["disk", "os"])
def test_a_first_message_is_safe_whatever_crash_follows_whatever_crash(scratch, sync):
    """What a process finds in memory after a kill may not be durable; it must not build on it."""
    assert list(crashed_twice(scratch, sync, seed=1)) == []


# Canaries: with a safeguard gone the checks above must find something.


class UnsyncedFiles(TracingFiles):
    """A disk that says it synced and did not."""

    def sync(self, fd: int) -> None:
        pass


class UnsyncedFolders(TracingFiles):
    """A file system whose folders are never made durable."""

    def sync_dir(self, path: str) -> None:
        pass


@pytest.mark.parametrize("files", [UnsyncedFiles, UnsyncedFolders])
def test_canary_a_disk_that_does_not_sync_is_noticed(scratch, files):
    assert any("acknowledged" in found for found in explored(scratch, 1, files))


def _sync_nothing(self: Syncer, target: int, cuts: int | None = None) -> None:
    """Acknowledge without the disk, and tell readers that all is durable."""
    a, durable = self._folder.read_append(), self._folder.read_durable()
    assert a is not None
    assert isinstance(durable, DurableRecord)
    self._folder.publish_durable(durable._replace(end=a.next, segment=a.segment, byte=a.byte))


def _commit_lightly(self: Transactions, *args: Any, **options: Any) -> None:
    """Write the record of a transaction, and do not wait for the disk."""
    database, transaction = self._database, self._database.transaction
    database.transaction = functools.partial(transaction, durable=False)  # type: ignore[method-assign]
    try:
        _COMMIT(self, *args, **options)
    finally:
        database.transaction = transaction  # type: ignore[method-assign]


_COMMIT = Transactions.commit


@pytest.mark.parametrize(
    ("owner", "name", "broken", "symptom"),
    [
        (Syncer, "sync", _sync_nothing, "acknowledged"),
        (Frame, "check_body", lambda self: True, ""),
        (ActiveSegment, "reserve", lambda self, a, stop: a, "is not behind"),
        (Repair, "finish_transactions", lambda self, ends: ends, "transaction"),
        (Producers, "admit", lambda self, claim, a, durable: None, "twice"),
        pytest.param(Transactions, "commit", _commit_lightly, "moves to", marks=pytest.mark.slow),
    ],
)
def test_canary_a_missing_safeguard_is_noticed(scratch, monkeypatch, owner, name, broken, symptom):
    seeds = range(4, 12)  # the first of them shows most of it soon
    monkeypatch.setattr(owner, name, broken)
    for seed in seeds:
        folder = os.path.join(scratch, str(seed))
        os.mkdir(folder)
        try:
            if any(symptom in found for found in explored(folder, seed)):
                return
        except AssertionError:  # the run saw it by itself, before any crash
            return
    pytest.fail(f"nobody noticed that {name} was missing")
