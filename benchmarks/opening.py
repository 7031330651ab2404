"""Opening a store with many segments: how long it takes and how much memory it needs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import penstock
from benchmarks.fresh_process import in_new_process, megabytes, told
from benchmarks.harness import TOPIC, Bench
from benchmarks.rows import Row, at_most, ratio_at_most

#: Messages in each segment, of a little and of much data.
#: How this module is run by itself.
_NAME = "benchmarks.opening"
_LITTLE, _MUCH = 10, 500
_SEGMENT_BYTES_EACH = 300
#: Independent of the data's size, as far as pages of 4 KiB let one see.
_SAME = ratio_at_most(1.5)


def run(bench: Bench) -> Iterator[Row]:
    with bench.room() as room:
        little = make(room / "little", bench, _LITTLE)
        much = make(room / "much", bench, _MUCH)
        rounds = [
            (in_new_process(_NAME, much), in_new_process(_NAME, little)) for _ in range(bench.sizes.repeat)
        ]
    yield Row(
        name="open/time", what=f"open, first and last message, {bench.sizes.segments} segments", unit="s",
        ours=tuple(one["seconds"] for one, _ in rounds), target=at_most(0.5),
    )  # fmt: skip
    for name, field, what, target in (
        ("open/memory", "VmRSS", "resident memory that this adds", _SAME),
        ("open/anonymous", "RssAnon", "the same without mapped files", None),
    ):
        yield Row(
            name=name, what=what, unit="MB", ours=tuple(one[field] for one, _ in rounds),
            peer=f"{_MUCH // _LITTLE} times less data", theirs=tuple(other[field] for _, other in rounds),
            target=target,
        )  # fmt: skip


def make(path: Path, bench: Bench, messages_each: int) -> Path:
    """A store with one topic of many segments, each of so many messages."""
    with penstock.open(path) as store:
        topic = store.create_topic(
            TOPIC, sync="os", segment_bytes=max(messages_each * _SEGMENT_BYTES_EACH, 4096)
        )
        batch = bench.distinct[0]
        for _ in range(bench.sizes.segments):
            topic.write_many(batch.values[:messages_each], keys=batch.keys[:messages_each])
            topic.open_topic.log(0).appender.seal_active()
    return path


def open_and_look(path: str) -> dict[str, float]:
    before = megabytes()
    begin = time.perf_counter()
    with penstock.open(path) as store:
        topic = store.topic(TOPIC)
        ((_, first, stop),) = topic.scan().ranges
        topic.get(first)
        topic.get(stop - 1)
        took = time.perf_counter() - begin
        added = {field: size - before[field] for field, size in megabytes().items()}
        return {"seconds": took, **added}


if __name__ == "__main__":
    import penstock.store  # what every program pays once is not the store's doing

    told(open_and_look)
