"""Redis Streams: XADD in pipelines of a thousand, XRANGE by a thousand; an append-only file.

It is synced each second, so this is the peer of sync="os".
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.harness import BATCH, Bench, rate
from benchmarks.peers.program import HOST, Rates, find_module, find_program, free_port, server

NAME = "Redis Streams"
_TIMEOUT_S = 60


def measure(bench: Bench, folder: Path) -> Rates:
    redis, port = find_module("redis"), free_port()
    command = [
        find_program("redis-server"), "--bind", HOST, "--port", str(port), "--dir", str(folder.resolve()),
        "--appendonly", "yes", "--appendfsync", "everysec", "--save", "",
    ]  # fmt: skip
    count = bench.sizes.networked
    with server(command, port, folder), redis.Redis(HOST, port, socket_timeout=_TIMEOUT_S) as client:
        return Rates(
            write=rate(count, lambda: write(client, bench, count)),
            read=rate(count, lambda: read(client, count)),
        )


def write(client: Any, bench: Bench, count: int) -> None:
    for batch in bench.batches(count):
        pipeline = client.pipeline(transaction=False)
        for key, value in zip(batch.keys, batch.values, strict=True):
            pipeline.xadd("events", {b"key": key, b"value": value})
        pipeline.execute()


def read(client: Any, count: int) -> None:
    place, found = b"-", 0
    while rows := client.xrange("events", min=place, count=BATCH):
        found += len(rows)
        place = b"(" + rows[-1][0]
    assert found == count
