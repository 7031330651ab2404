"""Messages by their key: whether the cost stays the same as the segments of a topic grow in number."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import penstock
from benchmarks.harness import BATCH, TOPIC, Bench, rate
from benchmarks.rows import Row, Target, ratio_at_least

_FEW_SEGMENTS = 10
_COMMON_KEYS = 500
#: Small, so that there are many of them quickly: each takes one batch.
_SEGMENT_BYTES = 64 * 1024
_VALUE = b"v" * 50
#: Each common key is once or twice in a segment: what ten of them hold is compared.
_LIMIT = 10
#: The same, as far as a noisy machine lets one see; a key of one segment means passing over all others.
_FLAT, _PASSED_OVER = ratio_at_least(0.5), ratio_at_least(0.02)


def run(bench: Bench) -> Iterator[Row]:
    """Keys that are in every segment, and one in each segment that is nowhere else."""
    many_segments = bench.sizes.segments
    with (
        bench.room() as room,
        penstock.open(room / "few") as first,
        penstock.open(room / "many") as second,
    ):
        few, many = filled(first, _FEW_SEGMENTS), filled(second, many_segments)
        for name, what, measure, target in (
            ("latest", "latest(key), a key of every segment", latest_common, _FLAT),
            ("latest-rare", "latest(key), a key of one segment", latest_rare, _PASSED_OVER),
            ("read", f"read(key=…, limit={_LIMIT}), messages", read_common, _FLAT),
        ):
            yield compared(bench, few, many, name, what, measure, target)


def compared(
    bench: Bench, few: penstock.Topic, many: penstock.Topic, name: str, what: str,
    measure: Callable[[Bench, penstock.Topic], float], target: Target,
) -> Row:  # fmt: skip
    measure(bench, few)
    measure(bench, many)  # both have been open for a while
    ours, theirs = bench.interleave(lambda: measure(bench, many), lambda: measure(bench, few))
    return Row(
        name=f"keyed/{name}", what=f"{what}, {bench.sizes.segments} segments", ours=ours,
        peer=f"{_FEW_SEGMENTS} segments", theirs=theirs, target=target,
    )  # fmt: skip


def filled(store: penstock.Store, segments: int) -> penstock.Topic:
    topic = store.create_topic(TOPIC, sync="os", index="key", segment_bytes=_SEGMENT_BYTES)
    common = [b"common %d" % (number % _COMMON_KEYS) for number in range(BATCH - 1)]
    for number in range(segments):
        topic.write_many([_VALUE] * BATCH, keys=[*common, b"rare %d" % number])
    store.flush_housekeeping(600)
    return topic


def latest_common(bench: Bench, topic: penstock.Topic) -> float:
    return looked_up(bench, topic, [b"common %d" % number for number in range(_COMMON_KEYS)])


def latest_rare(bench: Bench, topic: penstock.Topic) -> float:
    return looked_up(bench, topic, [b"rare %d" % number for number in range(_FEW_SEGMENTS)])


def looked_up(bench: Bench, topic: penstock.Topic, keys: list[bytes]) -> float:
    chosen = random.Random(7).choices(keys, k=max(bench.sizes.lookups // 20, 20))

    def work() -> None:
        for key in chosen:
            topic.latest(key)

    return rate(len(chosen), work)


def read_common(bench: Bench, topic: penstock.Topic) -> float:
    """The oldest ones, which lie in the same segments whatever their number."""
    keys = [b"common %d" % number for number in range(20)]

    def work() -> None:
        for key in keys:
            topic.read(key=key, limit=_LIMIT).messages()

    return rate(len(keys) * _LIMIT, work)
