"""How long a message takes to a reader that waits in another process.

A message is published when the record that lets readers see it has been written; files that note that
moment are put into the writer's store. The time the writer's own call takes is shown beside it.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from statistics import median, quantiles
from typing import NamedTuple

import penstock
from benchmarks.harness import KEY_BYTES, TOPIC, VALUE_BYTES, Bench
from benchmarks.rows import Row, at_most
from penstock.files import Files
from penstock.log.records import SHOWN_AT

_WARM_UP = 50
#: Between two messages, in seconds: the reader sleeps each time.
_PAUSES = (0.0005, 0.002)
_PATIENCE_S = 20.0


class NotingFiles(Files):
    """The system's files; notes when the record that readers follow was written."""

    def __init__(self) -> None:
        self.tail_fd = -1
        self.published: list[int] = []

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, at: int) -> int:
        written = super().pwrite(fd, data, at)
        if fd == self.tail_fd and at == SHOWN_AT:
            self.published.append(time.monotonic_ns())
        return written


class Times(NamedTuple):
    """Microseconds, message by message."""

    to_publish: list[float]
    to_receive: list[float]


def run(bench: Bench) -> Iterator[Row]:
    rounds = [measure(bench) for _ in range(bench.sizes.repeat)]
    for name, percent, target in (("p50", 50, 100.0), ("p99", 99, 1000.0)):
        yield Row(
            name=f"latency/{name}", what=f"published to received in another process, {name}", unit="µs",
            ours=tuple(quantiles(each.to_receive, n=100)[percent - 1] for each in rounds),
            target=at_most(target),
        )  # fmt: skip
    yield Row(
        name="latency/write", what="topic.write() until published, p50", unit="µs",
        ours=tuple(median(each.to_publish) for each in rounds),
    )  # fmt: skip


def measure(bench: Bench) -> Times:
    """How long messages take from the call to being published, and from there to the other process."""
    spawn = multiprocessing.get_context("spawn")
    files = NotingFiles()
    with bench.store(files=files) as store:
        topic = store.create_topic(TOPIC, sync="os")
        files.tail_fd = topic.open_topic.log(0).folder.tail_fd
        here, there = spawn.Pipe()
        count = bench.sizes.durable + _WARM_UP
        reader = spawn.Process(target=_receive, args=(store.path, count, there))
        reader.start()
        there.close()
        try:
            here.recv()  # it is waiting
            files.published.clear()
            called = _send(topic, count)
            received: list[int] = here.recv()
        finally:
            reader.join(_PATIENCE_S)
            reader.kill()
    published = files.published[_WARM_UP:]
    return Times(
        [(late - early) / 1000 for early, late in zip(called[_WARM_UP:], published, strict=True)],
        [(late - early) / 1000 for early, late in zip(published, received[_WARM_UP:], strict=True)],
    )


def _send(topic: penstock.Topic, count: int) -> list[int]:
    pauses = random.Random(3)
    key, value = bytes(KEY_BYTES), bytes(VALUE_BYTES)
    called = []
    for _ in range(count):
        time.sleep(pauses.uniform(*_PAUSES))
        called.append(time.monotonic_ns())
        topic.write(value, key=key)
    return called


def _receive(store: str, count: int, parent: Connection) -> None:
    """In the reading process. The monotonic clock is one for the whole machine."""
    with penstock.open(store) as opened, opened.topic(TOPIC).reader(start="latest") as reader:
        parent.send("ready")
        received: list[int] = []
        while len(received) < count and reader.receive(timeout=_PATIENCE_S) is not None:
            received.append(time.monotonic_ns())
    parent.send(received)
