"""Live events: what a server delivers for a second of its CPU, and what a connection costs.

A real `penstock serve` with one worker; the load comes from a process of its own. Ten listeners hear an
event on average. Where nchan is installed the same load belongs beside it; without it the rows have no peer.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any

from benchmarks.harness import Bench
from benchmarks.live_load import serve_load
from benchmarks.rows import Row, at_most


class LiveServer:
    """A server, its worker's costs, and the process that loads it."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        self._worker = int(children[0])
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._load = context.Process(target=serve_load, args=(other, port), daemon=True)
        self._load.start()

    def ask(self, name: str, *arguments: int) -> Any:
        self._pipe.send((name, arguments))
        return self._pipe.recv()

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self._worker}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        return int(Path(f"/proc/{self._worker}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def end(self) -> None:
        self._pipe.send(None)
        self._load.join(10)


@contextmanager
def live_server(folder: Path) -> Iterator[LiveServer]:
    command = [sys.executable, "-m", "penstock", "-s", str(folder), "serve", "--port", "0", "--workers", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r":(\d+)$", process.stdout.readline().strip())
            assert found is not None, "the server did not start"
            server = LiveServer(process, int(found[1]))
            yield server
            server.end()
        finally:
            process.terminate()
            process.wait(30)


def run(bench: Bench) -> Iterator[Row]:
    clients = max(bench.sizes.messages // 1000, 100)
    events = max(bench.sizes.messages // 100, 1000)
    found: dict[str, list[float]] = {}
    for _ in range(bench.sizes.repeat):
        with bench.room() as folder:
            for name, sample in measure(folder, clients, events).items():
                found.setdefault(name, []).append(sample)
    for name, what, unit, target in (
        (
            "single",
            f"deliveries per CPU second, {clients:,} WebSockets × 10 keys, an event a push",
            "/s",
            None,
        ),
        ("batched", "the same, 100 events a push", "/s", None),
        ("memory", "a WebSocket with 10 keys", "KB", at_most(4.0)),
        ("poll", f"long poll, {clients:,} waiting: push to answer, p99", "ms", None),
        ("push", "durable pushes, one event each, 64 connections", "/s", None),
        ("push-batched", "durable pushes, 1,000 events each", "/s", None),
    ):
        yield Row(name=f"live/{name}", what=what, unit=unit, ours=tuple(found[name]), target=target)


def measure(folder: Path, clients: int, events: int) -> dict[str, float]:
    """One server, each figure in turn."""
    found = {}
    with live_server(folder) as server:
        server.ask("push", 50, 1, 4)
        before = server.resident_bytes()
        server.ask("listen", clients, clients)
        found["memory"] = (server.resident_bytes() - before) / clients / 1000
        for name, each in (("single", 1), ("batched", 100)):
            began = server.cpu_s()
            delivered = server.ask("push_to_listeners", events, clients, each)
            found[name] = delivered / max(server.cpu_s() - began, 0.01)
    with live_server(folder) as server:
        found["poll"] = quantiles(server.ask("poll", clients, 200), n=100)[98]
        found["push"] = server.ask("push", events, 1, 64)
        found["push-batched"] = server.ask("push", max(events // 100, 16), 1000, 8)
    return found
