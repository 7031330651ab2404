"""One message at a time, each on disk before the next: alone, and with sixteen processes at once."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier

import penstock
from benchmarks.harness import KEY_BYTES, TOPIC, VALUE_BYTES, Bench, rate
from benchmarks.rows import Row, ratio_at_least

_PROCESSES = 16
_PATIENCE_S = 60.0
_PREALLOCATED_BYTES = 16 * 2**20


def run(bench: Bench) -> Iterator[Row]:
    ours, bare, preallocated = bench.interleave(
        lambda: write(bench),
        lambda: write_and_sync(bench),
        lambda: write_and_sync(bench, allocate=_PREALLOCATED_BYTES),
    )
    yield Row(
        name="durable/one", what="topic.write(), one after another", ours=ours,
        peer="bare write + fdatasync", theirs=bare, target=ratio_at_least(0.6), by_processor=False,
    )  # fmt: skip
    yield Row(
        name="durable/preallocated", what="the same", ours=ours,
        peer="bare, into a preallocated file", theirs=preallocated, by_processor=False,
    )  # fmt: skip
    together, alone = bench.interleave(
        lambda: write_together(bench, _PROCESSES), lambda: write_together(bench, 1)
    )
    yield Row(
        name="durable/together", what=f"topic.write() from {_PROCESSES} processes", ours=together,
        peer="one process", theirs=alone, target=ratio_at_least(1.5), by_processor=False,
    )  # fmt: skip


def write(bench: Bench) -> float:
    messages = list(bench.singles(bench.sizes.durable))
    with bench.topic("disk") as topic:

        def work() -> None:
            for key, value in messages:
                topic.write(value, key=key)

        return rate(len(messages), work)


def write_and_sync(bench: Bench, allocate: int = 0) -> float:
    """The least that any program must do to have the same bytes on disk."""
    messages = [key + value for key, value in bench.singles(bench.sizes.durable)]
    with bench.room() as room:
        fd = os.open(room / "bare", os.O_WRONLY | os.O_CREAT)
        if allocate:
            os.posix_fallocate(fd, 0, allocate)

        def work() -> None:
            for message in messages:
                os.write(fd, message)
                os.fdatasync(fd)

        try:
            return rate(len(messages), work)
        finally:
            os.close(fd)


def write_together(bench: Bench, processes: int) -> float:
    """Acknowledged messages a second of all processes together."""
    spawn = multiprocessing.get_context("spawn")
    with bench.store() as store:
        store.create_topic(TOPIC, sync="disk")
        barrier, counted = spawn.Barrier(processes), spawn.SimpleQueue()
        workers = [
            spawn.Process(target=_write_for, args=(store.path, bench.sizes.together_s, barrier, counted))
            for _ in range(processes)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(_PATIENCE_S)
            worker.kill()
        failed = [worker for worker in workers if worker.exitcode != 0]
        if failed:
            raise RuntimeError(f"{len(failed)} of {processes} writing processes failed")
        total: int = sum(counted.get() for _ in workers)
        return total / bench.sizes.together_s


def _write_for(store: str, duration_s: float, barrier: Barrier, counted: SimpleQueue[int]) -> None:
    key, value = os.urandom(KEY_BYTES), os.urandom(VALUE_BYTES)
    with penstock.open(store) as opened:
        topic = opened.topic(TOPIC)
        topic.write(value, key=key)
        barrier.wait(_PATIENCE_S)
        count, end = 0, time.perf_counter() + duration_s
        while time.perf_counter() < end:
            topic.write(value, key=key)
            count += 1
    counted.put(count)
