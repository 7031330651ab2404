"""Messages that wait: stored and taken in batches of a thousand, many of them, and how late they come.

The peer is a `sqlite3` table with an index on the due time; taking from it is a SELECT of what is due and a
DELETE, in one transaction. Neither side waits for the disk with each batch.
"""

from __future__ import annotations

import multiprocessing
import sqlite3
import time
from collections.abc import Iterator
from itertools import cycle, islice
from multiprocessing.connection import Connection
from statistics import quantiles

from benchmarks import waiting_calls
from benchmarks.fresh_process import in_new_process, megabytes, told
from benchmarks.harness import BATCH, Bench, rate
from benchmarks.rows import Row, at_most, ratio_at_least
from penstock.clock import Clock
from penstock.delay.records import NewRecord
from penstock.delay.waiting import WaitingMessages

#: How this module is run by itself.
_NAME = "benchmarks.waiting"
_DATA_BYTES = 200
_WAIT_MS = 1000
_FEW = 10_000
#: Due in each millisecond, for so many of them.
_DUE_EACH_MS, _LATENESS_MS = 10, 2000
_PATIENCE_S = 30.0

Batch = list[NewRecord]


class Shifted(Clock):
    """The machine's clock, ahead by so many seconds: what waits is due."""

    def __init__(self, seconds: int) -> None:
        self._ahead_ns = seconds * 1_000_000_000

    def now_ns(self) -> int:  # type: ignore[override]
        return time.time_ns() + self._ahead_ns


def run(bench: Bench) -> Iterator[Row]:
    for kind, what in (("", "200 bytes"), ("-mixed", "150 to 200 bytes")):
        batches = entries(bench, mixed=bool(kind))
        rounds = [(ours(bench, batches), theirs(bench, batches)) for _ in range(bench.sizes.repeat)]
        for place, name in enumerate(("store", "take")):
            yield Row(
                name=f"waiting/{name}{kind}", what=f"{name} by 1000, {what}",
                ours=tuple(one[place] for one, _ in rounds), peer="sqlite3, index on due time",
                theirs=tuple(other[place] for _, other in rounds),
                target=ratio_at_least(5) if not kind else None,
            )  # fmt: skip
    yield from many(bench)
    lateness = [(late(bench), slept()) for _ in range(bench.sizes.repeat)]
    yield Row(
        name="waiting/lateness", what="10,000 due a second, stored by another process, p99", unit="ms",
        ours=tuple(quantiles(each, n=100)[98] for each, _ in lateness), target=at_most(5),
        peer="a bare sleep until a time", theirs=tuple(quantiles(each, n=100)[98] for _, each in lateness),
    )  # fmt: skip


def entries(bench: Bench, *, mixed: bool = False) -> list[Batch]:
    return [
        [
            NewRecord(_WAIT_MS, key, "orders", 1, value[: _DATA_BYTES - (place % 50 if mixed else 0)])
            for place, (key, value) in enumerate(zip(batch.keys, batch.values, strict=True))
        ]
        for batch in bench.distinct
    ]


def ours(bench: Bench, batches: list[Batch]) -> tuple[float, float]:
    """Messages stored and taken a second."""
    count = bench.sizes.messages
    with bench.room() as room:
        with WaitingMessages(room / "delay", sync="os") as waiting:
            stored = rate(count, lambda: store(waiting, batches, count))
        with WaitingMessages(room / "delay", clock=Shifted(10), sync="os") as waiting:
            taken = rate(count, lambda: take(waiting, count))
    return stored, taken


