"""Pushers that are killed: what they were told is there, what they pushed together is there together."""

import os
import signal
import subprocess
import sys

import penstock
from tests.crash.processes import ROOT
from tests.kit.patience import PATIENCE_S

PUSHER = """
import itertools, os, sys, penstock
with penstock.open(sys.argv[1]) as store:
    events = store.events()
    for number in itertools.count():
        size = 400_000 if number % 10 == 9 else 10
        data = [number, "x" * size]
        pushed = events.push_many([(["a", number], data), (["b", number], data), (["c", number], data)])
        os.write(1, b"%d %d\\n" % (number, pushed.first))
"""


def test_events_pushed_together_are_there_together_and_acknowledged_ones_stay(scratch):
    """B002-01, S002-04."""
    folder = os.path.join(scratch, "store")
    for round_ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", PUSHER, folder], stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        told = [tuple(map(int, process.stdout.readline().split())) for _ in range(15 + round_)]
        process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate(timeout=PATIENCE_S)
        told += [tuple(map(int, line.split())) for line in rest.splitlines() if line.count(" ") == 1]
        with penstock.open(folder) as store:
            events = store.events()
            answer = events.subscribe(prefixes=[[]], rewind=10_000, limit=10_000)
            found = [(event.id, event.key[0], event.data[0]) for event in answer.events]
            assert [each[0] for each in found] == list(range(1, len(found) + 1))
            for first in range(0, len(found), 3):
                number = found[first][2]
                assert [each[1:] for each in found[first : first + 3]] == [(name, number) for name in "abc"]
            starts = {(each[2], each[0]) for each in found if each[1] == "a"}
            assert set(told) <= starts
            for number, first in told[-3:]:
                assert first in [event.id for event in events.subscribe([["a", number]], rewind=9).events]
