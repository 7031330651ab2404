"""Starting and ending the processes of `tests.crash.workers`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kit import fork_server
from tests.kit.patience import PATIENCE_S, wait_until

ROOT = Path(__file__).parents[2]


class Worker:
    """A process, and what it said before it ended."""

    def __init__(self, job: str, *arguments: str, out: str, jobs: str = "tests.crash.workers") -> None:
        self._out = out
        self._told = f"{out}.errors"
        with open(out, "ab") as file, open(self._told, "wb") as told:
            self.process = fork_server.start(["-m", jobs, job, *arguments], stdout=file, stderr=told)

    @property
    def pid(self) -> int:
        return self.process.pid

    def lines(self) -> list[str]:
        """What it has said so far, in whole lines."""
        data = Path(self._out).read_bytes()
        return data[: data.rfind(b"\n") + 1].decode().splitlines()

    def wait_for(self, line: str) -> None:
        def was_said() -> bool:
            assert line in self.lines() or self.process.poll() is None, self.errors()
            return line in self.lines()

        wait_until(was_said, f"it never said {line!r}")

    def go_on(self) -> None:
        """Answer a worker that waits for a line."""
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def send(self, signal: int) -> None:
        os.kill(self.pid, signal)

    def end(self, timeout: float = PATIENCE_S) -> int:
        """Wait for its end; its exit code."""
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass  # it ended before it took all
        code = self.process.wait(timeout)
        self._errors = Path(self._told).read_text()
        return code

    def errors(self) -> str:
        if self.process.poll() is None:
            return ""
        if not hasattr(self, "_errors"):
            self.end()
        return self._errors


@contextmanager
def no_orphans(workers: list[Worker]) -> Iterator[None]:
    """Whatever happens, no worker outlives the test."""
    try:
        yield
    finally:
        for worker in workers:
            if worker.process.poll() is None:
                worker.process.kill()
            if not hasattr(worker, "_errors"):
                worker.end()


def told(lines: list[str]) -> list[tuple[int, int, str]]:
    """(partition, offset, value) of lines that name messages."""
    found = []
    for line in lines:
        partition, offset, value = line.split(" ", 2)
        found.append((int(partition), int(offset), value))
    return found
