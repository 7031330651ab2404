"""`key_retention` belongs to the topic: it outlives the process that set it, and reaches all others."""

import signal
import subprocess
import sys
import time

import pytest

import penstock
from tests.crash.processes import ROOT
from tests.kit.patience import PATIENCE_S
from tests.kit.system import CommandClock

ALTERS = """
import sys, penstock
from tests.kit.system import CommandClock
store = penstock.open(sys.argv[1], clock=CommandClock())
store.topic("t").alter(key_retention={"a*": "1ns"})
print("done", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("sync", ["disk", "os"])
def test_lifetimes_given_by_a_process_that_was_killed_hold_for_all(tmp_path, sync):
    with penstock.open(tmp_path / "data", clock=CommandClock()) as store:  # what expired stays to be counted
        topic = store.create_topic("t", index="key", sync=sync, segment_bytes=4096)
        topic.write_many([b"x" * 50] * 300, keys=["a1", "a2", "b"] * 100)
        assert len(topic.read(key="a1")) == 100
        process = subprocess.Popen(
            [sys.executable, "-c", ALTERS, store.path], cwd=ROOT, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        with process:
            assert process.stdout.readline() == "done\n"
            process.send_signal(signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE_S
        while len(topic.read(key="a1")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert len(topic.read()) == len(topic.read(key="b")) == 100
        assert len(topic.expired()) == 200
    with penstock.open(tmp_path / "data") as store:
        assert {message.key for message in store.topic("t").scan().messages()} == {b"b"}
