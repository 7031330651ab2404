"""The examples run as a newcomer would start them."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.patience import PATIENCE_S

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("quickstart.py", "order 4"),
        ("workers.py", "audit: 6000 messages of 3 writers, in order"),
        ("sql.py", "coffee"),
        ("balances.py", "balances are right after"),
        ("webhooks.py", "119 of 120 hooks arrived"),
    ],
)
def test_example_runs(name: str, said: str, tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), str(tmp_path / "data")],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
