"""Tarantool: a thousand inserts a transaction, then a scan; inside its own process, without a network."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from benchmarks.harness import Bench
from benchmarks.peers.program import Rates, find_program

NAME = "Tarantool"
_TIMEOUT_S = 120


def measure(bench: Bench, folder: Path) -> Rates:
    script = Path(__file__).with_suffix(".lua").resolve()
    command = [find_program("tarantool"), str(script), str(bench.sizes.networked)]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=True, timeout=_TIMEOUT_S)
    return Rates(**json.loads(done.stdout))
