"""Real kill -9, in a loop, of writers that share topics, with readers following them.

No acknowledged message is lost, none is there twice, each writer's order is kept in each partition, and no
reader ever sees half a frame.
"""

import itertools
import os
import random
import signal
import time
from collections import Counter

import pytest

import penstock
from tests.crash.processes import Worker, no_orphans, told
from tests.crash.workers import CLICKS, ORDERS
from tests.kit.patience import wait_until

MODES = ["one", "buffered", "many", "os"]


def killed(folder: str, times: int, seed: int) -> tuple[list[list[str]], list[Worker]]:
    """Kill writers of each mode, so many times; returns what all of them and the readers said."""
    print(f"seed {seed}")
    chance = random.Random(seed)
    store, stop = os.path.join(folder, "store"), os.path.join(folder, "stop")
    with penstock.open(store) as opened:
        opened.create_topic(ORDERS, partitions=2, segment_bytes=1 << 16)
        opened.create_topic(CLICKS, sync="os", segment_bytes=1 << 16)
    numbers = itertools.count()

    def start(mode: str) -> Worker:
        name = f"{mode}{next(numbers)}"
        return Worker("write", store, name, mode, out=os.path.join(folder, name))

    everyone: list[Worker] = []
    with no_orphans(everyone):
        readers = [
            Worker(
                "read", store, topic, f"reader{number}", stop, out=os.path.join(folder, f"{topic}{number}")
            )
            for topic in (ORDERS, CLICKS)
            for number in range(2)
        ]
        everyone += readers
        writers = {mode: start(mode) for mode in MODES}
        everyone += writers.values()
        for _ in range(times):
            time.sleep(chance.uniform(0.02, 0.15))
            mode = chance.choice(MODES)
            if chance.random() < 0.8:  # most of them write something first
                wait_until(writers[mode].lines, writers[mode].errors)
            writers[mode].send(signal.SIGKILL)
            assert writers[mode].end() == -signal.SIGKILL, writers[mode].errors()
            writers[mode] = start(mode)
            everyone.append(writers[mode])
        for writer in writers.values():
            writer.send(signal.SIGKILL)
            writer.end()
        with penstock.open(store) as opened:
            for name in (ORDERS, CLICKS):  # the last unsynced messages become visible with the next one
                for partition in range(opened.topic(name).options.partitions):
                    opened.topic(name).write(b"end:0", partition=partition)
        open(stop, "w").close()
        for reader in readers:
            assert reader.end() == 0, reader.errors()
    said = [worker.lines() for worker in everyone if worker not in readers]
    return said, readers


def check(folder: str, said: list[list[str]], readers: list[Worker]) -> int:
    """Compare what writers and readers were told with what is stored; returns the acknowledged messages."""
    stored = {}
    with penstock.open(os.path.join(folder, "store")) as opened:
        for name in (ORDERS, CLICKS):
            stored[name] = {(m.partition, m.offset): m.text for m in opened.topic(name).scan().messages()}
    acknowledged = 0
    for lines in said:
        for partition, offset, value in told(lines):
            topic = CLICKS if value.startswith("os") else ORDERS
            assert stored[topic].get((partition, offset)) == value
            acknowledged += 1
    for name in (ORDERS, CLICKS):
        counts = Counter(value for value in stored[name].values() if value != "end:0")
        assert [value for value, count in counts.items() if count > 1] == []
        check_order(stored[name])
    for number, reader in enumerate(readers):
        received = told(reader.lines())
        name = (ORDERS, CLICKS)[number // 2]
        assert len({(p, o) for p, o, _ in received}) == len(received), "delivered twice"
        assert {(p, o): value for p, o, value in received} == stored[name]
        check_order({(p, o): value for p, o, value in received})
    return acknowledged


def check_order(messages: dict[tuple[int, int], str]) -> None:
    """Each writer's numbers count up within each partition."""
    last: dict[tuple[str, int], int] = {}
    for (partition, _), value in sorted(messages.items()):
        writer, _, number = value.partition(":")
        if writer != "end":
            assert int(number) > last.get((writer, partition), -1)
            last[writer, partition] = int(number)


def test_nothing_acknowledged_is_lost_or_doubled_when_writers_are_killed(scratch):
    said, readers = killed(scratch, times=40, seed=random.randrange(10**6))
    assert check(scratch, said, readers) > 40


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_or_doubled_when_writers_are_killed_for_minutes(scratch):
    said, readers = killed(scratch, times=1000, seed=random.randrange(10**6))
    assert check(scratch, said, readers) > 1000
