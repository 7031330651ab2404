"""What a process that has just started measures, and how much memory that adds to it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

Measured = dict[str, float]


def in_new_process(module: str, path: Path) -> Measured:
    """What a module of these measures at `path` when it is run as a program (see `told`)."""
    command = [sys.executable, "-m", module, str(path)]
    answer: Measured = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return answer


def told(measure: Callable[[str], Measured]) -> None:
    """Be that program."""
    print(json.dumps(measure(sys.argv[1])))


def megabytes() -> Measured:
    """All resident memory, and that without mapped pages of files, which the kernel can take back."""
    with open("/proc/self/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    return {name: int(fields[name].split()[0]) * 1024 / 1e6 for name in ("VmRSS", "RssAnon")}
