"""Processes that a test starts; none outlives it, whatever happens."""

import os
import signal
import subprocess
from collections.abc import Sequence
from typing import Any

_started: list["subprocess.Popen[Any]"] = []


def start(command: Sequence[str | os.PathLike[str]], **options: Any) -> "subprocess.Popen[Any]":
    """`subprocess.Popen` of a process that is killed when its test ends (tests/conftest.py)."""
    process = subprocess.Popen(command, **options)
    _started.append(process)
    return process


def end_all() -> None:
    """Kill what still runs, with its process group if it leads one, and close its pipes."""
    while _started:
        process = _started.pop()
        if process.poll() is None:
            if os.getpgid(process.pid) == process.pid:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass  # it had not taken all its input


def heed_ctrl_c() -> None:
    """Have SIGINT mean Ctrl-C again: a shell's background job has it ignored, and so have its children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
