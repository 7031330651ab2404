"""Crash a traced run at every call, and look at what is left each time.

For each call of the trace:

    killed    all calls before it took effect
    torn      so did a first part of the bytes it writes (records are 64 bytes within a page: those are
              written whole or not at all, as far as other processes see)
    lost      the power went; what was not synced is there or not, by chance

A crash may hit the recovery from a crash: `explore_recovery` traces the first opening after a crash
and crashes that at every call, too.
"""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import penstock
from tests.crash.checker import Promises, problems, put, read_only_problems
from tests.crash.disk import Call, Disk
from tests.crash.scenario import STORE, HandClock
from tests.crash.tracing import FIRST_BOOT, BootFiles, Trace, TracingFiles, traced_commits
from tests.kit.logs import RECORD_BYTES
from tests.kit.topics import inside

Kind = Literal["killed", "torn", "lost"]
#: These change nothing that a process could see.
_INVISIBLE = ("sync", "sync_folder")


class Point(NamedTuple):
    """A crash: before which call, of which kind, what it left, and what was promised until then."""

    index: int
    kind: Kind
    disk: Disk
    promises: Promises
    boot: int

    def __str__(self) -> str:
        return f"{self.kind} before call {self.index}"


def points(
    calls: Sequence[Call], chance: random.Random, *, disk: Disk | None = None,
    promises: Promises | None = None, boot: int = FIRST_BOOT, losses: int = 1,
) -> Iterator[Point]:  # fmt: skip
    """Every way to crash while `calls` are made, `losses` power cuts at each among them.

    The disk of a point is alive: it moves on with the next point.
    """
    disk, promises = disk or Disk(), promises or Promises()
    changed = True
    for index, call in enumerate(calls):
        if call[0] != "mark":
            if changed:
                yield Point(index, "killed", disk, promises, boot)
                changed = False
            if call[0] == "write" and len(call[3]) > RECORD_BYTES:
                torn = copy.deepcopy(disk)
                torn.apply((*call[:3], call[3][: chance.randrange(1, len(call[3]))]))
                yield Point(index, "torn", torn, promises, boot)
            for _ in range(losses):
                lost = Disk.holding(disk.as_lost(chance))
                yield Point(index, "lost", lost, promises.after_power_loss(), boot + 1)
        disk.apply(call)
        promises.take(call)
        changed |= call[0] not in _INVISIBLE


def look(folder: str, point: Point, now_ns: int) -> list[str]:
    """What is wrong after this crash."""
    put(point.disk.as_killed(), folder)
    files = BootFiles(point.boot)
    found = read_only_problems(folder, point.promises, files, now_ns) if point.index % 4 == 0 else []
    found += problems(folder, point.promises, files, now_ns)
    return [f"{point}: {each}" for each in found]


def explore_recovery(
    folder: str, point: Point, now_ns: int, chance: random.Random, *, losses: int = 1, each: int = 1
) -> Iterator[str]:
    """Crash the recovery from this crash, at every call; yields what is wrong after that.

    `each`: only after every third of these crashes, say, by chance.

    A process that is killed between a sync that failed and its mark takes the secret with it: the next one
    syncs again, and is told that all is well. Nobody can do anything about that.
    """
    if point.disk.failure_is_secret:
        return
    trace = _traced_recovery(folder, point, now_ns)
    again = points(
        trace.calls,
        chance,
        disk=copy.deepcopy(point.disk),
        promises=copy.deepcopy(point.promises),
        boot=point.boot,
        losses=losses,
    )
    for second in again:
        if chance.randrange(each):
            continue
        for found in look(folder, second, now_ns):
            yield f"{point}, then {found}"


def _traced_recovery(folder: str, point: Point, now_ns: int) -> Trace:
    """What the first process after the crash does: open, read, write a message to each partition, close."""
    put(point.disk.as_killed(), folder)
    trace = Trace()
    files = TracingFiles(folder, trace, boot=point.boot, nodes=point.disk.nodes())
    with traced_commits(trace):
        store = penstock.open(os.path.join(folder, STORE), files=files, clock=HandClock(now_ns))
        for topic in store.topics():
            for partition in range(topic.options.partitions):
                value = b"%s recovered %d" % (topic.name.encode(), partition)
                trace.mark("attempt", topic.id, [value])
                receipt = topic.write(value, partition=partition)
                trace.mark("acked", topic.id, partition, receipt.offset, value, receipt.sync)
        store.flush_housekeeping()
        for topic in store.topics():
            for log in inside(topic).logs():
                trace.mark("start", topic.id, log.partition, log.bounds().start, at=0)
        store.close()
    return trace
