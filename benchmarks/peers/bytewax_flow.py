"""bytewax: a dataflow of one worker that maps a handler over messages in memory.

It reads no file, keeps no position and recovers nothing: what is left is the cost of calling a handler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.peers.program import find_module

_BATCH = 1000


def require() -> None:
    """Raise `Missing` where it is not installed."""
    find_module("bytewax")


def handle(messages: list[Any], handler: Callable[[Any], object]) -> None:
    """Call the handler with each message."""
    testing, dataflow = find_module("bytewax.testing"), find_module("bytewax.dataflow")
    operators, outputs = find_module("bytewax.operators"), find_module("bytewax.outputs")

    class Nowhere(outputs.StatelessSinkPartition):  # type: ignore[misc, name-defined]
        def write_batch(self, items: list[Any]) -> None:
            self.count = getattr(self, "count", 0) + len(items)

    class Sink(outputs.DynamicSink):  # type: ignore[misc, name-defined]
        def build(self, step_id: str, worker_index: int, worker_count: int) -> Nowhere:
            return Nowhere()

    flow = dataflow.Dataflow("handle")
    taken = operators.input("messages", flow, testing.TestingSource(messages, batch_size=_BATCH))
    operators.output("nowhere", operators.map("handle", taken, handler), Sink())
    testing.run_main(flow)
