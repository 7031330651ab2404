"""Sessions that are measured, and rates by the wall clock and the processor time of all their processes."""

from __future__ import annotations

import compileall
import gc
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import penstock
from benchmarks.rows import Figure
from penstock.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROC = Path("/proc")
#: Of what follows the name in a line of `/proc/…/stat`: the parent, and the four times of a process, its own
#: and those of children that have ended.
_PARENT, _TIMES = 1, slice(11, 15)


def started(cores: int) -> SparkSession:
    """A session with few partitions, since tables are small; the rest is what every user gets."""
    # As pip does: else, where Python is told to write no bytecode, each worker would compile all of it.
    compileall.compile_dir(str(Path(penstock.__file__).parent), quiet=1)
    return session(f"local[{cores}]", **{"spark.sql.shuffle.partitions": cores, "spark.driver.memory": "2g"})


def rate(count: int, work: Callable[[], object]) -> float:
    """How many of `count` things a second `work` does, whichever of our processes does them.

    On a busy machine the second clock says more. Where there is no `/proc`, there is only the first.
    """
    gc.collect()
    os.sync()
    begin, computed = time.perf_counter(), family_seconds()
    work()
    spent, wall_s = family_seconds() - computed, time.perf_counter() - begin
    return Figure(count / wall_s, count / spent) if spent > 0 else count / wall_s


def family_seconds() -> float:
    """Processor time of this process and of all that it started, in seconds; 0 where nobody tells it."""
    if not _PROC.is_dir():
        return 0.0
    children: dict[int, list[int]] = defaultdict(list)
    ticks: dict[int, int] = {}
    for number, fields in _processes(_PROC.iterdir()):
        children[int(fields[_PARENT])].append(number)
        ticks[number] = sum(map(int, fields[_TIMES]))
    total, waiting = 0, [os.getpid()]
    while waiting:
        number = waiting.pop()
        total += ticks.get(number, 0)
        waiting += children[number]
    return total / os.sysconf("SC_CLK_TCK")


def _processes(folders: Iterable[Path]) -> Iterable[tuple[int, list[str]]]:
    """Number and figures of each process; one that ends meanwhile is left out."""
    for folder in folders:
        if folder.name.isdigit():
            try:
                line = (folder / "stat").read_text()
            except OSError:
                continue
            yield int(folder.name), line.rpartition(")")[2].split()
