"""Workers and whole servers are killed under load: clients go on, and nothing acknowledged is lost."""

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

import penstock
from penstock.client.events import Events
from penstock.errors import Unavailable
from tests.kit.patience import PATIENCE_S
from tests.serve.kit import ROOT, Listener, Polling, Served, Sse, Ws, served


class Pushing(threading.Thread):
    """Pushes numbers until told to stop; remembers those that were acknowledged, and their ids."""

    def __init__(self, url: str, keys: int) -> None:
        super().__init__()
        self._events, self._keys = Events(url), keys
        self.stopping = threading.Event()
        self.acknowledged: dict[int, int] = {}

    def run(self) -> None:
        for number in count():
            if self.stopping.is_set():
                return
            # The server may be away for longer than the client tries: then nobody knows whether it is stored.
            with suppress(Unavailable):
                self.acknowledged[number] = self._events.push(["n", number % self._keys], number).first

    def stop(self) -> dict[int, int]:
        self.stopping.set()
        self.join(60)
        return self.acknowledged


class Hearing(threading.Thread):
    """Listens by the Python client to one key."""

    def __init__(self, url: str, key: int, transport: str) -> None:
        super().__init__()
        self.heard: list[tuple[int, int]] = []
        self._subscription = Events(url).subscribe([["n", key]], transport=transport)
        assert self._subscription.receive(0.5) is None  # it stands somewhere
        self.last: int | None = None

    def run(self) -> None:
        while self.last is None or not self.heard or self.heard[-1][1] < self.last:
            event = self._subscription.receive(1.0)
            if event is not None:
                self.heard.append((event.id, event.data))
        self._subscription.close()


def check(pushing: Pushing, hearing: list[Hearing], keys: int) -> None:
    acknowledged = pushing.stop()
    assert len(acknowledged) > keys
    for key, each in enumerate(hearing):
        each.last = max(number for number in acknowledged if number % keys == key % keys)
    for key, each in enumerate(hearing):
        each.join(60)
        expected = [(first, number) for number, first in acknowledged.items() if number % keys == key % keys]
        heard = [(first, number) for first, number in each.heard if number in acknowledged]
        assert heard[: len(expected)] == expected


def test_a_killed_worker_comes_back_and_nobody_misses_anything(tmp_path):
    with served(tmp_path / "data", "--workers", "2") as server:
        hearing = [Hearing(server.url, n % 4, "websocket" if n < 4 else "longpoll") for n in range(8)]
        pushing = Pushing(server.url, 4)
        for thread in (*hearing, pushing):
            thread.start()
        for _ in range(3):
            before = len(pushing.acknowledged)
            while len(pushing.acknowledged) < before + 20:
                time.sleep(0.01)
            victim = random.choice(server.workers())
            os.kill(victim, signal.SIGKILL)
            while victim in server.workers() or len(server.workers()) < 2:
                time.sleep(0.01)
        check(pushing, hearing, 4)


def test_a_killed_server_comes_back_and_nobody_misses_anything(tmp_path):
    server = Served(tmp_path / "data", "--workers", "1")
    try:
        hearing = [Hearing(server.url, n, "websocket" if n % 2 else "longpoll") for n in range(4)]
        pushing = Pushing(server.url, 4)
        for thread in (*hearing, pushing):
            thread.start()
        for _ in range(2):
            before = len(pushing.acknowledged)
            while len(pushing.acknowledged) < before + 20:
                time.sleep(0.01)
            server.kill()
            server.close()
            server = Served(tmp_path / "data", "--workers", "1", port=server.port)
        check(pushing, hearing, 4)
    finally:
        server.close()


def test_workers_end_when_their_supervisor_is_killed(tmp_path):
    with served(tmp_path / "data", "--workers", "2") as server:
        workers = server.workers()
        heard = Ws(server, ["k"])
        os.kill(server.process.pid, signal.SIGKILL)
        assert heard.until_closed() == 1012
        heard.close()
        server.process.wait(30)
        deadline = time.monotonic() + PATIENCE_S
        while any(os.path.exists(f"/proc/{pid}") for pid in workers):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_server_that_ends_lets_go_of_everybody_with_their_cursor(tmp_path, listening):
    with served(tmp_path / "data", "--workers", "1") as server:
        heard = listening(server, ["k"])
        answered = threading.Event()

        def wait() -> None:
            try:
                heard.hear()
                heard.hear()
            except (ConnectionError, OSError):
                pass
            answered.set()

        thread = threading.Thread(target=wait)
        thread.start()
        assert server.end() == 0
        assert answered.wait(30)
        thread.join()
        cursor = heard.cursor
    with penstock.open(tmp_path / "data") as store:
        store.events().push("k", "meanwhile")
        answer = store.events().subscribe("k", cursor)
        assert ([event.data for event in answer.events], answer.gap) == (["meanwhile"], None)


