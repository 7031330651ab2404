"""Real kill -9 of processes in the middle of transactions: all of each is there, or nothing (S001-59…61).

Whoever comes next finishes what was committed, while others keep writing.
"""

import itertools
import os
import random
import signal
import time

import pytest

import penstock
from tests.crash.processes import Worker, no_orphans
from tests.crash.workers import CLICKS, ORDERS
from tests.kit.patience import PATIENCE_S
from tests.kit.topics import inside


def values(store, name):
    return [message.text for message in store.topic(name).scan().messages()]


def numbers(found, mark=""):
    """What transactions are there, and how often: `name:number` of each value."""
    return sorted(value.partition("+")[0].partition("/")[0] for value in found if mark in value)


def with_topics(scratch):
    """Both topics, each partition used before: then a commit always makes the same calls."""
    store = os.path.join(scratch, "store")
    with penstock.open(store) as opened:
        for name, partitions in ((ORDERS, 2), (CLICKS, 1)):
            topic = opened.create_topic(name, partitions=partitions)
            for partition in range(partitions):
                topic.write(b"first", partition=partition)
    return store


def test_a_process_killed_at_any_step_of_a_commit(scratch):
    """At each file call of the commit in turn; the next process finds all of it or nothing."""
    store = with_topics(scratch)
    committed = 0
    everyone = []
    with no_orphans(everyone):
        for calls in itertools.count():
            worker = Worker("die_in_transaction", store, str(calls), out=os.path.join(scratch, f"w{calls}"))
            everyone.append(worker)
            assert worker.end() == -signal.SIGKILL, worker.errors()
            said = worker.lines()
            assert "begun" in said
            with penstock.open(store) as opened:
                mark = f"tx:{calls}"
                # The first to come may only read, or may write.
                if calls % 2:
                    opened.topic(CLICKS).write(b"other")
                    opened.topic(ORDERS).write(b"other", partition=0)
                orders = [v for v in values(opened, ORDERS) if v.startswith(mark + "/")]
                clicks = [v for v in values(opened, CLICKS) if v == mark]
                assert (len(orders), len(clicks)) in ((0, 0), (30, 1)), f"half a transaction at call {calls}"
                if "committed" in said:
                    assert clicks
                committed += bool(clicks)
            if "committed" in said:
                break
    assert calls > 10, "too few steps: it was not killed inside the commit"
    assert 1 < committed < calls


def killed_for(folder, seconds, seed):
    print(f"seed {seed}")
    chance = random.Random(seed)
    store = os.path.join(folder, "store")
    with penstock.open(store) as opened:
        opened.create_topic(ORDERS, partitions=2, segment_bytes=1 << 18)
        opened.create_topic(CLICKS, segment_bytes=1 << 16)
    count = itertools.count()

    def start(job, *more):
        name = f"{job}{next(count)}"
        return Worker(job, store, name, *more, out=os.path.join(folder, name))

    everyone = []
    with no_orphans(everyone):
        running = [start("transact"), start("transact"), start("write", "one"), start("write", "many")]
        everyone += running
        begun = time.monotonic()
        kills = 0
        while time.monotonic() < begun + seconds or (  # longer where a busy machine is slow to start them
            time.monotonic() < begun + 60 and (kills < 6 or len(committed(everyone)) < 30)
        ):
            time.sleep(chance.uniform(0.02, 0.2))
            victim = chance.randrange(2)
            if not running[victim].lines() and chance.random() < 0.8:
                continue
            running[victim].send(signal.SIGKILL)
            assert running[victim].end() == -signal.SIGKILL, running[victim].errors()
            kills += 1
            running[victim] = start("transact")
            everyone.append(running[victim])
        for worker in running:
            worker.send(signal.SIGKILL)
            worker.end()
    return store, everyone, kills


def committed(everyone):
    """What processes were told is committed."""
    return [line for worker in everyone for line in worker.lines() if line.startswith("transact")]


def check(store, everyone):
    """All of each transaction or nothing; what was said to be committed is there, and nothing twice."""
    with penstock.open(store) as opened:
        orders, clicks = values(opened, ORDERS), values(opened, CLICKS)
        assert opened._transactions.unfinished() == []
    small = numbers([v for v in orders if "+" not in v], "transact")
    assert len(set(small)) == len(small), "a transaction is there twice"
    assert sorted(set(numbers(clicks, "transact"))) == small
    assert len([v for v in clicks if "transact" in v]) == 3 * len(small)
    large = [v for v in small if int(v.partition(":")[2]) % 7 == 0]
    assert numbers([v for v in orders if "+" in v]) == sorted(v for v in large for _ in range(40))
    said = committed(everyone)
    assert set(said) <= set(small), "a committed transaction is lost"
    return len(said)


def test_transactions_are_whole_or_not_there_when_processes_are_killed(scratch):
    store, everyone, kills = killed_for(scratch, 8, random.randrange(10**6))
    assert check(store, everyone) > 20
    assert kills > 5


@pytest.mark.slow
def test_transactions_are_whole_or_not_there_when_processes_are_killed_for_minutes(scratch):
    store, everyone, kills = killed_for(scratch, 120, random.randrange(10**6))
    assert check(store, everyone) > 500
    assert kills > 200


def test_a_waiting_reader_finishes_what_a_killed_process_committed(scratch):
    """Nobody writes: the reader itself brings it in, within about a second."""
    store = with_topics(scratch)
    with penstock.open(store) as opened:
        clicks = opened.topic(CLICKS)
        with clicks.reader() as reader, no_orphans(everyone := []):
            for calls in itertools.count():
                worker = Worker(
                    "die_in_transaction", store, str(calls), out=os.path.join(scratch, f"w{calls}")
                )
                everyone.append(worker)
                worker.end()
                a = inside(clicks).log(0).folder.read_append()
                if a is not None and a.pending and opened._transactions.unfinished():
                    break
                assert "committed" not in worker.lines(), "it was never killed between commit and append"
            while (message := reader.receive(timeout=10)) is not None:
                if message.text == f"tx:{calls}":
                    return
    pytest.fail("the reader waited in vain")


def test_who_takes_over_sees_all_that_was_committed_with_the_position(scratch):
    """A member dies at any step of a commit; the next one has its partition at once, and its messages too."""
    store = os.path.join(scratch, "store")
    counted = 0
    with penstock.open(store) as opened, no_orphans(everyone := []):
        payments, totals = opened.create_topic(ORDERS), opened.create_topic(CLICKS)
        totals.write(b"0")
        for calls in itertools.count():
            payments.write(b"payment")
            worker = Worker("die_counting", store, str(calls), out=os.path.join(scratch, f"w{calls}"))
            everyone.append(worker)
            worker.wait_for("begun")
            with payments.reader(consumer="counting") as reader:
                worker.go_on()
                payments.write(b"payment")
                message = reader.receive(timeout=PATIENCE_S)
                assert message is not None
                seen = values(opened, CLICKS)
                assert int(seen[-1]) == message.offset, f"killed at call {calls}"
                counted += message.offset
            assert worker.end() == -signal.SIGKILL, worker.errors()
            if "committed" in worker.lines():
                break
    assert calls > 4, "too few steps: it was not killed inside the commit"
    assert counted > 1
