"""Members of a consumer in processes of their own that come, go, are killed and are stopped."""

import os
import random
import signal
import time
from collections import defaultdict
from itertools import pairwise
from typing import NamedTuple

import pytest

import penstock
from tests.crash.processes import Worker, no_orphans
from tests.crash.workers import ORDERS
from tests.kit.patience import wait_until

PARTITIONS = 8
#: Promised are 2 s for a new balance and 200 ms after a kill; a busy machine gets more.
TAKE_OVER_S = 30.0


class Event(NamedTuple):
    """Something a member said: got, done or lost, and of which messages under which epoch."""

    at: int
    who: str
    what: str
    partition: int
    epoch: int
    first: int
    stop: int


class Members:
    """The members of consumer "c", started and ended by the test."""

    def __init__(self, scratch, store):
        self._scratch = scratch
        self._store = store
        self.stop = os.path.join(scratch, "stop")
        self.workers = []

    def start(self, pace="0"):
        out = os.path.join(self._scratch, f"member-{len(self.workers)}")
        self.workers.append(Worker("member", self._store.path, ORDERS, "c", self.stop, pace, out=out))
        return self.workers[-1]

    def end(self, workers):
        with open(self.stop, "w"):
            pass
        for worker in workers:
            assert worker.end() == 0, worker.errors()

    def events(self):
        found = []
        for number, worker in enumerate(self.workers):
            for line in worker.lines():
                what, at, *place = line.split(" ")
                if what in ("got", "done", "lost"):
                    found.append(Event(int(at), str(number), what, *map(int, place)))
        return sorted(found)


@pytest.fixture
def store(scratch):
    with penstock.open(os.path.join(scratch, "store")) as opened:
        opened.create_topic(ORDERS, partitions=PARTITIONS, sync="os")
        yield opened


@pytest.fixture
def members(scratch, store):
    members = Members(scratch, store)
    with no_orphans(members.workers):
        yield members


def has(worker):
    """The partitions a member said it has, and when."""
    for line in reversed(worker.lines()):
        what, at, numbers = line.split(" ", 2)
        if what == "has":
            return int(at), [int(number) for number in numbers.split(",") if number]
    return 0, []


def wait_for_balance(workers):
    """Each has ⌊P/M⌋ or ⌈P/M⌉, and together all; returns how long it took."""
    began = time.monotonic_ns()
    least = PARTITIONS // len(workers)

    def is_so():
        held = [has(worker)[1] for worker in workers]
        every = sorted(number for numbers in held for number in numbers)
        return every == list(range(PARTITIONS)) and all(len(n) - least in (0, 1) for n in held)

    wait_until(is_so, lambda: [has(worker) for worker in workers])
    return max(0, max(has(worker)[0] for worker in workers) - began) / 1e9


def write(topic, count, first=0):
    for number in range(first, first + count):
        topic.write_many([b"%d" % number] * PARTITIONS, keys=[b"k%d" % n for n in range(PARTITIONS)])
        for partition in range(PARTITIONS):
            topic.write(b"%d" % number, partition=partition)


def wait_until_all_is_committed(store):
    topic = store.topic(ORDERS)
    # The first member that comes makes the consumer.
    wait_until(lambda: [each.lag for each in topic.consumers()] == [0], topic.consumers)


def check(events, store, *, may_overlap=frozenset()):
    """Nothing lost, nothing committed twice, order kept, and one member at a time on each partition."""
    ends = {p.partition: p.end for p in store.topic(ORDERS).stats().partitions}
    tenures, done = defaultdict(list), defaultdict(list)
    for event in events:
        tenures[event.partition, event.epoch].append(event)
        if event.what == "done":
            done[event.partition].append((event.first, event.stop))
    for (partition, epoch), tenure in tenures.items():
        assert len({event.who for event in tenure}) == 1, f"two with epoch {epoch} of partition {partition}"
        got = [event for event in tenure if event.what == "got"]
        assert all(one.stop == two.first for one, two in pairwise(got)), "out of order, or a gap"
    for partition in ends:
        epochs = sorted(epoch for number, epoch in tenures if number == partition)
        for one, two in pairwise(epochs):
            earlier, later = tenures[partition, one], tenures[partition, two]
            if earlier[0].who not in may_overlap:
                assert earlier[-1].at <= later[0].at, "two members on one partition at the same time"
            assert later[0].first <= earlier[-1].stop, "messages were passed over"
        ranges = done[partition]
        assert ranges == sorted(ranges), "commits went back"
        assert all(one[1] <= two[0] for one, two in pairwise(ranges)), "committed twice"
        seen = {
            o for e in events if e.partition == partition and e.what == "got" for o in range(e.first, e.stop)
        }
        assert seen == set(range(ends[partition])), "messages were never delivered"
    assert store.topic(ORDERS).consumers()[0].positions == ends