def test_a_port_has_one_server(tmp_path):
    with served(tmp_path / "data") as server:
        again = subprocess.run(
            [sys.executable, "-m", "penstock", "-s", str(server.folder), "serve", "--port", str(server.port)],
            cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert again.returncode == 2
        assert "--port chooses another one" in again.stderr


class Storm:
    """Clients of all kinds are cut and come back at random while events flow; each hears all of its key."""

    KEYS = 20

    def __init__(self, server: Served, clients: int) -> None:
        self.server = server
        self.seed = random.randrange(2**32)
        self.chance = random.Random(self.seed)
        self.pushed = [0] * self.KEYS
        self.heard = [self._connected(n, None) for n in range(clients)]
        self.got: list[list[dict]] = [[] for _ in range(clients)]
        self.done = threading.Event()

    def run(self, cuts: int) -> None:
        """So many times somebody is cut while a thread pushes; then all hear the rest."""
        pushing = threading.Thread(target=self._push)
        pushing.start()
        try:
            for _ in range(cuts):
                self._cut(self.chance.randrange(len(self.heard)))
        finally:
            self.done.set()
            pushing.join(60)
        for n, each in enumerate(self.heard):
            each.until(self.pushed[n % self.KEYS] - len(self.got[n]), timeout=120)
            self._take(n)
            self._check(n)

    def _push(self) -> None:
        chance = random.Random(self.seed)
        while not self.done.is_set():
            key = chance.randrange(self.KEYS)
            count = chance.randrange(1, 5)
            self.server.push_many(*((["s", key], self.pushed[key] + n) for n in range(count)))
            self.pushed[key] += count

    def _cut(self, n: int) -> None:
        each = self.heard[n]
        if self.chance.random() < 0.5:
            each.hear(0.001)
        elif isinstance(each, Polling):
            each.ask(30)  # and never hears the answer
        self._take(n)
        self.heard[n] = self._connected(n, each.cursor)

    def _connected(self, n: int, cursor: str | None) -> Listener:
        kind = (Ws, Sse, Polling)[n // self.KEYS % 3]
        return kind(self.server, [["s", n % self.KEYS]], cursor)

    def _take(self, n: int) -> None:
        self.got[n] += self.heard[n].events
        assert self.heard[n].gaps == []
        self.heard[n].close()

    def _check(self, n: int) -> None:
        told = f"seed {self.seed}, client {n}, {type(self.heard[n]).__name__}"
        assert [event["data"] for event in self.got[n]] == list(range(self.pushed[n % self.KEYS])), told
        ids = [event["id"] for event in self.got[n]]
        assert ids == sorted(set(ids)), told


def test_a_storm_of_clients_that_come_back(tmp_path):
    with served(tmp_path / "data", "--workers", "2") as server:
        Storm(server, 200).run(400)


@pytest.mark.slow
def test_a_great_storm_of_clients_that_come_back(tmp_path):
    with served(tmp_path / "data", "--workers", "2") as server:
        Storm(server, 5000).run(10_000)


def resident_bytes(pid: int) -> int:
    """The process's memory, the log's mapped pages included; what the kernel's sockets hold is not in it."""
    found = re.search(r"Rss: +(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text())
    assert found is not None
    return int(found[1]) * 1024


def slow_clients(server: Served, clients: int, events: int, keys: int) -> float:
    """Clients stop reading while events pass, then get everything; the bytes of memory each cost."""
    (worker,) = server.workers()
    heard = [Ws(server, [["k", n % keys]], receive_bytes=4096) for n in range(clients)]
    server.push_many(*((["other"], n) for n in range(1000)))
    before = resident_bytes(worker)
    for first in range(0, events, 500):
        server.push_many(
            *((["k", n % keys], {"n": n // keys, "text": "x" * 100}) for n in range(first, first + 500))
        )
    quick = Ws(server, [["k", 0]], rewind=1)  # the server is not held up by the others
    assert quick.until(1)[0]["data"]["n"] == events // keys - 1
    quick.close()
    cost = (resident_bytes(worker) - before) / clients
    for each in heard:
        each.until(events // keys, timeout=120)
        assert [data["n"] for data in each.data] == list(range(events // keys))
        each.close()
    return cost


def test_slow_clients_cost_little_and_get_everything(tmp_path):
    with served(tmp_path / "data", "--workers", "1") as server:
        assert (
            slow_clients(server, 20, 5000, 1) < 500_000
        )  # few clients: what all share counts for most of it


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_thousand_slow_clients_cost_less_than_20_kb_each(tmp_path):
    with served(tmp_path / "data", "--workers", "1") as server:
        assert slow_clients(server, 1000, 100_000, 100) < 20_000
