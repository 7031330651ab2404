"""Replay and compact killed with -9 at any moment and run again: nothing lost, nothing twice."""

import os
import random
import signal

import pytest

import penstock
from tests.kit import fork_server


def begin(scratch: str, *, sinks: int = 2) -> str:
    path = os.path.join(scratch, "store")
    with penstock.open(path) as store:
        source = store.create_topic("source", partitions=2, segment_bytes="64KiB")
        store.create_topic("sink", partitions=sinks)
        for n in range(20):
            values = [f"{n}/{i}" + "." * 200 for i in range(50)]
            source.write_many(values, keys=[f"k{i % 37}" for i in range(50)])
            source.write(f"single {n}", key="one")
    return path


def run(path: str, job: str, calls: int) -> int:
    done = fork_server.run(["-m", "tests.crash.killed_replay", path, job, str(calls)])
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode


def content(topic: penstock.Topic, number: int) -> list[tuple]:
    return [(m.key, m.value, m.timestamp) for m in topic.scan(partition=number).messages()]


def test_a_replay_killed_again_and_again_copies_each_message_once(scratch):
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    path, kills = begin(scratch), 0
    while run(path, "replay", chance.randrange(2, 20)):
        kills += 1
        assert kills < 200
        with penstock.open(path) as store:
            source, sink = store.topic("source"), store.topic("sink")
            for number in range(2):
                copied = content(sink, number)
                assert copied == content(source, number)[: len(copied)]
            assert store.pipelines() == [] or store.pipeline("replay-source").state == "killed"
    assert kills > 3
    with penstock.open(path) as store:
        assert [content(store.topic("sink"), n) for n in range(2)] == [
            content(store.topic("source"), n) for n in range(2)
        ]
        assert store.pipeline("replay-source").lag == 0


@pytest.mark.slow
def test_a_compaction_killed_at_any_call_is_whole_or_not_there(scratch):
    path, calls, kills = begin(scratch, sinks=1), 0, 0
    with penstock.open(path) as store:
        latest = {m.key: m.value for m in store.topic("source").scan().messages()}
    while run(path, "compact", calls):
        calls += 1
        kills += 1
        with penstock.open(path) as store:
            found = [(m.key, m.value) for m in store.topic("sink").scan().messages()]
        assert found == [] or (dict(found) == latest and len(found) == len(latest))
    assert kills > 3
    with penstock.open(path) as store:
        found = [(m.key, m.value) for m in store.topic("sink").scan().messages()]
    assert dict(found) == latest
    assert len(found) == len(latest)
