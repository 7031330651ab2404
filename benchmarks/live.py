"""Live events: what a server delivers for a second of its CPU, and what a connection costs.

A real `penstock serve` and, where it is installed, nchan beside it; they take turns under the same load,
which comes from processes of their own. Ten listeners hear an event on average.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from statistics import quantiles

from benchmarks.harness import Bench
from benchmarks.live_servers import LiveServer, nchan_server, penstock_server
from benchmarks.peers.nchan import NAME as NCHAN
from benchmarks.peers.program import Missing
from benchmarks.rows import Row, Target, at_least, at_most, ratio_at_least, ratio_at_most

Samples = tuple[float, ...]
#: A load process has as many connections as it may have open files, and some are needed otherwise.
_CONNECTIONS_EACH = 17_000
_PING_S = 25
_SETTLE_S = 20
#: Batched events pass so quickly that fewer would be over within some ticks of the processor's clock.
_BATCHED_TIMES = 10


def run(bench: Bench) -> Iterator[Row]:
    clients = max(bench.sizes.messages // 100, 1000)
    yield from deliveries(bench, clients)
    yield from polls(bench, clients)
    yield from alone(bench, clients)
    yield slow(bench, clients // 10)
    yield idle(bench, clients * 5)


@contextmanager
def both(bench: Bench) -> Iterator[list[LiveServer]]:
    """Our server, and nchan where it is installed."""
    with ExitStack() as exits:
        servers = [exits.enter_context(penstock_server(exits.enter_context(bench.room())))]
        with suppress(Missing):
            servers.append(exits.enter_context(nchan_server(exits.enter_context(bench.room()))))
        yield servers


def beside(name: str, what: str, unit: str, target: Target, samples: list[Samples]) -> Row:
    """A row of ours, and of nchan if it was there."""
    theirs = samples[1] if len(samples) > 1 else ()
    told = what if theirs else f"{what} (no {NCHAN} here: libnginx-mod-nchan)"
    return Row(
        name=f"live/{name}", what=told, unit=unit, ours=samples[0], peer=NCHAN if theirs else "",
        theirs=theirs, target=target,
    )  # fmt: skip


def deliveries(bench: Bench, clients: int) -> Iterator[Row]:
    events = max(clients // 2, 1000)
    with both(bench) as servers:
        connected = [(connection_kb(each, clients),) for each in servers]
        yield beside("memory", "a WebSocket with 10 keys", "KB", at_most(4.0), connected)
        yield beside("memory-peer", "the same, beside nchan's", "KB", ratio_at_most(0.25), connected)
        turns = in_turns(bench.sizes.repeat, servers, lambda each: delivered(each, events, clients, 1))
        what = f"deliveries per CPU second, {clients:,} WebSockets × 10 keys, an event a push"
        yield beside("single", what, "/s", ratio_at_least(1.5), turns)


def polls(bench: Bench, clients: int) -> Iterator[Row]:
    with both(bench) as servers:
        for each in servers:
            each.load.ask("wait_by_poll", clients)
            settle(each)
        turns = in_turns(bench.sizes.repeat, servers, poll_p99_ms)
        what = f"long poll, {clients:,} waiting: push to answer, p99; ours is on disk then"
        yield beside("poll", what, "ms", ratio_at_most(1.0), turns)


def in_turns(rounds: int, servers: list[LiveServer], measure: Callable[[LiveServer], float]) -> list[Samples]:
    """Samples of each server; they take turns, so that a slow minute hits all of them alike."""
    found = [[measure(each) for each in servers] for _ in range(rounds)]
    return list(zip(*found, strict=True))


def settle(server: LiveServer) -> None:
    """Wait until it is nearly at rest: nchan goes on with a subscription after it has answered."""
    for _ in range(_SETTLE_S):
        before = server.cpu_s()
        time.sleep(1)
        if server.cpu_s() - before < 0.1:
            return


def connection_kb(server: LiveServer, clients: int) -> float:
    server.load.ask("push", 50, 1, 4)
    before = server.resident_bytes()
    server.load.ask("listen", clients, clients)
    settle(server)
    return (server.resident_bytes() - before) / clients / 1000


def delivered(server: LiveServer, events: int, keys: int, each: int) -> float:
    """Deliveries for a second of the server's CPU, pushes and syncs included."""
    began = server.cpu_s()
    heard: int = server.load.ask("push_to_listeners", events, keys, each)
    return heard / max(server.cpu_s() - began, 0.01)


