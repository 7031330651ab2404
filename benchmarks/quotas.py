"""Write quotas: how well two processes keep to one, and what it costs a writer that need not wait."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import penstock
from benchmarks.harness import TOPIC, Bench
from benchmarks.rows import Row, at_most

_SPEED, _BURST, _MESSAGE = 1_000_000, 50_000, 10_000
_WRITERS = 2
#: The ends are left out: a burst comes first, and the last to write is alone.
_EDGE_S = 0.5


def run(bench: Bench) -> Iterator[Row]:
    count = max(int(bench.sizes.together_s * _SPEED / _MESSAGE / _WRITERS), 100)
    with bench.room() as room:
        speeds = [together(room / str(turn), count) for turn in range(bench.sizes.repeat)]
        pairs = [
            (alone(room / f"l{t}", True), alone(room / f"o{t}", False)) for t in range(bench.sizes.repeat)
        ]
    yield Row(
        name="quota/speed", what=f"{_WRITERS} processes, off their quota of {_SPEED / 1e6:g} MB/s", unit="%",
        ours=tuple(abs(speed / _SPEED - 1) * 100 for speed in speeds), target=at_most(15),
    )  # fmt: skip
    yield Row(
        name="quota/cost", what="a write that need not wait, by processor time", unit="µs",
        ours=tuple(limited for limited, _ in pairs), peer="without a quota",
        theirs=tuple(open_ for _, open_ in pairs),
    )  # fmt: skip


def together(path: Path, count: int) -> float:
    """Bytes a second that writers of several processes get, all together, by the log's own times."""
    with penstock.open(path) as store:
        store.create_topic(
            TOPIC, sync="os", write_quota=True, partition_write_speed=_SPEED, partition_write_burst=_BURST
        )
    command = [sys.executable, "-m", "benchmarks.quotas", str(path), str(count)]
    writers = [subprocess.Popen(command) for _ in range(_WRITERS)]
    for each in writers:
        each.wait()
    with penstock.open(path, read_only=True) as store:
        topic = store.topic(TOPIC)
        frame = topic.stats().bytes / topic.stats().messages
        times = [message.written_at / 1e9 for message in topic.scan().messages()]
    inner = [moment for moment in times if times[0] + _EDGE_S <= moment <= times[-1] - _EDGE_S]
    return (len(inner) - 1) * frame / (inner[-1] - inner[0])


def alone(path: Path, limited: bool) -> float:
    """Microseconds of processor time that one small write takes."""
    with penstock.open(path) as store:
        topic = store.create_topic(TOPIC, sync="os", write_quota=limited, partition_write_speed="1GiB")
        topic.write(b"x")
        begin = time.process_time()
        for _ in range(10_000):
            topic.write(b"x" * 100)
        return (time.process_time() - begin) * 100


if __name__ == "__main__":
    with penstock.open(sys.argv[1]) as store:
        written = store.topic(TOPIC)
        for _ in range(int(sys.argv[2])):
            written.write(b"x" * _MESSAGE)