def store(waiting: WaitingMessages, batches: list[Batch], count: int) -> None:
    for batch in islice(cycle(batches), count // BATCH):
        waiting.store_many(batch)


def take(waiting: WaitingMessages, count: int) -> None:
    while count > 0:
        taken = waiting.take(BATCH)
        assert taken
        waiting.finish(taken)
        count -= len(taken)


def theirs(bench: Bench, batches: list[Batch]) -> tuple[float, float]:
    """The same with a table."""
    count = bench.sizes.messages
    with bench.room() as room:
        connection = waiting_calls.table(room / "waiting.db", "NORMAL")
        stored = rate(count, lambda: _insert(connection, batches, count))
        taken = rate(count, lambda: _delete(connection, count))
        connection.close()
    return stored, taken


def _insert(connection: sqlite3.Connection, batches: list[Batch], count: int) -> None:
    for batch in islice(cycle(batches), count // BATCH):
        now = time.time_ns() // 1_000_000
        connection.execute("BEGIN")
        connection.executemany(
            "INSERT INTO waiting (due, id, topic, attempts, data) VALUES (?, ?, ?, ?, ?)",
            [(now + wait, key, topic, attempts, data) for wait, key, topic, attempts, data in batch],
        )
        connection.execute("COMMIT")


def _delete(connection: sqlite3.Connection, count: int) -> None:
    until = time.time_ns() // 1_000_000 + 10 * _WAIT_MS
    while count > 0:
        connection.execute("BEGIN IMMEDIATE")
        rows = connection.execute(
            "SELECT n, due, id, topic, attempts, data FROM waiting WHERE due <= ? ORDER BY due, n LIMIT ?",
            (until, BATCH),
        ).fetchall()
        connection.executemany("DELETE FROM waiting WHERE n = ?", [(row[0],) for row in rows])
        connection.execute("COMMIT")
        count -= len(rows)


def many(bench: Bench) -> Iterator[Row]:
    """Opening and taking where millions wait, and where few do."""
    count = bench.sizes.messages * bench.sizes.growth // 2
    batches = entries(bench)
    with bench.room() as room:
        for name, number in (("much", count), ("little", _FEW)):
            with WaitingMessages(room / name, sync="os") as waiting:
                store(waiting, batches, number)
        rounds = [
            tuple(in_new_process(_NAME, room / name) for name in ("much", "little"))
            for _ in range(bench.sizes.repeat)
        ]
    for name, what, unit, target in (
        ("seconds", f"open, and know what is due, {count:,} waiting", "s", at_most(1)),
        ("VmRSS", "resident memory that this and taking 5000 adds", "MB", at_most(50)),
        ("taken", f"take by 1000, {count:,} waiting", "/s", ratio_at_least(0.8)),
    ):
        yield Row(
            name=f"waiting/many-{ {'seconds': 'open', 'VmRSS': 'memory', 'taken': 'take'}[name] }", what=what,
            unit=unit, ours=tuple(one[name] for one, _ in rounds), peer=f"{_FEW:,} waiting",
            theirs=tuple(other[name] for _, other in rounds), target=target,
        )  # fmt: skip


def open_and_take(path: str) -> dict[str, float]:
    """Taken, and not finished, so that the next process finds the same."""
    before = megabytes()
    begin = time.perf_counter()
    with WaitingMessages(path, clock=Shifted(100), sync="os") as waiting:
        assert waiting.next_due() is not None
        opened = time.perf_counter()
        taken = [each for _ in range(5) for each in waiting.take(BATCH)]
        done = time.perf_counter()
        added = megabytes()["VmRSS"] - before["VmRSS"]
    return {"seconds": opened - begin, "VmRSS": added, "taken": len(taken) / (done - opened)}


def late(bench: Bench) -> list[float]:
    """How many milliseconds after they were due messages are taken."""
    spawn = multiprocessing.get_context("spawn")
    with bench.room() as room, WaitingMessages(room / "delay", sync="os") as waiting:
        here, there = spawn.Pipe()
        storer = spawn.Process(target=_store_evenly, args=(str(room / "delay"), there))
        storer.start()
        there.close()
        found: list[float] = []
        try:
            while len(found) < _DUE_EACH_MS * _LATENESS_MS and waiting.wait(_PATIENCE_S):
                taken = waiting.take(BATCH)
                now = time.time_ns() / 1_000_000
                found += [now - each.due for each in taken]
                waiting.finish(taken)
        finally:
            storer.join(_PATIENCE_S)
            storer.kill()
            here.close()
    return found


def slept() -> list[float]:
    """How late a process comes that only sleeps, a millisecond at a time: what the machine allows."""
    begin, found = time.time_ns() / 1_000_000, []
    for number in range(_LATENESS_MS):
        left = begin + number - time.time_ns() / 1_000_000
        time.sleep(max(left, 0) / 1000)
        found.append(time.time_ns() / 1_000_000 - begin - number)
    return found


def _store_evenly(path: str, parent: Connection) -> None:
    """In the storing process: some messages each millisecond."""
    with WaitingMessages(path, sync="os") as waiting:
        begin = time.monotonic()
        batch = [NewRecord(_WAIT_MS, bytes(16), "orders", 1, bytes(_DATA_BYTES))] * _DUE_EACH_MS
        for number in range(_LATENESS_MS):
            while time.monotonic() < begin + number / 1000:
                time.sleep(0.0002)
            waiting.store_many(batch)
    parent.close()


if __name__ == "__main__":
    told(open_and_take)
