"""Chronicle Queue, the embedded queue of the Java world: a program of its own.

Java compiles what it runs often, so its first messages take several times as long as those after a million.

It runs from jars that whoever wants this row has fetched; `PENSTOCK_CHRONICLE` names their folder:
net.openhft:chronicle-queue with all it depends on.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from benchmarks.harness import Bench
from benchmarks.peers.program import Missing, find_program

NAME = "Chronicle Queue, from Java"
_JARS = "PENSTOCK_CHRONICLE"
_SOURCE = Path(__file__).with_name("ChronicleQueueWriter.java")
_WARM_UP = 6
#: What it asks of a Java that keeps its inside to itself; and it must not call home.
_OPTIONS = (
    "-Dchronicle.analytics.disable=true",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=jdk.unsupported/sun.misc=ALL-UNNAMED",
    "--add-exports=jdk.compiler/com.sun.tools.javac.file=ALL-UNNAMED",
    "--add-opens=jdk.compiler/com.sun.tools.javac=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.reflect=ALL-UNNAMED",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)


def first(bench: Bench) -> float:
    """How many messages a second a new process writes to a new queue."""
    with writer(bench, warm_up=0) as written:
        return written()


@contextmanager
def writer(bench: Bench, *, warm_up: int = _WARM_UP) -> Iterator[Callable[[], float]]:
    """A call that writes all messages to a new queue, and returns how many a second that were."""
    jars = os.environ.get(_JARS)
    if not jars:
        raise Missing(f"set {_JARS} to a folder with the jars of net.openhft:chronicle-queue")
    with bench.room() as room:
        command = [
            find_program("java"), *_OPTIONS, "-cp", f"{jars}/*", str(_SOURCE), str(room.resolve()),
            str(bench.sizes.messages),
        ]  # fmt: skip
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as java:
            assert java.stdin is not None
            assert java.stdout is not None
            numbers = count()

            def written() -> float:
                name = str(next(numbers))
                print(name, file=java.stdin, flush=True)
                found = float(java.stdout.readline())  # type: ignore[union-attr]
                shutil.rmtree(room / name)
                return found

            for _ in range(warm_up):
                written()
            try:
                yield written
            finally:
                java.stdin.close()
