"""Sizes, folders and clocks that all measurements share."""

from __future__ import annotations

import gc
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, cycle, islice
from pathlib import Path

import penstock
from benchmarks.rows import Figure, Samples

KEY_BYTES, VALUE_BYTES = 16, 204
BATCH = 1000
TOPIC = "events"
#: The least that the processor's clock is trusted with.
_TICK_S = 1e-6
#: So many batches differ; then they come again.
_DISTINCT_BATCHES = 10


@dataclass(frozen=True)
class Batch:
    """A thousand messages, as columns."""

    keys: list[bytes]
    values: list[bytes]


@dataclass(frozen=True)
class Sizes:
    """How much each subject does; all follow from the number of messages."""

    messages: int
    #: How often each measurement is taken; peers take turns with ours.
    repeat: int
    #: How long processes write together.
    together_s: float
    segments: int
    #: Cost is compared between a topic of `messages` and one of this many times as much.
    growth: int

    @property
    def singles(self) -> int:
        """Written one at a time, into one segment of the default size."""
        return _whole_batches(self.messages // 5)

    @property
    def durable(self) -> int:
        """Synced one at a time, and round trips to other processes."""
        return max(self.messages // 500, 50)

    @property
    def lookups(self) -> int:
        return max(self.messages // 50, 100)

    @property
    def networked(self) -> int:
        """Sent to peers that are servers, where a message costs more."""
        return _whole_batches(self.messages // 20)


FULL = Sizes(messages=1_000_000, repeat=5, together_s=2.0, segments=1000, growth=20)
QUICK = Sizes(messages=200_000, repeat=5, together_s=0.5, segments=1000, growth=4)


class Bench:
    """One run: its sizes, its messages and its folder, in which everything lies side by side."""

    def __init__(self, sizes: Sizes, folder: Path) -> None:
        self.sizes = sizes
        self.folder = folder

    @cached_property
    def distinct(self) -> list[Batch]:
        """Incompressible, the same in every run."""
        source = random.Random(220)
        return [
            Batch(
                [source.randbytes(KEY_BYTES) for _ in range(BATCH)],
                [source.randbytes(VALUE_BYTES) for _ in range(BATCH)],
            )
            for _ in range(_DISTINCT_BATCHES)
        ]

    def batches(self, messages: int | None = None) -> Iterator[Batch]:
        """Batches of a thousand, `messages` in all."""
        return islice(cycle(self.distinct), (messages or self.sizes.messages) // BATCH)

    def singles(self, messages: int) -> Iterator[tuple[bytes, bytes]]:
        """Key and value of each message."""
        pairs = (zip(batch.keys, batch.values, strict=True) for batch in cycle(self.distinct))
        return islice(chain.from_iterable(pairs), messages)

    def interleave(self, *measures: Callable[[], float]) -> list[Samples]:
        """Samples of each measure; they take turns, so that a slow minute hits all of them alike."""
        rounds = []
        for _ in range(self.sizes.repeat):
            rounds.append([measure() for measure in measures])
            print(".", end="", file=sys.stderr, flush=True)
        return list(zip(*rounds, strict=True))

    @contextmanager
    def room(self) -> Iterator[Path]:
        """A folder of one's own, removed afterwards."""
        path = Path(tempfile.mkdtemp(dir=self.folder))
        try:
            yield path
        finally:
            shutil.rmtree(path)

    @contextmanager
    def store(self, *, files: penstock.Files | None = None) -> Iterator[penstock.Store]:
        """A new store, removed afterwards."""
        with self.room() as path, penstock.open(path / "store", files=files) as store:
            yield store

    @contextmanager
    def topic(self, sync: str) -> Iterator[penstock.Topic]:
        """A new topic in a new store, removed afterwards."""
        with self.store() as store:
            yield store.create_topic(TOPIC, sync=sync)


def _whole_batches(messages: int) -> int:
    return max(messages // BATCH, 1) * BATCH


def rate(count: int, work: Callable[[], object]) -> Figure:
    """How many of `count` things a second `work` does, of the wall's clock and of the processor's."""
    wall_s, processor_s = _seconds(work)
    return Figure(count / wall_s, count / max(processor_s, _TICK_S))


def seconds(work: Callable[[], object]) -> float:
    """How long `work` takes when no earlier garbage and no unwritten pages are in its way."""
    return _seconds(work)[0]


def _seconds(work: Callable[[], object]) -> tuple[float, float]:
    gc.collect()
    os.sync()
    begin, computed = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - begin, time.process_time() - computed
