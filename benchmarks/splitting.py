"""Topics whose partitions split: what it costs to write, read and open them beside topics that never did."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import penstock
from benchmarks.fresh_process import in_new_process, told
from benchmarks.harness import TOPIC, Bench, rate
from benchmarks.rows import Row, at_most, ratio_at_least
from benchmarks.usual_messages import PARTITIONS, TextBatch, with_key
from benchmarks.writing import TextWrites

#: One partition becomes 64 in so many rounds, in each of which all are split.
#: How this module is run by itself.
_NAME = "benchmarks.splitting"
_ROUNDS = 6
_LEAVES = 2**_ROUNDS
#: A topic with a long history, opened by a process that may have few files open.
_SPLITS, _OPEN_FILES = 1000, 1024
#: Fast enough that nothing is split while it is measured: what is left is the cost of measuring rates.
_FASTER_THAN_ANY = "1TiB"


def run(bench: Bench) -> Iterator[Row]:
    measuring = {"autopartitioning": "up", "partition_write_speed": _FASTER_THAN_ANY}
    text = TextWrites(bench)
    ours, theirs = bench.interleave(
        lambda: text.written(with_key, partitions=PARTITIONS, topic_options=measuring),
        lambda: text.written(with_key, partitions=PARTITIONS),
    )
    yield Row(
        name="split/write", what=f'writer.write, text keys, {PARTITIONS} partitions, autopartitioning="up"',
        ours=ours, peer="disabled", theirs=theirs, target=ratio_at_least(0.95),
    )  # fmt: skip
    yield from _reading(bench)
    yield from _opening(bench)


def _reading(bench: Bench) -> Iterator[Row]:
    with bench.store() as store:
        grown = store.create_topic("grown", sync="os", autopartitioning="paused")
        fixed = store.create_topic("fixed", sync="os", partitions=_LEAVES)
        share = bench.sizes.messages // (_ROUNDS + 1)
        for number in range(_ROUNDS + 1):
            for topic in (grown, fixed):
                for batch in map(TextBatch, bench.batches(share)):
                    topic.write_many(batch.batch.values, keys=batch.keys)
            if number < _ROUNDS:
                _split_all(grown)
        ours, theirs = bench.interleave(partial(_read, grown), partial(_read, fixed))
    yield Row(
        name="split/read", what=f"read by batches, with commits: {_LEAVES} partitions that came from one",
        ours=ours, peer=f"{_LEAVES} from the start", theirs=theirs, target=ratio_at_least(0.8),
    )  # fmt: skip


def _split_all(topic: penstock.Topic) -> None:
    for each in topic.partitions():
        if each.state == "active":
            topic.split(each.partition)


def _read(topic: penstock.Topic) -> float:
    def work() -> None:
        with topic.reader(consumer="c", follow=False) as reader:
            while batch := reader.receive_batch(1000):
                for _ in batch:
                    pass
                reader.commit(batch)

    found = rate(topic.stats().messages, work)
    topic.drop_consumer("c")
    return found


def _opening(bench: Bench) -> Iterator[Row]:
    with bench.room() as room:
        _split_often(room / "store")
        looks = [in_new_process(_NAME, room / "store") for _ in range(bench.sizes.repeat)]
    for name, what, most in (
        ("open", f"open a topic that was split {_SPLITS:,} times, with {_OPEN_FILES} files at most", 50),
        ("first-write", "… and its first write", 10),
    ):
        yield Row(
            name=f"split/{name}", what=what, unit="ms", ours=tuple(each[name] for each in looks),
            target=at_most(most),
        )  # fmt: skip


def _split_often(path: Path) -> None:
    with penstock.open(path) as store:
        topic = store.create_topic(TOPIC, sync="os", autopartitioning="paused", max_partitions=_SPLITS + 1)
        active = [0]
        for _ in range(_SPLITS):
            active += topic.split(active.pop(0))


def _open_and_write(path: str) -> dict[str, float]:
    """Milliseconds until a topic is open, and from then until a message is stored."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (_OPEN_FILES, _OPEN_FILES))
    began = time.perf_counter()
    with penstock.open(path) as store:
        topic = store.topic(TOPIC)
        opened = time.perf_counter()
        topic.write(b"x", key="a key")
        written = time.perf_counter()
    return {"open": (opened - began) * 1000, "first-write": (written - opened) * 1000}


if __name__ == "__main__":
    import penstock.store  # what every program pays once is not the topic's doing

    told(_open_and_write)