def poll_p99_ms(server: LiveServer) -> float:
    return quantiles(server.load.ask("poll", 300), n=100)[98]


def alone(bench: Bench, clients: int) -> Iterator[Row]:
    """What nchan cannot do: batches, and events on disk."""
    pushes = max(bench.sizes.messages // 25, 2000)
    listeners = clients // 10
    found: dict[str, list[float]] = {}

    def note(name: str, sample: float) -> None:
        found.setdefault(name, []).append(sample)

    with bench.room() as folder, penstock_server(folder) as server:
        server.load.ask("listen", listeners, listeners)
        for _ in range(bench.sizes.repeat):
            began, cpu_s = time.monotonic(), server.cpu_s()
            heard = server.load.ask("push_to_listeners", pushes * _BATCHED_TIMES, listeners, 1000)
            note("batched", heard / (time.monotonic() - began))
            note("batched-cpu", heard / max(server.cpu_s() - cpu_s, 0.01))
            note("push", server.load.ask("push", pushes, 1, 16))
            note("push-batched", server.load.ask("push", pushes // 50, 1000, 16))
    what = f"deliveries a second, {listeners:,} WebSockets × 10 keys, 1,000 events a push"
    for name, told, target in (
        ("batched", what, at_least(500_000)),
        ("batched-cpu", "the same, per CPU second", None),
        ("push", "durable pushes, one event each, 16 connections × 8 under way", at_least(40_000)),
        ("push-batched", "durable pushes, 1,000 events each, 16 connections", at_least(400_000)),
    ):
        yield Row(name=f"live/{name}", what=told, ours=tuple(found[name]), target=target)


def slow(bench: Bench, clients: int) -> Row:
    """Memory for clients that stop reading while events pass; everything must come when they read again."""
    events, keys = clients * 100, clients
    with bench.room() as folder, penstock_server(folder) as server:
        server.load.ask("push", 50, 1, 4)
        server.load.ask("listen", clients, keys, 4096)
        server.load.ask("push_to_listeners", 1000, keys, 100)  # what a server that is used needs anyway
        before = server.resident_bytes()
        expected = server.load.ask("push_unheard", events, keys, 1000)
        cost = (server.resident_bytes() - before) / clients / 1000
        heard = server.load.ask("hear", expected)
        assert heard == expected, f"{heard} of {expected} events"
    what = f"{clients:,} WebSockets that stop reading while {events:,} events pass; all came later"
    return Row(name="live/slow", what=what, unit="KB", ours=(cost,), target=at_most(20.0))


def idle(bench: Bench, clients: int) -> Row:
    """The CPU that connections cost with nothing but pings."""
    processes = -(-clients // _CONNECTIONS_EACH)
    each = clients // processes
    with bench.room() as folder, penstock_server(folder, workers=processes) as server:
        loads = [server.load, *(server.more_load() for _ in range(processes - 1))]
        for load in loads:
            load.ask("listen", each, clients)
        began, cpu_s = time.monotonic(), server.cpu_s()
        for load in loads:
            load.begin("idle", _PING_S)
        pinged = sum(load.result() for load in loads)
        assert pinged > clients, "there were no pings"
        share = 100 * (server.cpu_s() - cpu_s) / (time.monotonic() - began)
    what = f"of a core: {each * processes:,} idle WebSockets with pings each 25 s, {processes} workers"
    return Row(name="live/idle", what=what, unit="%", ours=(share,), target=at_most(10.0))
