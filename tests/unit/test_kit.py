"""What tests share does what it says: processes end with their test, Ctrl-C is heeded, waiting has an end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import processes
from tests.kit.patience import wait_until

ROOT = Path(__file__).parents[2]
SLEEP = [sys.executable, "-c", "import signal; signal.pause()"]


@pytest.mark.parametrize("options", [{}, {"start_new_session": True}], ids=["child", "group"])
def test_a_process_that_still_runs_is_ended(options):
    process = processes.start(SLEEP, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)
    processes.end_all()
    assert process.returncode == -signal.SIGKILL
    assert process.stdin.closed
    assert process.stdout.closed
    processes.end_all()  # nothing is left to be ended


def test_input_that_nobody_took_does_no_harm():
    process = processes.start(SLEEP, stdin=subprocess.PIPE)
    process.stdin.write(b"unread")
    process.kill()
    process.wait()
    processes.end_all()
    assert process.returncode == -signal.SIGKILL


def test_ctrl_c_is_heeded_also_in_the_background_of_a_shell():
    """A shell without job control has SIGINT ignored in what it starts with `&`, and children inherit it."""
    code = "from tests.kit.processes import heed_ctrl_c, signal; heed_ctrl_c(); print(signal.getsignal(2))"

    def ignoring() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    told = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=True, preexec_fn=ignoring,
    ).stdout  # fmt: skip
    assert "default_int_handler" in told


def test_waiting_ends_with_the_state_or_says_what_did_not_come():
    looks = []
    wait_until(lambda: looks.append(1) or len(looks) == 3)
    assert len(looks) == 3
    with pytest.raises(AssertionError, match="no news"):
        wait_until(lambda: False, "no news", patience_s=0)
    with pytest.raises(AssertionError, match=r"\[1, 1, 1\]"):
        wait_until(lambda: False, lambda: looks, patience_s=0)
