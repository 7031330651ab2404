"""Messages by their key: whether the cost stays the same as the segments of a topic grow in number."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import count

import penstock
from benchmarks.harness import BATCH, TOPIC, Bench, rate
from benchmarks.rows import Row, Target, ratio_at_least

_FEW_SEGMENTS = 10
_COMMON_KEYS = 500
#: Small, so that there are many of them quickly: each takes one batch.
_SEGMENT_BYTES = 64 * 1024
_VALUE = b"v" * 50
_VOLUME_KEYS = 10_000
#: Numbers keys that nobody asked for before.
_NEW = count()
#: Each common key is once or twice in a segment: what ten of them hold is compared.
_LIMIT = 10
#: The same, as far as a noisy machine lets one see; a key not asked for before means passing over all.
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
            ("latest-rare", "latest(key), a key of one segment, asked for before", latest_rare, _FLAT),
            ("latest-new", "latest(key), a key of none, not asked for before", latest_new, _PASSED_OVER),
            ("read", f"read(key=…, limit={_LIMIT}), messages", read_common, _FLAT),
        ):
            yield compared(bench, few, many, name, what, measure, target)
    yield by_volume(bench)


def by_volume(bench: Bench) -> Row:
    """So many messages of one key, out of ten times as many messages in all."""
    total = 10 * max(bench.sizes.messages, _VOLUME_KEYS)
    with bench.room() as room, penstock.open(room / "data") as store:
        few, many = (spread(store, f"of-{size}", size) for size in (total // 10, total))
        read_many(few)
        read_many(many)  # indexes are checked at their first use
        ours, theirs = bench.interleave(lambda: read_many(many), lambda: read_many(few))
    return Row(
        name="keyed/volume", what=f"read(key=…, limit=100), one of 10,000 keys, messages, {total:,} in all",
        ours=ours, peer=f"{total // 10:,} in all", theirs=theirs, target=_FLAT,
    )  # fmt: skip


def spread(store: penstock.Store, name: str, messages: int) -> penstock.Topic:
    """Messages of so many keys, in turn."""
    topic = store.create_topic(name, sync="os", index="key")
    keys = [b"key %d" % number for number in range(_VOLUME_KEYS)]
    for _ in range(messages // _VOLUME_KEYS):
        topic.write_many([_VALUE] * _VOLUME_KEYS, keys=keys)
    store.flush_housekeeping(600)
    return topic


def read_many(topic: penstock.Topic) -> float:
    chosen = [b"key %d" % number for number in random.Random(7).choices(range(_VOLUME_KEYS), k=20)]
    found = sum(len(topic.read(key=key, limit=100).messages()) for key in chosen)  # what all have

    def work() -> None:
        for key in chosen:
            topic.read(key=key, limit=100).messages()

    return rate(found, work)


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


def latest_new(bench: Bench, topic: penstock.Topic) -> float:
    return looked_up(bench, topic, [b"new %d" % next(_NEW) for _ in range(1000)])


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
