"""A life of waiting messages, traced call by call, and what must hold after a crash at any of them."""

from __future__ import annotations

import copy
import os
import random
from collections import Counter

from penstock import Files
from penstock.testing import Clock
from tests.crash.disk import Call
from tests.crash.tracing import Trace, TracingFiles
from tests.kit.waiting import NewRecord, TakenMessage, WaitingMessages

FOLDER = "delay"
LADDER = ("1s", "5s", "30s")
#: Rungs, waits between them, and waits below the smallest.
WAITS_MS = (1000, 5000, 30_000, 0, 300, 1500, 7250, 64_000, 64_000)
BEGIN_NS = 1_900_000_000_000_000_000


class Promises:
    """What was promised up to some call of the trace."""

    def __init__(self) -> None:
        #: Message → (earliest time at which it may come, whether a power cut may take it).
        self.stored: dict[bytes, tuple[int, bool]] = {}
        #: Messages that may be there: stored, or on the way.
        self.attempted: dict[bytes, int] = {}
        #: Those whose end was begun: they need not come again.
        self.finishing: set[bytes] = set()
        #: Stored again as something else: one of the two must come.
        self.replaced: dict[bytes, bytes] = {}

    def take(self, call: Call) -> None:
        match call:
            case ("mark", "storing", messages):
                self.attempted.update(messages)
            case ("mark", "stored", messages, durable):
                self.stored.update({message: (due, durable) for message, due in messages.items()})
            case ("mark", "finishing", messages):
                self.finishing.update(messages)
            case ("mark", "replacing", old, new):
                self.replaced[old] = new

    def after_power_loss(self) -> Promises:
        left = copy.deepcopy(self)
        left.stored = {message: kept for message, kept in self.stored.items() if kept[1]}
        return left


class Scenario:
    """Random steps by two openers of one folder; what is promised is marked in the trace."""

    def __init__(self, root: str, seed: int, *, sync: str = "disk", steps: int = 60) -> None:
        self.trace = Trace()
        self.chance = random.Random(seed)
        self.clock = Clock(BEGIN_NS)
        self._files = TracingFiles(root, self.trace)
        self._folder = os.path.join(root, FOLDER)
        self._sync = sync
        self._steps = steps
        self._count = 0
        self._out: list[list[TakenMessage]] = [[], []]
        self._openers = [self._open(), self._open()]

    def run(self) -> None:
        steps = [self._store] * 5 + [self._let_time_pass] * 3 + [self._take] * 5 + [self._finish] * 5
        steps += [self._again, self._settle, self._snapshot, self._reopen, self._step_back]
        for _ in range(self._steps):
            self.chance.choice(steps)()
        for opener in self._openers:
            opener.close()

    def _open(self) -> WaitingMessages:
        return opened(self._folder, self._files, self.clock, self._sync)

    def _store(self) -> None:
        entries = [self._entry() for _ in range(self.chance.choice([1, 1, 3, 12]))]
        due = {entry.data: self._now_ms() + entry.wait_ms for entry in entries}
        self.trace.mark("storing", due)
        fixed = self.chance.random() < 0.5
        self.chance.choice(self._openers).store_many(entries, fixed=fixed)
        self.trace.mark("stored", due, self._sync == "disk")

    def _entry(self) -> NewRecord:
        self._count += 1
        padding = b"." * self.chance.choice([0, 3, 200, 900])
        data = b"%d %s" % (self._count, padding)
        return NewRecord(
            self.chance.choice(WAITS_MS), self.chance.randbytes(16), f"t{self._count % 3}", 0, data
        )

    def _let_time_pass(self) -> None:
        self.clock.advance(self.chance.choice([0.3, 1.0, 5.5, 31.0]))

    def _step_back(self) -> None:
        self.clock.set(self.clock.now_ns() - self.chance.choice([1, 50]) * 1_000_000_000)

    def _take(self) -> None:
        which = self.chance.randrange(2)
        self._out[which] += self._openers[which].take(self.chance.choice([1, 5, 100]))

    def _finish(self) -> None:
        which = self.chance.randrange(2)
        out = self._out[which]
        chosen = [taken for taken in out if self.chance.random() < 0.7]
        if chosen:
            self.trace.mark("finishing", [taken.data for taken in chosen])
            self._openers[which].finish(chosen)
            self._out[which] = [taken for taken in out if taken not in chosen]

    def _again(self) -> None:
        which = self.chance.randrange(2)
        if self._out[which]:
            taken = self._out[which].pop()
            data, wait_ms = taken.data + b"again", self.chance.choice(WAITS_MS)
            due = {data: self._now_ms() + wait_ms}
            self.trace.mark("storing", due)
            self.trace.mark("replacing", taken.data, data)
            taken.again(wait_ms / 1000, data=data, fixed=self.chance.random() < 0.5)
            self.trace.mark("stored", due, self._sync == "disk")
            self.trace.mark("finishing", [taken.data])

    def _settle(self) -> None:
        self.chance.choice(self._openers).settle()

    def _snapshot(self) -> None:
        self.chance.choice(self._openers).snapshot()

    def _reopen(self) -> None:
        which = self.chance.randrange(2)
        self._openers[which].close()
        self._out[which].clear()
        self._openers[which] = self._open()

    def _now_ms(self) -> int:
        return self.clock.now_ns() // 1_000_000


def opened(folder: str, files: Files, clock: Clock, sync: str = "disk") -> WaitingMessages:
    return WaitingMessages(folder, files, clock, ladder=LADDER, sync=sync, file_bytes=4096, file_age="20s")  # type: ignore[arg-type]


def problems(folder: str, promises: Promises, files: Files, now_ns: int) -> list[str]:
    """What is wrong in a folder as a crash left it: open it, wait until nothing waits, and compare."""
    clock = Clock(now_ns)
    found: list[str] = []
    came: Counter[bytes] = Counter()
    with opened(os.path.join(folder, FOLDER), files, clock) as waiting:
        waiting.store(wait=0, id=bytes(16), topic="t", data=b"after")
        while (due := waiting.next_due()) is not None:
            clock.set(max(due * 1_000_000, clock.now_ns()))
            for taken in waiting.take(7):
                came[taken.data] += 1
                if taken.data != b"after" and taken.data not in promises.attempted:
                    found.append(f"{taken.data[:20]!r} was never stored")
                if promises.attempted.get(taken.data, 0) > clock.now_ns() // 1_000_000:
                    found.append(f"{taken.data[:20]!r} came too early")
                taken.done()
        found += [f"damage: {each}" for each in waiting.damage]
        if waiting.count():
            found.append(f"{waiting.count()} are left and never due")
    missing = [
        message
        for message in promises.stored
        if not (message in promises.finishing or came[message] or came[promises.replaced.get(message, b"")])
    ]
    found += [f"{message[:20]!r} is lost" for message in missing]
    if came[b"after"] != 1:
        found.append(f"what was stored after the crash came {came[b'after']} times")
    return found
