"""Pushes that the loop stores itself: only where nothing but the disk is waited for, and never half."""

import asyncio
import errno
import fcntl
import json
import os
import threading

import pytest

import penstock
from penstock.errors import MessageTooLarge, NotDurable
from penstock.events.event import Pushed
from penstock.serve import limits
from penstock.serve.push import DiskSpeed, Groups, Push, store_at_once
from tests.crash.hostile import HostileFiles


def push_of(*data) -> Push:
    return Push([b"k"] * len(data), [json.dumps(each).encode() for each in data], None)


@pytest.fixture
def files():
    return HostileFiles()


@pytest.fixture
def store(tmp_path, files):
    with penstock.open(tmp_path / "data", files=files) as store:
        store.create_topic("events", index="key", max_message_bytes=1000, segment_bytes="64KiB")
        yield store
        files.decide = lambda call, path: 0


@pytest.fixture
def events(store):
    """With one event, so that the segment has room."""
    events = store.events()
    events.push("k", 0)
    return events


def stored(store) -> list:
    return [json.loads(message.value) for message in store.topic("events").read(limit=10_000)]


def test_pushes_are_stored_and_each_gets_its_ids(store, events):
    found = store_at_once(events, [push_of(1), push_of(2, 3)])
    assert found == [Pushed(events.epoch, 2, 2), Pushed(events.epoch, 3, 4)]
    with penstock.open(store.path, read_only=True) as other:
        assert stored(other) == [0, 1, 2, 3]
    assert events.push("k", 4).first == 5


def test_nobody_is_waited_for(store, events):
    folder = events.open_topic.log(0).folder
    for name in ("append", "tail"):
        fd = os.open(folder.name(name), os.O_RDWR)  # as another process has it
        fcntl.flock(fd, fcntl.LOCK_EX)
        assert store_at_once(events, [push_of(1)]) is None
        os.close(fd)
    assert stored(store) == [0]
    assert store_at_once(events, [push_of(1)]) == [Pushed(events.epoch, 2, 2)]


def test_what_takes_more_than_a_sync_is_left_to_a_thread(store, events):
    at_once = count = 0
    while len(events.open_topic.log(0).segments.bases()) < 3:
        count += 1
        if store_at_once(events, [push_of("x" * 900)]) is None:
            events.push("k", "x" * 900)  # which makes room, or begins a segment
        else:
            at_once += 1
        assert events.open_topic.log(0).bounds().end == count + 1
    assert 0 < at_once < count
    assert stored(store) == [0] + ["x" * 900] * count


def test_one_that_cannot_be_stored_lets_none_be_stored(store, events):
    with pytest.raises(MessageTooLarge):
        store_at_once(events, [push_of(1), push_of("x" * 2000)])
    assert stored(store) == [0]


def test_a_dropped_topic_takes_nothing(tmp_path, store, events):
    with penstock.open(tmp_path / "data") as other:
        other.drop_topic("events")
        assert store_at_once(events, [push_of(1)]) is None
        new = other.create_topic("events", index="key")
        assert store_at_once(events, [push_of(1)]) is None
        assert new.stats().messages == 0


def test_a_failed_sync_is_told_and_leaves_nothing(store, events, files):
    files.decide = lambda call, path: errno.EIO if call == "sync" and path.endswith(".data") else 0
    with pytest.raises(NotDurable):
        store_at_once(events, [push_of(1)])
    files.decide = lambda call, path: 0
    assert store_at_once(events, [push_of(2)]) is None  # a thread cuts back first
    events.push("k", 3)
    assert store_at_once(events, [push_of(4)]) is not None
    assert stored(store) == [0, 3, 4]


@pytest.mark.parametrize("options", [{"sync": "os"}, {"sync": "disk"}])
def test_topics_of_other_kinds_keep_their_promises(tmp_path, options):
    with penstock.open(tmp_path / "other") as store:
        store.create_topic("events", index="key", **options)
        events = store.events()
        events.push("k", 0)
        found = store_at_once(events, [push_of(1)])
        assert (found is None) == (options == {"sync": "os"})
        assert stored(store) == ([0] if found is None else [0, 1])


def test_the_loop_waits_for_a_disk_only_after_it_was_quick_for_a_while():
    disk = DiskSpeed()
    for _ in range(limits.QUICK_STORES):
        assert not disk.is_quick
        disk.took(limits.TURN_S / 10)
    assert disk.is_quick
    disk.took(limits.TURN_S * 2)
    assert not disk.is_quick


class Storage:
    """A real store; notes which thread stores."""

    def __init__(self, events):
        self._events = events
        self.by_thread = 0

    def find(self, topic, *, anew=False):
        return self._events

    def start(self, call, *args):
        self.by_thread += 1
        return asyncio.get_running_loop().run_in_executor(None, call, *args)

    def stored(self, topic):
        pass


class Client:
    """Pushes again as soon as it is answered, so often."""

    def __init__(self, groups, times):
        self._groups, self._left = groups, times
        self.connection = self
        self.answers = []
        self.done = asyncio.get_running_loop().create_future()

    def push(self):
        self._left -= 1
        self._groups.add("events", push_of(1), self)

    def reply(self, status, body):
        self.answers.append(json.loads(body)["first"])

    def settle(self):
        if self._left:
            asyncio.get_running_loop().call_soon(self.push)
        elif not self.done.done():
            self.done.set_result(None)


def test_pushes_are_answered_once_whoever_stores_them(store, events):
    async def go():
        storage = Storage(events)
        failures = []
        groups = Groups(storage, lambda pending, error: failures.append(error))
        clients = [Client(groups, times=60) for _ in range(10)]
        for client in clients:
            client.push()
        await asyncio.wait_for(asyncio.gather(*(client.done for client in clients)), 60)
        assert (failures, groups.is_busy) == ([], False)
        return storage, [client.answers for client in clients]

    storage, answers = asyncio.run(go())
    ids = sorted(number for each in answers for number in each)
    assert ids == list(range(2, 602))
    assert all(each == sorted(each) for each in answers)
    assert storage.by_thread >= limits.QUICK_STORES
    assert len(stored(store)) == 601


def test_a_group_does_not_wait_for_ever_for_those_who_stay_away(store, events):
    async def go():
        groups = Groups(Storage(events), lambda pending, error: None)
        many = [Client(groups, times=1) for _ in range(5)]
        for client in many:
            client.push()
        await asyncio.wait_for(asyncio.gather(*(client.done for client in many)), 30)
        alone = Client(groups, times=3)
        alone.push()
        await asyncio.wait_for(alone.done, 30)
        return alone.answers

    assert asyncio.run(go()) == [7, 8, 9]


def test_the_lock_of_another_thread_is_not_waited_for(store, events):
    """Which would hold up all clients."""
    folder = events.open_topic.log(0).folder
    held, let_go = threading.Event(), threading.Event()

    def hold():
        with folder.append:
            held.set()
            let_go.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(30)
    assert store_at_once(events, [push_of(1)]) is None
    let_go.set()
    thread.join(30)
    assert store_at_once(events, [push_of(1)]) is not None
