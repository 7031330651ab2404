"""NATS JetStream: a thousand publishes under way at once, a pull consumer by a thousand; file storage.

A message is key and value as one payload.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from benchmarks.harness import BATCH, Bench, rate
from benchmarks.peers.program import HOST, Rates, find_module, find_program, free_port, server

NAME = "NATS JetStream"
_TIMEOUT_S = 60


def measure(bench: Bench, folder: Path) -> Rates:
    nats, port = find_module("nats"), free_port()
    command = [
        find_program("nats-server"), "--addr", HOST, "--port", str(port), "--jetstream",
        "--store_dir", str(folder.resolve()),
    ]  # fmt: skip
    count = bench.sizes.networked
    with server(command, port, folder), asyncio.Runner() as runner:
        client = runner.run(nats.connect(f"nats://{HOST}:{port}"))
        stream = client.jetstream(timeout=_TIMEOUT_S)
        runner.run(stream.add_stream(name="events", subjects=["events"]))
        found = Rates(
            write=rate(count, lambda: runner.run(bounded(write(stream, bench, count)))),
            read=rate(count, lambda: runner.run(bounded(read(stream, count)))),
        )
        runner.run(client.close())
        return found


async def bounded(work: Awaitable[None]) -> None:
    async with asyncio.timeout(_TIMEOUT_S):
        await work


async def write(stream: Any, bench: Bench, count: int) -> None:
    for batch in bench.batches(count):
        sent = [
            await stream.publish_async("events", key + value)
            for key, value in zip(batch.keys, batch.values, strict=True)
        ]
        await asyncio.gather(*sent)


async def read(stream: Any, count: int) -> None:
    # "all": acknowledging the last of a batch acknowledges the whole of it.
    config = find_module("nats.js.api").ConsumerConfig(ack_policy="all")
    consumer = await stream.pull_subscribe("events", durable="billing", config=config)
    found = 0
    while found < count:
        rows = await consumer.fetch(BATCH, timeout=_TIMEOUT_S)
        found += len(rows)
        await rows[-1].ack()