def test_members_come_and_go_and_the_partitions_are_shared_evenly(store, members):
    took = []
    for _ in range(4):
        members.start()
        took.append(wait_for_balance(members.workers))
    members.workers[1].send(signal.SIGKILL)
    members.workers[1].end()
    left = [members.workers[0], *members.workers[2:]]
    took.append(wait_for_balance(left))
    print("balanced after", took)
    members.end(left)


def test_a_killed_members_partitions_are_taken_over_soon(store, members):
    """Its locks die with it, and the others hear of it: no time-out is waited for."""
    topic = store.topic(ORDERS)
    took = []
    survivor = members.start()
    for _ in range(3):
        victim = members.start(pace="60")  # it has a message in its hands when it dies
        wait_for_balance([survivor, victim])
        write(topic, 3)
        wait_until(lambda victim=victim: any(" " in x for x in victim.lines() if x.startswith("got")))
        killed = time.monotonic_ns()
        victim.send(signal.SIGKILL)
        wait_until(lambda: len(has(survivor)[1]) == PARTITIONS, lambda: has(survivor))
        took.append((has(survivor)[0] - killed) / 1e9)
        victim.end()
        wait_until_all_is_committed(store)
    print("taken over after", took)
    assert min(took) < TAKE_OVER_S
    members.end([survivor])
    check(members.events(), store)


@pytest.mark.slow
def test_a_slow_member_keeps_what_it_has_in_its_hands(store, members):
    """No heartbeat: a handler may take as long as it likes (within the hand-over time of others' wishes)."""
    topic = store.topic(ORDERS)
    slow = members.start(pace="4")
    wait_for_balance([slow])
    write(topic, 1)
    wait_until(lambda: any(x.startswith("got") for x in slow.lines()), slow.lines)
    quick = members.start()
    wait_until(lambda: len(has(quick)[1]) == PARTITIONS // 2, lambda: has(quick))
    wait_until_all_is_committed(store)
    members.end([slow, quick])
    assert not [event for event in members.events() if event.what == "lost"]
    check(members.events(), store)


def _state(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


def test_a_stopped_member_is_named_kicked_and_goes_on_without_doing_harm(store, members):
    """It keeps its leases until it is kicked; awake again it cannot commit what others have done."""
    topic = store.topic(ORDERS)
    stopped = members.start(pace="0.3")
    other = members.start()
    wait_for_balance(members.workers)
    write(topic, 10)
    wait_until(lambda: any(x.startswith("got") for x in stopped.lines()), stopped.lines)
    stopped.send(signal.SIGSTOP)
    wait_until(lambda: _state(stopped.pid) == "T")
    time.sleep(1.5)
    assert len(has(other)[1]) == PARTITIONS // 2, "nobody breaks its leases"
    told = {member.pid: member.stopped for member in topic.consumers()[0].members}
    assert told == {stopped.pid: True, other.pid: False}
    assert topic.kick_consumer("c", stopped.pid) == [stopped.pid]
    wait_until(lambda: len(has(other)[1]) == PARTITIONS, lambda: has(other))
    wait_until_all_is_committed(store)
    stopped.send(signal.SIGCONT)
    wait_for_balance(members.workers)
    wait_until(lambda: any(x.startswith("lost") for x in stopped.lines()), stopped.lines)
    write(topic, 10, first=10)
    wait_until_all_is_committed(store)
    members.end(members.workers)
    check(members.events(), store, may_overlap={"0"})


def test_every_message_is_committed_once_while_members_come_go_and_are_killed(store, members):
    """Order per partition is kept; what a killed member had not committed comes again, once."""
    topic, chance = store.topic(ORDERS), random.Random(7)
    living = [members.start() for _ in range(2)]
    deadline = time.monotonic() + 8
    number = 0
    while time.monotonic() < deadline:
        write(topic, 5, first=number)
        number += 5
        if chance.random() < 0.3 and len(living) < 5:
            living.append(members.start(pace=chance.choice(["0", "0.01"])))
        elif chance.random() < 0.2 and len(living) > 1:
            victim = living.pop(chance.randrange(len(living)))
            victim.send(signal.SIGKILL)
            victim.end()
        time.sleep(0.05)
    wait_until_all_is_committed(store)
    wait_for_balance(living)
    members.end(living)
    events = members.events()
    assert not [event for event in events if event.what == "lost"]
    check(events, store)
