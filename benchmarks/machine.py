"""What the figures were taken on."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
from pathlib import Path

import penstock


def describe(folder: Path) -> dict[str, str]:
    return {
        "cpu": f"{_cpu_model()}, {os.cpu_count()} cores",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "file system": _file_system(folder),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "penstock": f"{penstock.__version__} {commit()}".strip(),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next(
        (line.split(": ", 1)[1] for line in lines if line.startswith("model name")), platform.machine()
    )


def _file_system(folder: Path) -> str:
    """The type of the file system the data lies on."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return "unknown"
    fitting = [mount for mount in mounts if folder.resolve().is_relative_to(mount[1])]
    return max(fitting, key=lambda mount: len(mount[1]))[2] if fitting else "unknown"


def commit() -> str:
    """The commit that is measured, with a mark when files differ from it; nothing outside a checkout."""
    here = Path(__file__).parent
    command = ["git", "-C", str(here), "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""
