"""A short form of each scenario of `make chaos`, and canaries that it would notice."""

import errno
import logging
import os
import random

import pytest

import penstock
from tests.chaos import io_errors, mutations, system_cuts, system_errors
from tests.chaos.__main__ import BY_STRACE, SCENARIOS, run_one
from tests.chaos.journey import ORDERS, Account, Journey, check
from tests.crash.system_calls import why_not
from tests.require import absent, require


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL + 1, "penstock")


def needs_strace():
    require("strace")
    if reason := why_not():
        absent("strace", reason)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_nothing_is_wrong(name, seed):
    if name in BY_STRACE:
        needs_strace()
    outcome = run_one(name, seed)
    assert list(outcome.problems) == []
    assert outcome.figures


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1100))
def test_no_io_error_does_harm(seed):
    """Every kind of call, with every error, once and for good."""
    assert list(run_one("io errors", seed).problems) == []


def test_faults_of_every_kind_are_chosen():
    chance = random.Random(1)
    chosen = {(fault.errno, fault.call) for fault in (io_errors.chosen_fault(chance) for _ in range(2000))}
    assert chosen == {(number, call) for number, calls in io_errors.KINDS.items() for call in calls}


def test_faults_below_sqlite_of_every_kind_are_chosen():
    chance = random.Random(1)
    chosen = {fault[:2] for fault in (system_errors.chosen_fault(chance) for _ in range(2000))}
    assert chosen == {
        (call, errno.errorcode[number]) for number, calls in system_errors.KINDS.items() for call in calls
    }


def test_canary_a_disk_that_syncs_nothing_is_noticed_in_the_system_calls(tmp_path, monkeypatch):
    needs_strace()
    record = system_cuts.recorded
    unsynced = ("sync", "sync_folder")
    monkeypatch.setattr(
        system_cuts, "recorded", lambda *given: [call for call in record(*given) if call[0] not in unsynced]
    )
    outcome = system_cuts.system_cuts(str(tmp_path), 1, images=20)
    assert any("acknowledged and lost" in each or "opened again" in each for each in outcome.problems)


def test_canary_what_is_lost_and_what_is_twice_is_noticed(tmp_path):
    journey = Journey(str(tmp_path), 1)
    journey.play(30)
    journey.end()
    assert check(str(tmp_path), journey.account) == []
    journey.account.promise(ORDERS, "never written")
    with penstock.open(tmp_path) as store:
        store.topic(ORDERS).write("a stranger")
        store.topic(ORDERS).write(sorted(journey.account.promised[ORDERS])[0])
    found = " ".join(check(str(tmp_path), journey.account))
    assert "acknowledged and lost" in found
    assert "never written: ['a stranger']" in found
    assert "twice" in found


def test_canary_a_file_of_messages_that_vanishes_without_a_word_is_noticed(tmp_path, monkeypatch):
    account = Account()
    with penstock.open(tmp_path) as store:
        for name in ("orders", "audit", "sent", "split", "keyed"):
            store.create_topic(name, index="key")
    account.promise("keyed", "a message that nobody wrote")
    look = mutations.Look(str(tmp_path), account)
    look.look()
    mutation = mutations.Mutation(".data", "topics/keyed", "remove")
    outcome, problems = mutations.judged(mutation, look)
    assert outcome == "silent"
    assert "lost in silence" in problems[0]


def test_every_kind_of_file_is_there(tmp_path):
    """The store that is mutated has a file of each kind, but for what a test cannot leave behind."""
    seen = set()
    for seed in (1, 2):
        mutations.rich_store(os.path.join(tmp_path, str(seed)), seed)
        seen |= set(mutations.kinds_seen(os.path.join(tmp_path, str(seed))))
    assert {kind for kind, _ in mutations.KINDS} - seen <= {".staged"}
    assert "other" not in seen
