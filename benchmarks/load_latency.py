"""How long a durable message takes to another process while ten thousand a second come.

A message is due at its moment whether the writer is ready or not: what a late writer adds counts. Ours, Redis
that syncs before each answer, and a bare fdatasync take turns on the same disk; ours and the bare one also on
one that takes a millisecond more to sync, as most disks do.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from statistics import quantiles
from typing import NamedTuple

import penstock
from benchmarks.harness import KEY_BYTES, TOPIC, VALUE_BYTES, Bench
from benchmarks.pacing import RATE, at_their_moments, lateness
from benchmarks.peers import redis_load
from benchmarks.peers.program import Missing
from benchmarks.rows import Row, Samples, ratio_at_most

_SLOW_S = 0.001
_PERCENTS = {"p50": 50, "p99": 99}
_SYNCS = 200
_PATIENCE_S = 60.0


class SlowDisk(penstock.Files):
    """A disk that takes longer to sync."""

    def sync(self, fd: int) -> None:
        time.sleep(_SLOW_S)
        super().sync(fd)


class Load(NamedTuple):
    """How a durable writer is used, and on which disk."""

    linger: str
    said: str
    files: penstock.Files
    #: The row of bare syncs on that disk.
    syncs: str
    has_redis: bool
    #: Half of the messages are to be there within so many syncs.
    syncs_most: float | None


_DISK = penstock.Files()
_LOADS = {
    # For those who would not wait.
    "linger-0": Load("0ms", "linger 0", _DISK, "sync", True, 2),
    "linger": Load("2ms", "linger 2 ms", _DISK, "sync", True, None),
    "slow-disk": Load("0ms", "linger 0, syncs take 1 ms more", SlowDisk(), "slow-sync", False, 2),
}


class Percentiles(NamedTuple):
    """Milliseconds."""

    p50: float
    p99: float

    @classmethod
    def of(cls, nanoseconds: list[int]) -> Percentiles:
        cuts = quantiles(nanoseconds, n=100)
        return cls(*(cuts[percent - 1] / 1e6 for percent in _PERCENTS.values()))


def run(bench: Bench) -> Iterator[Row]:
    rounds: dict[str, list[Percentiles]] = {}
    missing = ""
    for _ in range(bench.sizes.repeat):
        for name, load in _LOADS.items():
            rounds.setdefault(name, []).append(Percentiles.of(ours(bench, load)))
        for name, files in {load.syncs: load.files for load in _LOADS.values()}.items():
            rounds.setdefault(name, []).append(Percentiles.of(bare_syncs(bench, files)))
        try:
            with bench.room() as room:
                redis = Percentiles.of(redis_load.measure(room, due_values(bench)))
            rounds.setdefault("redis", []).append(redis)
        except Missing as error:
            missing = str(error)
    for name, load in _LOADS.items():
        for percent in _PERCENTS:
            yield from _rows(rounds, name, load, percent, missing)


def _rows(
    rounds: dict[str, list[Percentiles]], name: str, load: Load, percent: str, missing: str
) -> Iterator[Row]:
    def samples(of: str, which: str) -> Samples:
        return tuple(getattr(each, which) for each in rounds[of])

    what = f"durable, {RATE:,}/s, {load.said}: due to received in another process, {percent}"
    is_asked = load.syncs_most is not None and percent == "p50"
    yield Row(
        name=f"latency/{name}-{percent}", what=what, unit="ms", ours=samples(name, percent),
        peer="a bare write + fdatasync, p50", theirs=samples(load.syncs, "p50"), by_processor=False,
        target=ratio_at_most(load.syncs_most) if is_asked else None,
    )  # fmt: skip
    if not load.has_redis:
        return
    row = f"latency/{name}-{percent}-redis"
    if missing:
        yield Row(name=row, what=what, skipped=missing)
        return
    yield Row(
        name=row, what=what, unit="ms", ours=samples(name, percent), by_processor=False,
        peer=f"Redis Streams, appendfsync always, {percent}", theirs=samples("redis", percent),
    )  # fmt: skip


def due_values(bench: Bench) -> int:
    """How many messages a measurement sends."""
    return max(int(RATE * bench.sizes.together_s), 1000)


def ours(bench: Bench, load: Load) -> list[int]:
    """Nanoseconds from due to received, message by message."""
    spawn, count = multiprocessing.get_context("spawn"), due_values(bench)
    with bench.store(files=load.files) as store:
        topic = store.create_topic(TOPIC, sync="disk")
        here, there = spawn.Pipe()
        path = os.path.dirname(os.path.dirname(topic.open_topic.folder))
        reader = spawn.Process(target=_receive, args=(path, count, there))
        reader.start()
        there.close()
        try:
            here.recv()  # it is waiting
            key = bytes(KEY_BYTES)
            with topic.writer(linger=load.linger) as writer:
                at_their_moments(count, lambda value: writer.write(value, key=key))
            late: list[int] = here.recv()
        finally:
            reader.join(_PATIENCE_S)
            reader.kill()
    if len(late) != count:
        raise RuntimeError(f"{len(late)} of {count} messages were received")
    return late


def _receive(store: str, count: int, parent: Connection) -> None:
    """In the reading process. The monotonic clock is one for the whole machine."""
    late: list[int] = []
    with penstock.open(store) as opened, opened.topic(TOPIC).reader(start="latest") as reader:
        parent.send("ready")
        while len(late) < count and (batch := reader.receive_batch(timeout=_PATIENCE_S)):
            now = time.monotonic_ns()
            late += [lateness(message.value, now) for message in batch if message.value]
    parent.send(late)


def bare_syncs(bench: Bench, files: penstock.Files) -> list[int]:
    """Nanoseconds that a write and its sync take, one after another."""
    took, message = [], bytes(KEY_BYTES + VALUE_BYTES)
    with bench.room() as room:
        fd = os.open(room / "bare", os.O_WRONLY | os.O_CREAT)
        try:
            for _ in range(_SYNCS):
                begin = time.monotonic_ns()
                os.write(fd, message)
                files.sync(fd)
                took.append(time.monotonic_ns() - begin)
        finally:
            os.close(fd)
    return took
