"""compress="zstd" against none, on JSON: how quick, and how much room."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import penstock
from benchmarks.harness import BATCH, TOPIC, Bench, rate
from benchmarks.reading import to_arrow, to_messages
from benchmarks.rows import Row, ratio_at_most

_NONE = "compress=None"
_STATES = ("new", "paid", "sent", "returned")


def run(bench: Bench, _: object = None) -> Iterator[Row]:
    values = orders(BATCH)
    count = bench.sizes.singles
    with bench.room() as folder:
        wrote, wrote_plain = bench.interleave(
            lambda: write(bench, "zstd", values, count), lambda: write(bench, None, values, count)
        )
        yield Row(
            name="compress/write", what="write_many(1000) of JSON, zstd", ours=wrote,
            peer=_NONE, theirs=wrote_plain,
        )  # fmt: skip
        with penstock.open(folder / "store") as store:
            topics = [fill(store, compress, values, count) for compress in ("zstd", None)]
            sizes = [(topic.stats().bytes / 1e6,) for topic in topics]
            yield Row(
                name="compress/room", what="bytes of the same JSON, zstd", unit="MB", ours=sizes[0],
                peer=_NONE, theirs=sizes[1], target=ratio_at_most(0.18),
            )  # fmt: skip
            for name, how in (("read", to_messages), ("arrow", to_arrow)):
                ours, theirs = bench.interleave(
                    *(lambda t=topic, how=how: rate(count, lambda: how(t, count)) for topic in topics)
                )
                yield Row(
                    name=f"compress/{name}", what=f"scan of it, {how.__name__.replace('_', ' ')}", ours=ours,
                    peer=_NONE, theirs=theirs,
                )  # fmt: skip


def orders(count: int) -> list[bytes]:
    """JSON as a web shop writes it, about 150 bytes each, the same in every run."""
    source = random.Random(7)
    return [
        json.dumps(
            {
                "order_id": 1_000_000 + number,
                "customer": f"customer-{source.randrange(500)}",
                "status": source.choice(_STATES),
                "amount": round(source.uniform(1, 500), 2),
                "currency": "EUR",
                "created_at": f"2030-01-01T12:{source.randrange(60):02d}:{source.randrange(60):02d}Z",
            }
        ).encode()
        for number in range(count)
    ]


def write(bench: Bench, compress: str | None, values: list[bytes], count: int) -> float:
    with bench.store() as store:
        topic = store.create_topic(TOPIC, sync="os", compress=compress)
        return rate(count, lambda: _write(topic, values, count))


def fill(store: penstock.Store, compress: str | None, values: list[bytes], count: int) -> penstock.Topic:
    topic = store.create_topic(compress or "plain", sync="os", compress=compress)
    _write(topic, values, count)
    return topic


def _write(topic: penstock.Topic, values: list[bytes], count: int) -> None:
    for _ in range(count // len(values)):
        topic.write_many(values)
