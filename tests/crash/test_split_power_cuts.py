"""Splits and additions through a crash at any file call: kill -9, torn writes, power cuts (S001-20, S001-23).

After each, what was acknowledged is there once, and sending everything again stores each message once, in the
order of its key, by a tree that the logs tell too.
"""

import logging
import os
import random

import pytest

import penstock
from tests.crash.checker import put
from tests.crash.explore import points
from tests.crash.scenario import STORE, HandClock
from tests.crash.tracing import BootFiles, Trace, TracingFiles, traced_commits
from tests.kit.topics import inside
from tests.kit.trees import read_birth, read_seal

KEYS = [f"key-{number}" for number in range(10)]
MESSAGES = 40


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Each crash logs what it finds."""
    caplog.set_level(logging.CRITICAL + 1, "penstock")


def send(topic, first, stop):
    with topic.writer(producer_id="shop") as writer:
        for number in range(first, stop):
            writer.write(b"%d" % number, key=KEYS[number % 10], seqno=number)


def played(folder, sync):
    """The calls of a run that splits twice and adds a partition; after which of them what was promised."""
    trace, clock = Trace(), HandClock()
    acknowledged = []
    with traced_commits(trace):
        path = os.path.join(folder, STORE)
        with penstock.open(path, files=TracingFiles(folder, trace), clock=clock) as store:
            topic = store.create_topic("orders", autopartitioning="paused", segment_bytes=4096, sync=sync)
            acknowledged.append((len(trace), 0))
            for first, grow in (
                (0, lambda: topic.split(0)),
                (10, lambda: topic.split(2)),
                (20, lambda: topic.alter(partitions=4)),
                (30, lambda: None),
            ):
                send(topic, first, first + 10)
                acknowledged.append((len(trace), first + 10))
                grow()
    return trace, acknowledged, clock.now


def wrong(folder, point, promised, now_ns):
    put(point.disk.as_killed(), folder)
    path = os.path.join(folder, STORE)
    with penstock.open(path, files=BootFiles(point.boot), clock=HandClock(now_ns)) as store:
        topic = store.topic("orders")
        found = [int(message.value) for message in topic.scan().messages()]
        if len(set(found)) != len(found):
            yield "stored twice"
        if not set(range(promised)) <= set(found):
            yield f"lost {sorted(set(range(promised)) - set(found))}"
        send(topic, 0, MESSAGES)
        by_key = {}
        for message in topic.scan().messages():
            by_key.setdefault(message.key.decode(), []).append(int(message.value))
        if by_key != {key: list(range(n, MESSAGES, 10)) for n, key in enumerate(KEYS)}:
            yield f"after sending again: {by_key}"
        for row in inside(topic).tree:
            log = inside(topic).log(row.partition)
            birth, seal = read_birth(log.folder), read_seal(log.folder)
            if tuple(sorted(birth.parents if birth else ())) != row.parents:
                yield f"partition {row.partition}: its birth says {birth}"
            if (seal is not None) != (row.state == "inactive"):
                yield f"partition {row.partition}: its seal says {seal}"


def explored(scratch, sync, *, each):
    run = os.path.join(scratch, "run")
    os.mkdir(run)
    trace, acknowledged, now_ns = played(run, sync)
    chance, count = random.Random(5), 0
    for point in points(trace.calls, random.Random(5)):
        if point.index < acknowledged[0][0] or chance.randrange(each):
            continue
        promised = max(number for at, number in acknowledged if at <= point.index)
        if point.kind == "lost" and sync == "os":
            promised = 0
        count += 1
        for problem in wrong(os.path.join(scratch, "crashed"), point, promised, now_ns):
            yield f"{point}: {problem}"
    assert count > 30, "too few crashes"


@pytest.mark.parametrize("sync", ["disk", "os"])
def test_splits_hold_after_a_crash_at_some_calls(scratch, sync):
    assert list(explored(scratch, sync, each=8)) == []


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["disk", "os"])
def test_splits_hold_after_a_crash_at_any_call(scratch, sync):
    assert list(explored(scratch, sync, each=1)) == []
