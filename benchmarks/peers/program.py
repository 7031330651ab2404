"""Starting a peer's program for a while."""

from __future__ import annotations

import importlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

HOST = "127.0.0.1"
_START_S, _STOP_S = 15.0, 10.0


class Missing(Exception):
    """The peer is not installed; the message says what is missing."""


class Rates(NamedTuple):
    """Messages a second."""

    write: float
    read: float


def find_program(name: str) -> str:
    """Its path; looks beside this Python first, where `make bench` installs peers."""
    beside = os.path.dirname(sys.executable)
    found = shutil.which(name, path=os.pathsep.join([beside, os.environ.get("PATH", os.defpath)]))
    if found is None:
        raise Missing(f"no program {name!r} on PATH")
    return found


def find_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise Missing(f"no Python module {name!r}") from None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@contextmanager
def server(command: list[str], port: int, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The program runs, in `folder`, until the block is left; it listens on `port` of loopback."""
    with (
        open(folder / "output.txt", "wb") as output,
        subprocess.Popen(
            command, cwd=folder, stdout=output, stderr=output, stdin=subprocess.DEVNULL
        ) as process,
    ):
        try:
            _wait_for(port, process, folder)
            yield process
        finally:
            _stop(process)


def _wait_for(port: int, process: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            socket.create_connection((HOST, port), timeout=1).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                last = (folder / "output.txt").read_text(errors="replace")[-500:]
                raise RuntimeError(f"{process.args!r} did not start: {last}") from None
            time.sleep(0.05)
        else:
            return


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
