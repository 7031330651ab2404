"""kill -9 at each call that changes a file, of each thing that people do with a store."""

import shutil
import signal

import pytest

from tests.crash.operations import OPERATIONS
from tests.kit import fork_server
from tests.kit.stores import StoreVerifier

#: What every operation needs at least; fewer calls would mean that it is not killed at all.
CALLS_LEAST = 8


def is_killed(name, folder, calls):
    words = ["-W", "error", "-m", "tests.crash.operations", name, str(folder), str(calls)]
    done = fork_server.run(words)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode != 0


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["some", "every"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_killed_at_any_call_it_is_done_or_not_and_can_be_done_again(tmp_path, name, every):
    operation = OPERATIONS[name]
    (begun := tmp_path / "begun").mkdir()
    operation.begin(begun)
    calls, killed = 0, True
    while killed:
        folder = tmp_path / str(calls)
        shutil.copytree(begun, folder)
        killed = is_killed(name, folder, calls)
        operation.check(folder)
        assert [each for each in StoreVerifier(folder / "store").findings() if each.severity != "note"] == []
        shutil.rmtree(folder)
        calls += 1 if every else operation.stride
    assert calls > CALLS_LEAST
