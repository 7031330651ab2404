"""Servers of live events, ours and nchan, with the processes that load them, and what they cost."""

from __future__ import annotations

import multiprocessing
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.live_load import serve_load
from benchmarks.peers import nchan


class LiveServer:
    """A server's processes, their costs, and a process that loads it."""

    def __init__(self, dialect: str, pid: int, port: int) -> None:
        self._dialect = dialect
        self._port = port
        self._loads = 0
        self.workers = _children(pid)
        self._exits = ExitStack()
        self.load = self.more_load()

    def more_load(self) -> LoadProcess:
        """Another process that loads it, from an address of its own."""
        self._loads += 1
        return self._exits.enter_context(
            load_process(self._dialect, self._port, f"127.0.0.{1 + self._loads}")
        )

    def cpu_s(self) -> float:
        return sum(map(_cpu_s, self.workers))

    def resident_bytes(self) -> int:
        return sum(map(_resident_bytes, self.workers))

    def close(self) -> None:
        self._exits.close()


class LoadProcess:
    """Does what `Load` can do, in a process of its own."""

    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe

    def ask(self, name: str, *arguments: float) -> Any:
        self.begin(name, *arguments)
        return self.result()

    def begin(self, name: str, *arguments: float) -> None:
        self._pipe.send((name, arguments))

    def result(self) -> Any:
        return self._pipe.recv()


@contextmanager
def load_process(dialect: str, port: int, own_address: str) -> Iterator[LoadProcess]:
    context = multiprocessing.get_context("spawn")
    pipe, other = context.Pipe()
    process = context.Process(target=serve_load, args=(other, dialect, port, own_address), daemon=True)
    process.start()
    other.close()
    try:
        yield LoadProcess(pipe)
        pipe.send(None)
        process.join(30)
    finally:
        process.kill()


@contextmanager
def penstock_server(folder: Path, workers: int = 1) -> Iterator[LiveServer]:
    command = [sys.executable, "-m", "penstock", "-s", str(folder / "data"), "serve", "--port", "0"]
    with subprocess.Popen(
        [*command, "--workers", str(workers)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            found = re.search(r":(\d+)$", process.stdout.readline().strip())
            assert found is not None, "the server did not start"
            yield from _closing(LiveServer("penstock", process.pid, int(found[1])))
        finally:
            process.terminate()
            process.wait(30)


@contextmanager
def nchan_server(folder: Path) -> Iterator[LiveServer]:
    """Raises `Missing` where it is not installed."""
    with nchan.running(folder) as (pid, port):
        yield from _closing(LiveServer("nchan", pid, port))


def _closing(server: LiveServer) -> Iterator[LiveServer]:
    try:
        yield server
    finally:
        server.close()


def _children(pid: int) -> list[int]:
    """Its workers, once they are there."""
    path, deadline = Path(f"/proc/{pid}/task/{pid}/children"), time.monotonic() + 10
    while not (found := path.read_text().split()):
        assert time.monotonic() < deadline, "the server has no workers"
        time.sleep(0.01)
    return list(map(int, found))


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
