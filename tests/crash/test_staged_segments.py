"""A committed transaction of several files, through two power cuts in a row (S001-63).

The first comes after the commit: recovery copies one file into the empty segment and makes segments of the
others. The second comes when readers were shown all of it, so all of it must be on the disk by then.
"""

import copy
import logging
import os
import random

import pytest

import penstock
from tests.crash.checker import put
from tests.crash.disk import Disk
from tests.crash.explore import points
from tests.crash.scenario import STORE, HandClock
from tests.crash.tracing import BootFiles, Trace, TracingFiles, traced_commits
from tests.kit.frames import frame_encode_module
from tests.kit.logs import append_module, staging_module

VALUES = [b"%04d" % number + bytes(200) for number in range(60)]
POWER_CUTS = 8


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL + 1, "penstock")


@pytest.fixture(autouse=True)
def small_files(monkeypatch):
    """So that a few kilobytes are several files, and too many to be copied."""
    monkeypatch.setattr(frame_encode_module, "FRAME_MESSAGES", 3)
    monkeypatch.setattr(staging_module, "INLINE_BYTES", 400)
    for module in (staging_module, append_module):
        monkeypatch.setattr(module, "ADOPT_BYTES", 900)


def committed(folder, sync):
    """The calls of a run that commits one transaction to a new topic."""
    trace = Trace()
    with traced_commits(trace):
        files = TracingFiles(folder, trace)
        with penstock.open(os.path.join(folder, STORE), files=files, clock=HandClock()) as store:
            store.create_topic("orders", segment_bytes=4096, sync=sync)
            began = len(trace)
            with store.transaction() as tx:
                for value in VALUES:
                    tx.write("orders", value)
    return trace, began


def values(folder, files, trace=None):
    """All there is; and the calls that were made until it was shown, before the store is closed."""
    with penstock.open(os.path.join(folder, STORE), files=files, clock=HandClock()) as store:
        found = [message.value for message in store.topic("orders").scan().messages()]
        return found, [] if trace is None else list(trace.calls)


@pytest.mark.parametrize("sync", ["disk", "os"])
def test_what_recovery_has_shown_survives_the_next_power_cut(scratch, sync):
    run, crashed = os.path.join(scratch, "run"), os.path.join(scratch, "crashed")
    os.mkdir(run)
    trace, began = committed(run, sync)
    chance, recoveries = random.Random(1), 0
    for point in points(trace.calls, random.Random(1)):
        if point.index < began or point.kind != "lost":
            continue
        put(point.disk.as_killed(), crashed)
        again = Trace()
        with traced_commits(again):
            files = TracingFiles(crashed, again, boot=point.boot, nodes=point.disk.nodes())
            shown, calls = values(crashed, files, again)
        assert shown in ([], VALUES), f"{point}: a part of a transaction"
        if not shown:
            continue
        recoveries += 1
        disk = copy.deepcopy(point.disk)
        for call in calls:
            disk.apply(call)
        for _ in range(POWER_CUTS):
            put(Disk.holding(disk.as_lost(chance)).as_killed(), crashed)
            left, _ = values(crashed, BootFiles(point.boot + 1))
            if sync == "disk":
                assert left == VALUES, f"{point}, then another: {len(left)} of {len(VALUES)} are left"
            else:
                assert left == VALUES[: len(left)]
    assert recoveries > 5
