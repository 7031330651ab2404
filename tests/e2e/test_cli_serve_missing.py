"""`penstock serve` where the extra is not installed: the line that installs it, and nothing half made."""

import subprocess
import sys

import pytest

PROGRAM = """
import runpy, sys
sys.modules[sys.argv[1]] = None  # as if it were not installed
sys.argv = ["penstock", "--store", sys.argv[2], "serve", "--port", "0"]
runpy.run_module("penstock", run_name="__main__")
"""


@pytest.mark.parametrize("module", ["httptools", "uvloop"])
def test_the_missing_extra_is_named_and_nothing_is_made(tmp_path, module):
    store = tmp_path / "store"
    command = [sys.executable, "-c", PROGRAM, module, str(store)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert "penstock[server]" in ended.stderr
    assert module in ended.stderr
    assert not store.exists()
